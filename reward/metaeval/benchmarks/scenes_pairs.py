"""The synthetic scenes as pairs: true captions beside ones with a single error, in LongCapVLCP's form."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from reward.errors import DataError
from reward.metaeval.benchmarks.forms import BenchmarkSpec, CaptionPair

__all__ = ["SPECS", "load_scenes_pairs"]

SEED = 7  # of held-out scenes, the same as the benchmark of ratings has
SIZE = 100  # pairs of each category, each of a scene of its own

SPECS = (
    BenchmarkSpec(
        name="scenes-pairs",
        title="pairs of the synthetic scenes",
        form=CaptionPair,
        loader="reward.metaeval.benchmarks.scenes_pairs:load_scenes_pairs",
        statistic="accuracy",
        files="no files",
        origin="made on the spot",
        licence="Apache-2.0",
        parts=("short", "long"),
        checked="own",
    ),
)


def load_scenes_pairs(path: Path | None, part: str, images: Path | None) -> Iterator[CaptionPair]:
    """100 pairs of each kind of error; short captions are within a CLIP's reach, long ones are alike up to its end.

    Raises:
        DataError: a path is given, as there is nothing to be read.
    """
    if path is not None or images is not None:
        raise DataError("the scenes are made on the spot: leave out --data and --images (data=, images=)")
    from reward.scenes import CATEGORIES, make_pair_dataset

    for category in CATEGORIES:
        pairs = make_pair_dataset(SIZE, SEED, long=part == "long", categories=[category])
        for index, row in enumerate(pairs):
            yield CaptionPair(
                captions=(row["correct"], row["incorrect"]),
                label=0,
                image=row["image"],
                image_id=f"{category} {index}",
                category=category,
            )
