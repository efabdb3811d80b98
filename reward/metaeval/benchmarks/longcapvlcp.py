"""LongCapVLCP's form: long captions beside ones with a single error, mostly beyond what a CLIP reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from reward.images import image_key
from reward.metaeval import pair_data
from reward.metaeval.benchmarks.files import find_file
from reward.metaeval.benchmarks.forms import OVERALL, BenchmarkSpec, CaptionPair
from reward.metaeval.benchmarks.jsonl import is_jsonl, read_lines, read_pairs

if TYPE_CHECKING:
    from datasets import Dataset

__all__ = ["SPECS", "load_longcapvlcp"]

SPECS = (
    BenchmarkSpec(
        name="longcapvlcp",
        title="LongCapVLCP",
        form=CaptionPair,
        loader="reward.metaeval.benchmarks.longcapvlcp:load_longcapvlcp",
        statistic="accuracy",
        ties="wrong",  # the paper gives CLIPScore, for which most of its pairs are equal, an accuracy of 0
        headline=OVERALL,  # its "micro avg."
        files="a .jsonl, .csv or .parquet file with image, correct, incorrect and category a row, a folder with "
        "pairs.jsonl, or one written by Dataset.save_to_disk; or a .jsonl file with category, image, captions and "
        "label a line",
        origin="the authors of BEiTScore; pairs of one's own in this form are made by reward.metaeval.pair_data",
    ),
)


def load_longcapvlcp(path: Path, part: str, images: Path | None) -> Iterator[CaptionPair]:
    """Reads pairs as `reward.metaeval.pair_data.read_pairs` does; the correct caption comes first.

    Raises:
        DataError: files that are missing or not as they should be.
    """
    if is_jsonl(path) and "captions" in next(read_lines(path), ("", {"captions": None}))[1]:
        yield from read_pairs(path, images)
        return
    if path.is_dir() and not (path / "state.json").is_file():
        path = find_file(path, "pairs.jsonl")
    from datasets import Image

    pairs: Dataset = pair_data.read_pairs(path, images=images).cast_column("image", Image(decode=False))
    for row in pairs:
        image = row["image"] if row["image"]["bytes"] is not None else row["image"]["path"]
        yield CaptionPair(
            captions=(row["correct"], row["incorrect"]),
            label=0,
            image=image,
            image_id=image if isinstance(image, str) else image_key(image),
            category=row["category"],
        )
