"""Flickr8k-Expert and Flickr8k-CF: captions of Flickr8k's images, rated by experts and by a crowd."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from reward.errors import DataError
from reward.metaeval.benchmarks.forms import BenchmarkSpec, RatedCaption
from reward.metaeval.benchmarks.jsonl import is_jsonl, read_rated

__all__ = ["SPECS", "load_flickr8k"]

SPECS = (
    BenchmarkSpec(
        name="flickr8k-expert",
        title="Flickr8k-Expert",
        form=RatedCaption,
        loader="reward.metaeval.benchmarks.flickr8k:load_flickr8k",
        statistic="tau-c",
        files="a .jsonl file with image, candidate, references and ratings (three numbers) a line",
        origin="the authors of Flickr8k (Hodosh, Young, Hockenmaier 2013)",
        checked="published",
    ),
)


def load_flickr8k(path: Path, part: str, images: Path | None) -> Iterator[RatedCaption]:
    """Reads the common JSONL form."""
    if not is_jsonl(path):
        raise DataError(f"{path} is no .jsonl file")
    return read_rated(path, images)
