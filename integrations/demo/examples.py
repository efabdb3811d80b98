"""Example scenes of the report: picture, captions of each system, and what metrics and the oracle say of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from PIL import Image

from reward import CaptionSample
from reward.metrics.base import Scorer
from reward.scenes import Oracle
from reward.scenes.graph import Fact
from reward.scenes.language import POSITION_PHRASES

__all__ = ["Example", "JudgedCaption", "fact_words", "make_examples"]


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
    oracle, found = Oracle(), []
    rows = zip(images, references, scenes, *systems.values(), strict=True)
    for image, known, scene, *captions in islice(rows, count):
        visible = [text if text.strip() else "(empty)" for text in captions]
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
        found.append(Example(image, judged))
    return found


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
