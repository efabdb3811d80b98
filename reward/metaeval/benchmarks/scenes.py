"""The synthetic scenes as benchmarks: captions rated by simulated raters, and pairs with a single error."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reward.errors import DataError
from reward.metaeval.benchmarks.items import BenchmarkSpec, PreferencePair, RatedCaption

__all__ = ["SPECS"]

SEEDS = {"seed 7": 7, "seed 2026": 2026}  # 7 is the demo's; 2026 was kept for final figures
SIZE = 500
PAIRS = 100  # of each category, each of a scene of its own
NAMES = {"desc": "descriptiveness", "rel": "relevance", "flu": "fluency"}


def _load_ratings(path: Path | None, part: str, images: Path | None) -> Iterator[RatedCaption]:
    """500 scenes with one caption each, rated by three raters from 1 to 5 on three aspects."""
    _refuse_files(path, images)
    from reward.scenes import make_rated_sample, render

    for index in range(SIZE):
        sample = make_rated_sample(random.Random(f"capreward scenes {SEEDS[part]} {index}"))  # as `make_dataset` does
        raters = sample.candidate.ratings.raters
        yield RatedCaption(
            candidate=sample.candidate.caption.text,
            ratings={NAMES[aspect]: tuple(map(float, values)) for aspect, values in raters.items()},
            image=render(sample.scene),
            references=tuple(sample.references),
            image_id=str(index),
        )


def _load_pairs(path: Path | None, part: str, images: Path | None) -> Iterator[PreferencePair]:
    """100 pairs of each kind of error. A CLIP reads the short captions whole; long ones differ only after its end."""
    _refuse_files(path, images)
    from reward.scenes import CATEGORIES, make_pair_dataset

    for category in CATEGORIES:
        rows = make_pair_dataset(PAIRS, SEEDS["seed 7"], long=part == "long", categories=[category])
        for index, row in enumerate(rows):
            yield PreferencePair(
                captions=(row["correct"], row["incorrect"]),
                label=0,
                image=row["image"],
                image_id=f"{category} {index}",
                category=category,
            )


def _refuse_files(path: Path | None, images: Path | None) -> None:
    if path is not None or images is not None:
        raise DataError("the scenes are made on the spot: leave out --data and --images (data=, images=)")


_MADE: dict[str, Any] = {"files": "no files", "origin": "made on the spot", "licence": "Apache-2.0", "checked": "own"}
SPECS = (
    BenchmarkSpec(
        name="scenes",
        title="the synthetic scenes",
        form=RatedCaption,
        statistic="tau-c",
        load=_load_ratings,
        judgments="mean",
        judged_by="simulated ratings",
        parts=tuple(SEEDS),
        **_MADE,
    ),
    BenchmarkSpec(
        name="scenes-pairs",
        title="pairs of the synthetic scenes",
        form=PreferencePair,
        statistic="accuracy",
        load=_load_pairs,
        judged_by="known errors",
        parts=("short", "long"),
        **_MADE,
    ),
)
