"""Runs the demo's parts one after another, prints their main figures, and keeps the report up to date."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet
from rich.console import Console
from rich.status import Status

import reward
from integrations.demo.agreement import measure_agreement
from integrations.demo.grpo import Written, decode_both_ways, make_trainer
from integrations.demo.quality import compare_systems, make_examples, mean_quality, measure_choice
from integrations.demo.report import Headline, headlines, verdict, write_report
from integrations.trl import load_policy
from reward import MetricReward, load_scorer
from reward.errors import OutputError
from reward.scenes import make_dataset
from reward.scoring import score_dataset
from reward.scoring.writers import refuse_address

EMBEDDED = "embedded"
SEED = 7  # of all held-out scenes; no model was trained on scenes of this seed


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

    samples: int = 160
    scenes: int = 32
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
    output: Path, sizes: Sizes | None = None, *, console: Console | None = None, **checkpoints: str
) -> dict[str, Any]:
    """Runs all parts; Ctrl-C stops, and what was done so far is in the report.

    Args:
        output: folder for `report.html`, `figures.json` and the scored files; made if absent.
        sizes: how much of everything.
        console: where the main figures go; standard output by default.
        checkpoints: those of `vela`, `beitscore` and `captioner`; those that ship by default.

    Returns:
        What has been found: the settings; the parts "agreement", "choice", "offline" and "grpo", None where one has not
        run; "seconds", {part: time it took}; and "stopped", the part in which the user stopped the demo, if so.
    """
    demo = _Demo(output, sizes or Sizes(), **checkpoints)
    demo.run(console or Console())
    return demo.results


class _Demo:
    """One run: the models, the held-out scenes, and the results so far."""

    def __init__(
        self, output: Path, sizes: Sizes, *, vela: str = EMBEDDED, beitscore: str = EMBEDDED, captioner: str = EMBEDDED
    ) -> None:
        refuse_address(output)
        self.output, self.sizes = output, sizes
        checkpoints = {"vela": vela, "beitscore": beitscore, "captioner": captioner}
        self.results: dict[str, Any] = {"version": reward.__version__, **checkpoints, "sizes": asdict(sizes)}
        self.results |= dict.fromkeys(("agreement", "choice", "offline", "grpo", "stopped")) | {"seconds": {}}
        self.systems: dict[str, list[str]] = {}  # {system: one caption per scene}, for the examples
        self.examples: list[dict[str, Any]] = []
        try:
            output.mkdir(parents=True, exist_ok=True)
            self.write()
        except OSError as error:
            raise OutputError(f"cannot write to {str(output)!r}: {error.strerror or error}") from error
        self.scorers = {
            "VELA": load_scorer("vela", vela, device="cpu"),
            "BEiTScore": load_scorer("beitscore", beitscore, device="cpu"),
        }
        self.rewards = {name: MetricReward(scorer) for name, scorer in self.scorers.items()}
        self.captioner = load_policy(captioner, dtype="float32")
        rows = make_dataset(sizes.scenes, SEED)
        self.images, self.references, self.scenes = list(rows["image"]), list(rows["refs"]), list(rows["scene"])

    def run(self, console: Console) -> None:
        """All parts; the one that changes the captioner, and takes longest, comes last."""
        parts = {"agreement": self.agreement, "best of n": self.choice, "offline scoring": self.offline}
        parts["GRPO"] = self.grpo
        printed: list[str] = []
        for name, part in parts.items():
            start = time.perf_counter()
            try:
                with console.status(f"{name} ...") as status:
                    part(status)
            except KeyboardInterrupt:
                # Ctrl-C ends the demo, and what was done so far is still written and printed.
                self.results["stopped"] = name
            self.results["seconds"][name] = time.perf_counter() - start
            self.write()
            for headline in headlines(self.results):
                if headline.title not in printed:
                    _print_headline(console, headline)
                    printed.append(headline.title)
            if self.results["stopped"]:
                break

    def agreement(self, status: Status) -> None:
        sizes = self.sizes
        scorers = {name.lower(): scorer for name, scorer in self.scorers.items()}
        self.results["agreement"] = measure_agreement(sizes.samples, SEED, scorers=scorers, resamples=sizes.resamples)

    def choice(self, status: Status) -> None:
        sizes = {name: getattr(self.sizes, name) for name in ("n", "max_new_tokens", "resamples")}
        scenes = (self.images, self.references, self.scenes)
        part = measure_choice(*self.captioner, *scenes, self.rewards, **sizes)
        self.results["choice"] = part
        self.show({name: texts for name, texts in part["captions"].items() if "oracle" not in name})

    def offline(self, status: Status) -> None:
        """Scores a file of some of the candidates."""
        folder = self.output / "offline"
        (folder / "images").mkdir(parents=True, exist_ok=True)
        lines = []
        for index, image in enumerate(self.images):
            name = f"images/scene_{index:03d}.png"
            image.save(folder / name)
            for text in self.results["choice"]["candidates"][index][:4]:
                if text.strip():
                    row = {"image": name, "candidate": text, "references": self.references[index]}
                    lines.append(json.dumps(row) + "\n")
        (folder / "captions.jsonl").write_text("".join(lines), encoding="utf-8")
        scorer, output = self.scorers["VELA"], folder / "scores.parquet"
        summary = score_dataset(folder / "captions.jsonl", scorer, output, overwrite=True)
        scores = pyarrow.parquet.read_table(output).to_pandas()[[*scorer.spec.aspects, "reward"]]
        self.results["offline"] = {
            "rows": summary.rows,
            "scored": summary.scored,
            "seconds": summary.seconds,
            "images": len(self.images),
            "command": "capreward score captions.jsonl --metric vela --output scores.parquet",
            "distributions": scores.describe().loc[["mean", "std", "min", "max"]].to_dict(),
        }

    def grpo(self, status: Status) -> None:
        sizes = self.sizes
        rows = make_dataset(sizes.steps * sizes.prompts, SEED + 1)
        part: dict[str, Any] = {
            "steps": sizes.steps,
            "completions": sizes.prompts * sizes.generations,
            "train_scenes": len(rows),
            "scenes": len(self.scenes),
            "curve": [],
        }
        self.results["grpo"] = part
        decoding = {"samples": sizes.samples_judged, "max_new_tokens": sizes.max_new_tokens}
        captions = decode_both_ways(*self.captioner, self.images, "before", **decoding)
        # What was before is measured now, so that the report has it also if the training is stopped.
        part |= self.judge_systems(captions, [])

        def on_log(entry: dict[str, float]) -> None:
            part["curve"].append(entry)
            status.update(f"GRPO step {entry['step']:.0f} of {sizes.steps}, reward {entry['reward']:.3f}")

        trainer = make_trainer(
            *self.captioner,
            self.rewards["VELA"],
            rows,
            self.output / "grpo",
            prompts=sizes.prompts,
            generations=sizes.generations,
            learning_rate=sizes.learning_rate,
            max_new_tokens=sizes.max_new_tokens,
            max_steps=sizes.steps,
            seed=0,
            on_log=on_log,
        )
        trainer.train()
        status.update("GRPO: captions of held-out scenes ...")
        captions |= decode_both_ways(*self.captioner, self.images, "after", **decoding)
        part |= self.judge_systems(captions, [(f"{way}, after", f"{way}, before") for way in ("greedy", "sampled")])
        self.show({"greedy after GRPO": part["captions"]["greedy, after"]})

    def judge_systems(self, systems: Written, pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
        """Means of the systems, differences of the pairs, and the greedy captions."""
        quality = {name: mean_quality(captions, self.scenes) for name, captions in systems.items()}
        means, differences = compare_systems(quality, pairs, resamples=self.sizes.resamples)
        greedy = {}
        for name, captions in systems.items():
            if name.startswith("greedy"):
                greedy[name] = [group[0] for group in captions]
        return {"means": means, "differences": differences, "captions": greedy}

    def show(self, systems: dict[str, list[str]]) -> None:
        """Adds captions to the examples."""
        self.systems |= systems
        self.examples = make_examples(self.images, self.references, self.scenes, self.systems, self.scorers)

    def write(self) -> None:
        """Brings report.html and figures.json up to date."""
        write_report(self.output, self.results, self.examples)


def _print_headline(console: Console, headline: Headline) -> None:
    change = f"{headline.before} -> {headline.after}" if headline.before else headline.after
    style = None
    if headline.difference is not None:
        word, kind = verdict(headline.difference)
        low, high = f"{headline.difference.low:.2f}", f"{headline.difference.high:.2f}"
        change += f", {headline.difference.value:+.2f} [{low}, {high}] {word}"
        style = {"up": "green", "down": "red"}.get(kind)
    console.print(f"{headline.title}: {change}", style=style, markup=False)
    console.print(f"  {headline.text}", markup=False)
