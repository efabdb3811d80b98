"""LongCapVLCP: long captions beside others with one error, mostly beyond CLIP's context."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from reward.errors import DataError
from reward.metaeval.benchmarks.files import find_file
from reward.metaeval.benchmarks.items import OVERALL, PAIRS, BenchmarkSpec, Entry
from reward.metaeval.benchmarks.jsonl import read_lines

PAIRS_FILE = "pairs.jsonl"


def _load(data: str, part: str, images: Path | None) -> Iterator[Entry]:
    for where, row in read_lines(find_file(data, PAIRS_FILE)):
        captions = [row["correct"], row["incorrect"]]
        if captions[0] == captions[1]:
            raise DataError(f"{where}: correct and incorrect caption are the same")
        yield {"image": row["image"], "captions": captions, "label": 0, "category": row["category"]}


SPECS = (
    BenchmarkSpec(
        name="longcapvlcp",
        title="LongCapVLCP",
        form=PAIRS,
        statistic="accuracy",
        load=_load,
        ties="wrong",  # the paper gives CLIPScore, for which most of its pairs are equal, an accuracy of 0
        headline=OVERALL,  # its "micro avg."
        files="a .jsonl file with image, correct, incorrect and category per line, or a folder with pairs.jsonl; or a "
        ".jsonl file with category, image, captions and label per line",
        origin="the authors of BEiTScore; reward.training.corruptions.benchmark makes your own pairs in this form",
    ),
)
