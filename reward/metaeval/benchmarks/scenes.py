"""The synthetic scenes as a benchmark: captions rated by three simulated raters, made on the spot."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from reward.errors import DataError
from reward.metaeval.benchmarks.forms import BenchmarkSpec, RatedCaption

__all__ = ["SPECS", "load_scenes"]

SEEDS = {"seed 7": 7, "seed 2026": 2026}  # 7 is the demo's; 2026 was kept for final figures
SIZE = 500
NAMES = {"desc": "descriptiveness", "rel": "relevance", "flu": "fluency"}

SPECS = (
    BenchmarkSpec(
        name="scenes",
        title="the synthetic scenes",
        form=RatedCaption,
        loader="reward.metaeval.benchmarks.scenes:load_scenes",
        statistic="tau-c",
        judgments="mean",
        files="no files",
        origin="made on the spot",
        licence="Apache-2.0",
        parts=tuple(SEEDS),
        checked="own",
    ),
)


def load_scenes(path: Path | None, part: str, images: Path | None) -> Iterator[RatedCaption]:
    """500 scenes with one caption each, rated by three raters from 1 to 5 on three aspects.

    Raises:
        DataError: a path is given, as there is nothing to be read.
    """
    if path is not None or images is not None:
        raise DataError("the scenes are made on the spot: leave out --data and --images (data=, images=)")
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
