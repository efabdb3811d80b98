"""LongCapVLCP: long captions beside others with one error, mostly beyond CLIP's context."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from reward.errors import DataError
from reward.metaeval.benchmarks.files import find_file
from reward.metaeval.benchmarks.items import Entry
from reward.metaeval.benchmarks.jsonl import read_lines

PAIRS_FILE = "pairs.jsonl"


def load(data: str, part: str, images: Path | None) -> Iterator[Entry]:
    """The correct caption comes first."""
    for where, row in read_lines(find_file(data, PAIRS_FILE)):
        captions = [row["correct"], row["incorrect"]]
        if captions[0] == captions[1]:
            raise DataError(f"{where}: correct and incorrect caption are the same")
        yield {"image": row["image"], "captions": captions, "label": 0, "category": row["category"]}
