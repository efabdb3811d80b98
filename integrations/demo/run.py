"""Runs the demo's parts one after another, prints their tables, and keeps the report up to date."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.status import Status

import reward
from integrations.demo.agreement import measure_agreement
from integrations.demo.captioner import load_captioner
from integrations.demo.choosing import measure_choice
from integrations.demo.grpo import GrpoPart, decode_both_ways, measure_change, train_with_grpo
from integrations.demo.quality import make_examples
from integrations.demo.report import write_report
from integrations.demo.results import (
    SEED,
    OfflinePart,
    Results,
    Sizes,
    agreement_table,
    choice_table,
    grpo_table,
    offline_table,
)
from reward import BeitScoreReward, VelaReward, load_scorer
from reward.errors import OutputError
from reward.metrics.base import Scorer
from reward.metrics.vela.scorer import VelaScorer
from reward.scenes import make_dataset
from reward.scoring import score_dataset
from reward.scoring.writers import refuse_address

__all__ = ["run_demo"]


def run_demo(
    output: Path,
    sizes: Sizes | None = None,
    *,
    vela: str | os.PathLike[str] = "embedded",
    beitscore: str | os.PathLike[str] = "embedded",
    captioner: str | os.PathLike[str] = "embedded",
    console: Console | None = None,
) -> Results:
    """Runs all parts; Ctrl-C stops, and what was done so far is in the report.

    Args:
        output: folder for `report.html`, `figures.json` and the scored files; made if absent.
        sizes: how much of everything.
        vela, beitscore: checkpoints of the metrics.
        captioner: checkpoint of the captioner.
        console: where tables go; standard output by default.

    Raises:
        CheckpointError: a checkpoint is missing or unfit.
        OutputError: the folder cannot be written.
    """
    sources = {"vela": os.fspath(vela), "beitscore": os.fspath(beitscore), "captioner": os.fspath(captioner)}
    demo = _Demo(output, sizes or Sizes(), sources, console or Console())
    demo.run()
    return demo.results


class _Demo:
    """One run: the models, the held-out scenes, and the results so far."""

    def __init__(self, output: Path, sizes: Sizes, sources: Mapping[str, str], console: Console) -> None:
        self.output, self.sizes, self.console = output, sizes, console
        self.results = Results(reward.__version__, sources["vela"], sources["beitscore"], sources["captioner"], sizes)
        refuse_address(output)
        try:
            output.mkdir(parents=True, exist_ok=True)
            self.write()
        except OSError as error:
            raise OutputError(f"cannot write to {str(output)!r}: {error.strerror or error}") from error
        self.scorer = VelaScorer.from_pretrained(sources["vela"], device="cpu")
        self.beitscore: dict[str, Scorer] = {"BEiTScore": load_scorer("beitscore", sources["beitscore"], device="cpu")}
        self.reward = VelaReward(sources["vela"], device="cpu")
        self.rewards = {"VELA": self.reward, "BEiTScore": BeitScoreReward(sources["beitscore"], device="cpu")}
        self.model, self.processor = load_captioner(sources["captioner"])
        rows = make_dataset(sizes.scenes, SEED)
        self.images, self.references, self.scenes = list(rows["image"]), list(rows["refs"]), list(rows["scene"])
        self.systems: dict[str, list[str]] = {}  # {system: one caption per scene}, for the examples

    def run(self) -> None:
        """All parts; the one that changes the captioner, and takes longest, comes last."""
        parts: dict[str, Callable[[Status], None]] = {
            "agreement": self.agreement,
            "best of n": self.choice,
            "offline scoring": self.offline,
            "GRPO": self.grpo,
        }
        for name, part in parts.items():
            start = time.perf_counter()
            try:
                with self.console.status(f"{name} ...") as status:
                    part(status)
            except KeyboardInterrupt:
                self.results.stopped = name
            self.results.seconds[name] = time.perf_counter() - start
            self.write()
            if self.results.stopped:
                break

    def agreement(self, status: Status) -> None:
        part = measure_agreement(
            {"VELA": self.scorer},
            self.beitscore,
            samples=self.sizes.samples,
            seed=SEED,
            clip=self.scorer,
            resamples=self.sizes.resamples,
        )
        self.results.agreement = part
        self.console.print(agreement_table(part))

    def choice(self, status: Status) -> None:
        part = measure_choice(
            self.model,
            self.processor,
            self.images,
            self.references,
            self.scenes,
            self.rewards,
            n=self.sizes.n,
            max_new_tokens=self.sizes.max_new_tokens,
            resamples=self.sizes.resamples,
        )
        self.results.choice = part
        self.systems.update({name: texts for name, texts in part.captions.items() if "oracle" not in name})
        self.console.print(choice_table(part))

    def offline(self, status: Status) -> None:
        assert self.results.choice is not None  # its candidates are what is scored
        folder = self.output / "offline"
        captions = [group[:4] for group in self.results.choice.candidates]
        path = _write_captions_file(folder, self.images, self.references, captions)
        self.results.offline = _score_files(path, self.scorer)
        self.console.print(offline_table(self.results.offline))

    def grpo(self, status: Status) -> None:
        sizes = self.sizes
        rows = make_dataset(max(sizes.steps * sizes.prompts, sizes.prompts), SEED + 1)
        part = GrpoPart(sizes.steps, sizes.prompts * sizes.generations, len(rows), len(self.scenes))
        self.results.grpo = part
        decode = partial(
            decode_both_ways,
            self.model,
            self.processor,
            self.images,
            samples=sizes.samples_judged,
            max_new_tokens=sizes.max_new_tokens,
        )
        written = decode("before")
        measure_change(part, written, self.scenes, resamples=sizes.resamples)

        def on_log(entry: dict[str, float]) -> None:
            part.curve.append(entry)
            status.update(f"GRPO step {entry['step']:.0f} of {sizes.steps}, reward {entry['reward']:.3f}")

        train_with_grpo(
            self.model,
            self.processor,
            self.reward,
            rows,
            self.output / "grpo",
            steps=sizes.steps,
            prompts=sizes.prompts,
            generations=sizes.generations,
            learning_rate=sizes.learning_rate,
            max_new_tokens=sizes.max_new_tokens,
            on_log=on_log,
        )
        status.update("GRPO: captions of held-out scenes ...")
        written |= decode("after")
        pairs = [(f"{way}, after", f"{way}, before") for way in ("greedy", "sampled")]
        measure_change(part, written, self.scenes, pairs, resamples=sizes.resamples)
        self.systems["greedy after GRPO"] = part.captions["greedy, after"]
        self.console.print(grpo_table(part))

    def write(self) -> None:
        """Brings report.html and figures.json up to date."""
        examples = []
        if self.results.choice is not None:
            scorers = {"VELA": self.scorer, **self.beitscore}
            examples = make_examples(self.images, self.references, self.scenes, self.systems, scorers)
        write_report(self.output, self.results, examples)


def _write_captions_file(
    folder: Path, images: Sequence[Image.Image], references: Sequence[Sequence[str]], captions: Sequence[Sequence[str]]
) -> Path:
    """Writes `captions.jsonl`, one row a caption, and the images it names, into a folder."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    lines = []
    for index, (image, known, group) in enumerate(zip(images, references, captions, strict=True)):
        name = f"images/scene_{index:03d}.png"
        image.save(folder / name)
        lines += [
            json.dumps({"image": name, "candidate": text, "references": list(known)}) for text in group if text.strip()
        ]
    path = folder / "captions.jsonl"
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def _score_files(captions: Path, scorer: Scorer, *, shown: int = 6) -> OfflinePart:
    """Scores the file into `scores.parquet` beside it."""
    import pyarrow.parquet

    output = captions.with_name("scores.parquet")
    summary = score_dataset(captions, scorer, output, overwrite=True)
    rows = pyarrow.parquet.read_table(output).slice(0, shown).to_pylist()
    command = f"capreward score {captions.name} --metric {scorer.spec.name} --output {output.name}"
    return OfflinePart(captions.name, output.name, command, summary.to_json(), rows)
