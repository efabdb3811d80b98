"""Runs the demo's parts one after another, prints their tables, and keeps the report up to date."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.status import Status
from rich.table import Table

import reward
from integrations.demo.agreement import CEILING, measure_agreement
from integrations.demo.grpo import decode_both_ways, make_trainer
from integrations.demo.quality import compare_systems, make_examples, mean_quality, measure_choice
from integrations.demo.report import write_report
from integrations.trl import load_policy
from reward import BeitScoreReward, VelaReward, load_scorer
from reward.errors import OutputError
from reward.metaeval import Interval
from reward.metaeval.agreement import RATER
from reward.scenes import ASPECTS, make_dataset
from reward.scoring import score_dataset
from reward.scoring.writers import refuse_address

SEED = 7  # of all held-out scenes; no model was trained on scenes of this seed
_MEASURES = {"f1": "oracle F1", "recall": "recall", "precision": "precision", "words": "words"}


@dataclass(frozen=True)
class Sizes:
    """How much of everything.

    Args:
        samples: rated captions in the comparison of metrics.
        scenes: held-out scenes of best-of-n and GRPO.
        n: candidates of best-of-n.
        steps, prompts, generations: GRPO steps, scenes per step, captions per scene.
        learning_rate: of GRPO.
        samples_judged: sampled captions a held-out scene before and after GRPO.
        max_new_tokens: longest caption.
        resamples: of the bootstrap.
    """

    samples: int = 200
    scenes: int = 40
    n: int = 16
    steps: int = 16
    prompts: int = 8
    generations: int = 8
    learning_rate: float = 3e-4
    samples_judged: int = 2
    max_new_tokens: int = 90
    resamples: int = 300


QUICK = Sizes(
    samples=24, scenes=4, n=4, steps=2, prompts=2, generations=2, samples_judged=1, max_new_tokens=12, resamples=50
)


def run_demo(
    output: Path, sizes: Sizes | None = None, *, console: Console | None = None, **sources: str
) -> dict[str, Any]:
    """Runs all parts; Ctrl-C stops, and what was done so far is in the report.

    Args:
        output: folder for `report.html`, `figures.json` and the scored files; made if absent.
        sizes: how much of everything.
        console: where tables go; standard output by default.
        sources: checkpoints of `vela`, `beitscore` and `captioner`; those that ship by default.

    Returns:
        What has been found: the settings; the parts "agreement", "choice", "offline" and "grpo", None where one has not
        run; "seconds", {part: time it took}; and "stopped", the part in which the user stopped the demo, if so.
    """
    demo = _Demo(output, sizes or Sizes(), dict.fromkeys(("vela", "beitscore", "captioner"), "embedded") | sources)
    demo.run(console or Console())
    return demo.results


class _Demo:
    """One run: the models, the held-out scenes, and the results so far."""

    def __init__(self, output: Path, sizes: Sizes, sources: Mapping[str, str]) -> None:
        refuse_address(output)
        self.output, self.sizes = output, sizes
        self.results: dict[str, Any] = {"version": reward.__version__, **sources, "sizes": asdict(sizes)}
        self.results |= dict.fromkeys(("agreement", "choice", "offline", "grpo", "stopped")) | {"seconds": {}}
        self.systems: dict[str, list[str]] = {}  # {system: one caption per scene}, for the examples
        try:
            output.mkdir(parents=True, exist_ok=True)
            self.write()
        except OSError as error:
            raise OutputError(f"cannot write to {str(output)!r}: {error.strerror or error}") from error
        self.scorers = {name: load_scorer(name, sources[name], device="cpu") for name in ("vela", "beitscore")}
        self.reward = VelaReward(sources["vela"], device="cpu")
        self.rewards = {"VELA": self.reward, "BEiTScore": BeitScoreReward(sources["beitscore"], device="cpu")}
        self.captioner = load_policy(sources["captioner"], dtype="float32")
        rows = make_dataset(sizes.scenes, SEED)
        self.images, self.references, self.scenes = list(rows["image"]), list(rows["refs"]), list(rows["scene"])

    def run(self, console: Console) -> None:
        """All parts; the one that changes the captioner, and takes longest, comes last."""
        parts = {"agreement": self.agreement, "best of n": self.choice, "offline scoring": self.offline}
        for name, part in {**parts, "GRPO": self.grpo}.items():
            start = time.perf_counter()
            try:
                with console.status(f"{name} ...") as status:
                    table = part(status)
                console.print(table)
            except KeyboardInterrupt:
                self.results["stopped"] = name
            self.results["seconds"][name] = time.perf_counter() - start
            self.write()
            if self.results["stopped"]:
                break

    def agreement(self, status: Status) -> Table:
        sizes = self.sizes
        part = measure_agreement(sizes.samples, SEED, scorers=self.scorers, resamples=sizes.resamples)
        self.results["agreement"] = part
        rows = {**part["agreement"], f"{RATER} (with the other two)": part["against_two"][RATER]}
        differences: dict[str, Mapping[str, Interval]] = {}
        for name, others in part["differences"].items():
            baselines = {k: row for k, row in others.items() if k not in part["differences"] and k != CEILING}
            differences |= {f"{name} - {other}": row for other, row in baselines.items()}
            differences[f"{name} - {RATER}"] = part["differences_from_rater"][name]
        title = f"Kendall's tau-c with the mean of three simulated raters, {sizes.samples} held-out scenes"
        return _table(title, {name: name for name in (*ASPECTS, "mean")}, rows, differences)

    def choice(self, status: Status) -> Table:
        sizes = {name: getattr(self.sizes, name) for name in ("n", "max_new_tokens", "resamples")}
        model, processor = self.captioner
        part = measure_choice(model, processor, self.images, self.references, self.scenes, self.rewards, **sizes)
        self.results["choice"] = part
        self.systems |= {name: texts for name, texts in part["captions"].items() if "oracle" not in name}
        title = f"Best of {part['n']} on {part['scenes']} held-out scenes"
        return _table(title, _MEASURES, part["means"], part["differences"])

    def offline(self, status: Status) -> Table:
        """Scores a file of some of the candidates."""
        folder = self.output / "offline"
        (folder / "images").mkdir(parents=True, exist_ok=True)
        lines = []
        for index, image in enumerate(self.images):
            name = f"images/scene_{index:03d}.png"
            image.save(folder / name)
            texts = [text for text in self.results["choice"]["candidates"][index][:4] if text.strip()]
            lines += [{"image": name, "candidate": text, "references": self.references[index]} for text in texts]
        (folder / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        summary = score_dataset(
            folder / "captions.jsonl", self.scorers["vela"], folder / "scores.parquet", overwrite=True
        )
        table = pyarrow.parquet.read_table(folder / "scores.parquet").to_pandas()
        columns = [*self.scorers["vela"].spec.aspects, "reward"]
        part: dict[str, Any] = {
            "rows": summary.rows,
            "scored": summary.scored,
            "seconds": summary.seconds,
            "images": len(self.images),
        }
        part["command"] = "capreward score captions.jsonl --metric vela --output scores.parquet"
        part["distributions"] = table[columns].describe().loc[["mean", "std", "min", "max"]].to_dict()
        part["first"] = table.head(6)[["image", "candidate", *columns]].to_dict("records")
        self.results["offline"] = part
        shown = Table(title=f"{part['scored']} captions of a file scored in {part['seconds']:.1f} s", **_LOOK)
        shown.add_column("", min_width=26)
        for name in ("mean", "std", "min", "max"):
            shown.add_column(name, justify="right")
        for name, spread in part["distributions"].items():
            shown.add_row(name, *(f"{value:.3f}" for value in spread.values()))
        return shown

    def grpo(self, status: Status) -> Table:
        sizes = self.sizes
        rows = make_dataset(sizes.steps * sizes.prompts, SEED + 1)
        part: dict[str, Any] = {
            "steps": sizes.steps,
            "completions": sizes.prompts * sizes.generations,
            "train_scenes": len(rows),
        }
        part |= {"scenes": len(self.scenes), "curve": [], "means": {}, "differences": {}, "captions": {}}
        self.results["grpo"] = part

        def written(when: str) -> dict[str, list[list[str]]]:
            asked = {"samples": sizes.samples_judged, "max_new_tokens": sizes.max_new_tokens}
            return decode_both_ways(*self.captioner, self.images, when, **asked)

        def measure(systems: dict[str, list[list[str]]], pairs: Sequence[tuple[str, str]] = ()) -> None:
            quality = {name: mean_quality(captions, self.scenes) for name, captions in systems.items()}
            part["means"], part["differences"] = compare_systems(quality, pairs, resamples=sizes.resamples)
            part["captions"] = {
                name: [group[0] for group in captions] for name, captions in systems.items() if "greedy" in name
            }

        before = written("before")
        measure(before)

        def on_log(entry: dict[str, float]) -> None:
            part["curve"].append(entry)
            status.update(f"GRPO step {entry['step']:.0f} of {sizes.steps}, reward {entry['reward']:.3f}")

        asked = {name: getattr(sizes, name) for name in ("prompts", "generations", "learning_rate", "max_new_tokens")}
        asked |= {"max_steps": sizes.steps, "seed": 0, "on_log": on_log}
        model, processor = self.captioner
        make_trainer(model, processor, self.reward, rows, self.output / "grpo", **asked).train()
        status.update("GRPO: captions of held-out scenes ...")
        measure(before | written("after"), [(f"{way}, after", f"{way}, before") for way in ("greedy", "sampled")])
        self.systems["greedy after GRPO"] = part["captions"]["greedy, after"]
        title = f"GRPO with VelaReward, {part['steps']} steps of {part['completions']} captions"
        return _table(f"{title}; {part['scenes']} other scenes", _MEASURES, part["means"], part["differences"])

    def write(self) -> None:
        """Brings report.html and figures.json up to date."""
        examples = []
        if self.systems:
            scorers = {"VELA": self.scorers["vela"], "BEiTScore": self.scorers["beitscore"]}
            examples = make_examples(self.images, self.references, self.scenes, self.systems, scorers)
        write_report(self.output, self.results, examples)


_LOOK: dict[str, Any] = {"title_justify": "left", "box": SIMPLE_HEAD, "collapse_padding": True, "pad_edge": False}
_Rows = Mapping[str, Mapping[str, Interval]]


def _table(title: str, columns: Mapping[str, str], rows: _Rows, differences: _Rows) -> Table:
    """Estimates with half the width of their 95 % intervals; a difference is green or red where its excludes 0."""
    table = Table(title=title, **_LOOK)
    table.add_column("", min_width=26)
    for name in columns.values():
        table.add_column(name, justify="right", no_wrap=True)
    for label, row in rows.items():
        table.add_row(label, *(_cell(row[column], ".2f") for column in columns))
    table.add_section()
    for label, row in differences.items():
        table.add_row(label, *(_cell(row[column], "+.2f", coloured=column != "words") for column in columns))
    return table


def _cell(interval: Interval, form: str, *, coloured: bool = False) -> str:
    text = f"{interval.value:{form}} ±{(interval.high - interval.low) / 2:.2f}"
    if not coloured or not interval.excludes_zero:
        return text
    return f"[bold {'green' if interval.low > 0 else 'red'}]{text}[/]"
