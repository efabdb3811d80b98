"""VICR (Validated Image Caption Rating): captions of images of COCO and Flickr8k, each rated by several people."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from reward.errors import DataError
from reward.metaeval.benchmarks.files import find_file, take
from reward.metaeval.benchmarks.forms import OVERALL, BenchmarkSpec, RatedCaption
from reward.metaeval.benchmarks.jsonl import is_jsonl, read_rated
from reward.metaeval.benchmarks.tables import Row, image_folder, read_file

__all__ = ["SPECS", "load_vicr"]

SPECS = (
    BenchmarkSpec(
        name="vicr",
        title="VICR",
        form=RatedCaption,
        loader="reward.metaeval.benchmarks.vicr:load_vicr",
        statistic="tau-c",
        files="vicr.csv with the columns image (its address or file name), caption, subset (train, val or test; a file "
        "without it is one part), ratings and rating_2, rating_3 ... (one rater each, empty where there are fewer); or "
        "a .jsonl file with image, candidate, references and ratings a line; and a folder with the images of COCO "
        "val2014 and Flickr8k (images beside it, or --images, images=)",
        origin="the authors (Narins, Scott, Gautam, Kulkarni and others, NeurIPS Datasets and Benchmarks 2023); the "
        "layout of these columns is that of a sample in hil-se/comparative_image_caption, data/VICR_Sample250.csv",
        parts=("test", "val", "train"),
    ),
)


def load_vicr(path: Path, part: str, images: Path | None) -> Iterator[RatedCaption]:
    """Reads one part; people rated from 1 to 5, four or five of them a caption. There are no references.

    Raises:
        DataError: files that are missing or not as they should be.
    """
    if is_jsonl(path):
        yield from read_rated(path, images)
        return
    for row in read_file(find_file(path, "vicr.csv", "VICR.csv")):
        missing = [name for name in ("image", "caption", "ratings") if name not in row.values]
        if missing:
            raise DataError(f"{row.where} has no column {missing[0]}; it has: {', '.join(row.values)}")
        if row.values.get("subset", part) != part:
            continue
        name = str(row.values["image"]).replace("\\", "/").rpartition("/")[2]
        if not name:
            raise DataError(f"{row.where}: image must name a file, got {row.values['image']!r:.60}")
        if ratings := _ratings(row):
            root = image_folder(row.folder, images, *(() if images else ("images",)))
            caption = take(row.values, "caption", str, row.where)
            yield RatedCaption(caption, {OVERALL: ratings}, image=root / name, image_id=name)


def _ratings(row: Row) -> tuple[float, ...]:
    found = []
    for name, given in row.values.items():
        if (name == "ratings" or name.startswith("rating_")) and given is not None and str(given).strip():
            try:
                value = math.nan if isinstance(given, bool) else float(given)
            except (TypeError, ValueError):
                value = math.nan
            if not 1 <= value <= 5:
                raise DataError(f"{row.where}: {name} must be a rating from 1 to 5, got {given!r:.40}")
            found.append(value)
    return tuple(found)
