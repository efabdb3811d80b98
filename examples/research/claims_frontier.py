"""The metric `claims` on drawings: its agreement with the oracle, and what its two weights do in GRPO.

    python -m examples.research.claims_frontier --output runs/claims

The judge is scripted: it answers as the oracle reads caption and drawing, and errs in a share of its answers. So the
metric is tested, and no judge. For the training the drawings are blurred, so that the captioner cannot be sure of all
it sees, and has to choose between facts that are left out and facts that are invented.

Writes agreement.csv and frontier.csv. A weighting whose captions are there is not trained again.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import shlex
import sys
from collections.abc import Sequence
from datetime import date
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageFilter

from integrations.demo.grpo import decode_both_ways, make_trainer
from integrations.demo.quality import judge_captions, mean_quality
from integrations.trl import load_policy
from reward import MetricReward, load_scorer
from reward.data.images import load_image
from reward.judges import Question, ScriptedJudge
from reward.metaeval import bootstrap_weights, kendall_tau, mean_interval
from reward.scenes import Oracle, Scene, make_dataset
from reward.scenes.graph import Fact

if TYPE_CHECKING:
    from datasets import Dataset

WEIGHTS = {  # of precision and coverage
    "precision alone": (1.0, 0.0),
    ".8 precision + .2 coverage": (0.8, 0.2),
    ".5 precision + .5 coverage": (0.5, 0.5),
    ".2 precision + .8 coverage": (0.2, 0.8),
    "coverage alone": (0.0, 1.0),
}
MEASURES = ("precision", "recall", "f1", "faults", "words")
_SURE = 0.95  # probability of the judge's answers


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--captions", type=int, default=500, help="rated captions, 0 for none; default: %(default)s")
    parser.add_argument("--errs", type=float, default=0.1, help="share of wrong answers; default: %(default)s")
    parser.add_argument("--steps", type=int, default=80, help="0 trains nothing; default: %(default)s")
    parser.add_argument("--lr", type=float, default=3e-4, help="learning rate; default: %(default)s")
    parser.add_argument("--blur", type=float, default=2.0, help="radius in pixels of 96; default: %(default)s")
    parser.add_argument("--scenes", type=int, default=200, help="held-out scenes; default: %(default)s")
    parser.add_argument("--scene-seed", type=int, default=6464, help="of the scenes; default: %(default)s")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of the trainings; default: 0")
    parser.add_argument("--max-new-tokens", type=int, default=90, help="default: %(default)s")
    parser.add_argument("--output", type=Path, required=True, help="folder of all that is written")
    options = parser.parse_args(argv)
    options.output.mkdir(parents=True, exist_ok=True)
    words = sys.argv[1:] if argv is None else argv
    command = shlex.join(["python", "-m", "examples.research.claims_frontier", *words])
    title = f"# {date.today():%d %B %Y} \N{MIDDLE DOT} {command}"
    if options.captions:
        rated = make_dataset(options.captions, options.scene_seed)
        write_table(options.output / "agreement.csv", title, agreement(rated))
    rows: list[dict[str, Any]] = []
    for name in ("untrained", *WEIGHTS) if options.steps else ():
        rows += frontier(name, options)
        write_table(options.output / "frontier.csv", title, rows)


def make_judge(images: Sequence[Image.Image], scenes: Sequence[str], errs: float) -> ScriptedJudge:
    """A judge that knows the scene of each image, and errs in a share of its answers, always in the same ones.

    Asked for a caption's claims, it lists the facts that the oracle reads, as JSON; any other text is a sentence. A
    statement is right if all of its facts are.
    """
    scene_of = {image.tobytes(): Scene.from_json(scene) for image, scene in zip(images, scenes, strict=True)}

    def distribution(question: Question) -> dict[str, float]:
        *captions, statement = quoted_texts(question.text)
        image = b""
        facts = facts_of(statement)
        if captions:
            is_right = facts <= facts_of(captions[0])
        else:
            image = load_image(question.image).tobytes()
            scene = scene_of[image]
            is_right = all(scene.is_true(fact) for fact in facts)
        # The same sentence is misjudged of some drawings and not of others, so that a policy cannot learn the errors.
        draw = hashlib.sha256(f"{question.text}{is_right}".encode() + image).digest()
        if int.from_bytes(draw[:4], "big") / 2**32 < errs:
            is_right = not is_right
        # A sentence that says nothing of the drawing is a claim that nobody can see.
        yes = _SURE if is_right and facts else 1 - _SURE
        return {"Yes": yes, "No": 1 - yes}

    def answer(question: Question) -> str:
        (caption,) = quoted_texts(question.text)
        return "\n".join(f"- {json.dumps(fact)}" for fact in sorted(facts_of(caption), key=str)) or "none"

    return ScriptedJudge(answer, distribution, name="oracle")


def quoted_texts(question: str) -> list[str]:
    """The texts that a question quotes, in their order."""
    texts = []
    for is_quoted, lines in groupby(question.splitlines(), lambda line: line.startswith("> ")):
        if is_quoted:
            texts.append("\n".join(line.removeprefix("> ") for line in lines))
    return texts


@lru_cache(maxsize=100_000)
def facts_of(text: str) -> frozenset[Fact]:
    """The facts that a text states: one as JSON, or those that the oracle reads."""
    if text.startswith("["):
        return frozenset([tuple(json.loads(text))])
    return Oracle().read(text).claims


def agreement(rows: Dataset) -> list[dict[str, Any]]:
    """How far `claims` agrees with the oracle on rated captions: means, differences, Kendall's tau-b."""
    quality = judge_captions(rows["cand"], rows["scene"])
    facts = [[json.dumps(fact) for fact in Scene.from_json(scene).facts()] for scene in rows["scene"]]
    data = rows.select_columns(["image", "refs", "cand"]).add_column("facts", facts)
    images = list(rows["image"])
    settings: dict[str, dict[str, Any]] = {
        "sentences; those of references": {},
        "the judge's list; a column": {"split": "judge", "column": "facts"},
    }
    table = []
    for name, setting in settings.items():
        for errs in (0.0, 0.1, 0.2):
            scorer = load_scorer("claims", make_judge(images, rows["scene"], errs), **setting)
            scores = scorer.score(data)
            for aspect, measure in (("precision", "precision"), ("coverage", "recall")):
                values = scores.column(aspect)
                row = {"claims; facts": name, "errs": errs, "aspect": aspect, "mean": values.mean()}
                row |= {"oracle": quality[measure].mean(), "difference": np.abs(values - quality[measure]).mean()}
                table.append(row | {"tau_b": kendall_tau(values, quality[measure], variant="b")})
                print(table[-1], flush=True)
    return table


def frontier(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The oracle's verdict on captions after GRPO with a weighting, or before it, greedy and sampled."""
    rows = blurred(options.scenes, options.scene_seed, options.blur)
    weights = bootstrap_weights(len(rows))
    seeds = options.seeds if name in WEIGHTS else [0]
    written = [captions_of(name, seed, rows, options) for seed in seeds]
    table = []
    for decoding in ("greedy", "sampled"):
        quality = [mean_quality(captions[decoding], rows["scene"]) for captions in written]
        row: dict[str, Any] = {"reward": name, "decoding": decoding}
        for measure in MEASURES:
            # An interval is over scenes, each with the mean of the seeds.
            interval = mean_interval(np.mean([values[measure] for values in quality], axis=0), weights)
            row |= {measure: interval.value, f"{measure}_low": interval.low, f"{measure}_high": interval.high}
        table.append(row)
        print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    return table


def captions_of(name: str, seed: int, rows: Dataset, options: argparse.Namespace) -> dict[str, list[list[str]]]:
    """What the captioner writes of each scene after a training, each way of decoding; read if it is there."""
    file = options.output / f"{name.replace(' ', '_')}_{seed}.json"
    if file.is_file():
        return dict(json.loads(file.read_text(encoding="utf-8")))
    model, processor = load_policy("embedded")
    if name in WEIGHTS:
        train_rows = blurred(options.steps * 8, options.scene_seed + 1 + seed, options.blur)
        judge = make_judge(list(train_rows["image"]), train_rows["scene"], options.errs)
        weights = dict(zip(("precision", "coverage"), WEIGHTS[name], strict=True))
        reward = MetricReward("claims", judge, weights=weights)
        trainer = make_trainer(
            model,
            processor,
            reward,
            train_rows,
            options.output / "trainer",
            max_new_tokens=options.max_new_tokens,
            on_log=lambda entry: print(name, json.dumps(entry), flush=True),
            max_steps=options.steps,
            learning_rate=options.lr,
            seed=seed,
        )
        trainer.train()
        model.eval()
    sizes = {"samples": 2, "max_new_tokens": options.max_new_tokens}
    written = decode_both_ways(model, processor, list(rows["image"]), name, **sizes)
    captions = {decoding.partition(",")[0]: groups for decoding, groups in written.items()}
    file.write_text(json.dumps(captions), encoding="utf-8")
    return captions


def blurred(count: int, seed: int, radius: float) -> Dataset:
    """Scenes with blurred drawings."""
    rows = make_dataset(count, seed)
    return rows.map(lambda row: {"image": row["image"].filter(ImageFilter.GaussianBlur(radius))})


def write_table(file: Path, title: str, rows: Sequence[dict[str, Any]]) -> None:
    """Writes rows as CSV below a first line with date and command."""
    with file.open("w", encoding="utf-8", newline="") as stream:
        stream.write(f"{title}\n")
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({key: f"{value:.3f}" if isinstance(value, float) else value for key, value in row.items()})


if __name__ == "__main__":
    main()
