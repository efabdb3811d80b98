"""Scores a chunk of rows: a caption that is refused does not keep the others from being scored."""

from __future__ import annotations

from collections.abc import Sequence

from reward.errors import InvalidSampleError
from reward.metrics.base import Scorer
from reward.samples import CaptionSample
from reward.scoring.columns import RowTask
from reward.scoring.results import CaptionResult, RowResult

__all__ = ["score_chunk"]


def score_chunk(chunk: Sequence[RowTask], scorer: Scorer, batch_size: int | None) -> list[RowResult]:
    """Results of some rows, in their order."""
    samples: list[CaptionSample] = []
    places: list[CaptionResult] = []  # for each sample, the place of its result
    results: list[RowResult] = []
    for task in chunk:
        if task.problem is not None:
            results.append({"kind": task.problem[0], "message": task.problem[1]})
            continue
        row: list[CaptionResult] = []
        results.append(row)
        for candidate in task.candidates:
            try:
                samples.append(CaptionSample(candidate, task.image, task.references))
                row.append([])
                places.append(row[-1])
            except InvalidSampleError as error:
                row.append([None, False, "candidate", str(error)])
    if samples:
        table = scorer.score(samples, batch_size=batch_size)
        if len(table) != len(samples):
            raise ValueError(f"scorer {scorer.spec.name!r} gave {len(table)} results for {len(samples)} samples")
        assert table.truncated is not None  # ScoreTable fills it in
        for position, (scores, cut, result) in enumerate(
            zip(table.scores.tolist(), table.truncated.tolist(), places, strict=True)
        ):
            finite = [score if abs(score) < float("inf") else None for score in scores]  # False for NaN, too
            result.extend([finite, cut])
            if None in finite or position in table.errors:
                result.extend(["metric", table.errors.get(position, "the metric gave no finite score")])
    return results
