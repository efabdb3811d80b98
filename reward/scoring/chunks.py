"""Scores rows chunk by chunk: what every way to score a data set has in common, in whatever process it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from reward.metrics.base import Scorer
from reward.scoring.columns import RowTask
from reward.scoring.prefetch import ImageReader, prefetch
from reward.scoring.results import RowResult, score_chunk
from reward.scoring.several import Several, reads_images

__all__ = ["Outcome", "cache_counts", "scored_chunks"]


class Outcome(NamedTuple):
    """What became of a chunk: results in the order of the rows, seconds, images decoded, use of the cache."""

    results: list[RowResult]
    seconds: float
    images_decoded: int
    cache: dict[str, list[int]]


def cache_counts(scorer: Scorer | Several, *, since: Mapping[str, Sequence[int]] | None = None) -> dict[str, list[int]]:
    """{what is cached: [entries found, entries computed]} of a scorer.

    Args:
        scorer: any.
        since: earlier counts, which are taken off; None counts from its loading.
    """
    counts = {}
    for kind, section in getattr(scorer, "caches", {}).items():
        hits, misses = (since or {}).get(kind, (0, 0))
        counts[kind] = [section.hits - hits, section.misses - misses]
    return counts


def scored_chunks(
    tasks: Iterator[RowTask],
    scorer: Scorer | Several,
    reader: ImageReader,
    row_limit: Callable[[], int],
    *,
    batch_size: int | None,
) -> Iterator[tuple[list[RowTask], Outcome]]:
    """Rows and what became of them, chunk by chunk; the images of the next chunk are decoded meanwhile.

    Args:
        tasks: rows; consumed in another thread.
        scorer: scores them; of several, each scores all, with the images decoded once.
        reader: decodes the images.
        row_limit: gives the number of rows of the next chunk.
        batch_size: passed to the scorer.
    """
    if not reads_images(scorer):  # none is opened
        tasks = (replace(task, image=None) for task in tasks)
    decoded, counts = 0, cache_counts(scorer)
    for chunk in prefetch(tasks, reader, row_limit):
        start = time.perf_counter()
        results = score_chunk(chunk, scorer, batch_size)
        seconds, more = time.perf_counter() - start, reader.decoded - decoded
        yield chunk, Outcome(results, seconds, more, cache_counts(scorer, since=counts))
        decoded, counts = decoded + more, cache_counts(scorer)
