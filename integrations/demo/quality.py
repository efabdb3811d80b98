"""What the oracle says of captions of scenes: of single captions, of systems with intervals, and of example scenes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from reward import CaptionSample
from reward.metaeval import Interval, mean_difference, mean_interval
from reward.metaeval.report import plain
from reward.metrics.base import Scorer
from reward.samples import is_blank
from reward.scenes import Oracle, Scene
from reward.scenes.graph import Fact
from reward.scenes.language import POSITION_PHRASES
from reward.words import count_words

__all__ = [
    "CLAIMS",
    "LESS_IS_BETTER",
    "MEASURES",
    "Example",
    "JudgedCaption",
    "Quality",
    "check_options",
    "compare_systems",
    "fact_words",
    "judge_captions",
    "make_examples",
    "mean_quality",
    "write_tables",
]

MEASURES = ("f1", "recall", "precision", "faults", "words")
CLAIMS = ("false_actions", "missed_actions", "false_signs", "missed_signs")
LESS_IS_BETTER = ("faults", *CLAIMS)
Quality = dict[str, np.ndarray]  # {measure: (N,)}, one number per scene


def judge_captions(captions: Sequence[str], scenes: Sequence[Scene | str]) -> Quality:
    """What the oracle says of one caption per scene: `MEASURES`, and counts of false and missing facts, `CLAIMS`.

    Example:
        >>> from reward.scenes import Entity
        >>> scene = Scene((Entity("star", "red", "big", "plain", 1, 0),), None, None, "beach")
        >>> judge_captions(["There is a small red star in the top left."], [scene])["precision"]
        array([0.8])
    """
    oracle = Oracle()
    verdicts = [oracle.score(caption, scene) for caption, scene in zip(captions, scenes, strict=True)]
    quality = {name: np.array([getattr(verdict, name) for verdict in verdicts], dtype=float) for name in MEASURES[:-1]}
    for name, is_meant in (("actions", _is_action), ("signs", _is_sign)):
        for what, facts in (("false", "wrong"), ("missed", "missing")):
            counts = [sum(map(is_meant, getattr(verdict, facts))) for verdict in verdicts]
            quality[f"{what}_{name}"] = np.array(counts, dtype=float)
    return quality | {"words": np.array([count_words(caption) for caption in captions], dtype=float)}


def _is_action(fact: Fact) -> bool:
    return fact[0] == "action"


def _is_sign(fact: Fact) -> bool:
    return fact[0] == "text" or fact[:2] == ("position", "sign")


def mean_quality(captions: Sequence[Sequence[str]], scenes: Sequence[Scene | str]) -> Quality:
    """The same for several captions per scene, averaged within the scene."""
    flat = [caption for group in captions for caption in group]
    owners = [scene for group, scene in zip(captions, scenes, strict=True) for _ in group]
    ends = np.cumsum([len(group) for group in captions])[:-1]
    return {
        name: np.array([part.mean() for part in np.split(values, ends)])
        for name, values in judge_captions(flat, owners).items()
    }


def compare_systems(
    systems: Mapping[str, Quality], pairs: Sequence[tuple[str, str]], weights: np.ndarray
) -> tuple[dict[str, dict[str, Interval]], dict[str, dict[str, Interval]]]:
    """Means of each system, and paired differences.

    Args:
        systems: {system: quality on the same N scenes}.
        pairs: systems whose difference, first minus second, is wanted.
        weights: (R, N), see `reward.metaeval.bootstrap_weights`.

    Returns:
        {system: {measure: mean}} and {"first - second": {measure: difference}}.
    """
    means = {
        name: {measure: mean_interval(values, weights) for measure, values in quality.items()}
        for name, quality in systems.items()
    }
    differences = {
        f"{first} - {second}": {
            measure: mean_difference(values, systems[second][measure], weights)
            for measure, values in systems[first].items()
        }
        for first, second in pairs
    }
    return means, differences


@dataclass(frozen=True)
class JudgedCaption:
    """One system's caption of a scene.

    Args:
        system: who wrote it.
        text: the caption.
        scores: {aspect, or name of a metric with a single one: score}.
        f1, recall, precision: the oracle's.
        wrong: false claims, in words.
        missing: number of facts left out.
    """

    system: str
    text: str
    scores: dict[str, float]
    f1: float
    recall: float
    precision: float
    wrong: list[str]
    missing: int


@dataclass(frozen=True)
class Example:
    """A scene with the captions of several systems."""

    image: Image.Image
    captions: list[JudgedCaption]


def make_examples(
    images: Sequence[Image.Image],
    references: Sequence[Sequence[str]],
    scenes: Sequence[str],
    systems: Mapping[str, Sequence[str]],
    scorers: Mapping[str, Scorer],
    *,
    count: int = 6,
) -> list[Example]:
    """Judges the captions of the first `count` scenes; not chosen, so that they show the bad along with the good."""
    oracle, examples = Oracle(), []
    rows = zip(images, references, scenes, *systems.values(), strict=True)
    for image, known, scene, *captions in islice(rows, count):
        visible = ["(empty)" if is_blank(text) else text for text in captions]
        samples = [CaptionSample(text, image=image, references=known) for text in visible]
        columns: dict[str, list[float]] = {}
        for name, scorer in scorers.items():
            table = scorer.score(samples)
            several = len(table.aspects) > 1
            columns |= {aspect if several else name: table.column(aspect).tolist() for aspect in table.aspects}
        judged = []
        for row, (system, text) in enumerate(zip(systems, visible, strict=True)):
            verdict = oracle.score(text, scene)
            scores = {name: column[row] for name, column in columns.items()}
            wrong = sorted(fact_words(fact) for fact in verdict.wrong)
            judged.append(
                JudgedCaption(
                    system, text, scores, verdict.f1, verdict.recall, verdict.precision, wrong, len(verdict.missing)
                )
            )
        examples.append(Example(image, judged))
    return examples


def fact_words(fact: Fact) -> str:
    """A fact of a scene for people.

    Example:
        >>> fact_words(("position", "star", 0)), fact_words(("count", "ring", 2))
        ('star in the top left', '2 x ring')
    """
    kind, *parts = fact
    if kind == "position":
        return f"{parts[0]} in the {POSITION_PHRASES[int(parts[1])][0]}"
    if kind == "count":
        return f"{parts[1]} x {parts[0]}"
    if kind == "text":
        return f"sign {parts[0]}"
    if kind == "background":
        return f"background {parts[0]}"
    if kind in ("size", "pattern", "colour"):
        return f"{parts[1]} {parts[0]}"
    return " ".join(str(part) for part in parts)


def check_options(options: argparse.Namespace, parser: argparse.ArgumentParser, free: Sequence[str]) -> None:
    """Makes the folder `options.output`; refuses one whose pieces were made with other options than the free ones."""
    options.output.mkdir(parents=True, exist_ok=True)
    asked = {name: str(value) for name, value in vars(options).items() if name not in free}
    file = options.output / "options.json"
    if file.is_file():
        earlier = json.loads(file.read_text(encoding="utf-8"))
        changed = [
            f"{name}={asked[name]} (was {earlier.get(name)})" for name in asked if asked[name] != earlier.get(name)
        ]
        if changed:
            parser.error(
                f"{options.output} holds pieces made with other options: {', '.join(changed)}; name another folder"
            )
    file.write_text(json.dumps(asked), encoding="utf-8")


def write_tables(folder: Path, name: str, tables: Sequence[str], figures: Any) -> None:
    """Prints tables of Markdown, and writes them as `<name>.md` and all figures as `<name>.json` into a folder."""
    text = "\n\n".join(tables) + "\n"
    figures = asdict(figures) if is_dataclass(figures) and not isinstance(figures, type) else figures
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    (folder / f"{name}.json").write_text(json.dumps(plain(figures), indent=1), encoding="utf-8")
    print(text)
