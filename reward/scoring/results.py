"""Results of rows: scored in chunks, kept in the journal, and turned into the columns of the output."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from reward.errors import DataError, InvalidSampleError
from reward.metrics.base import MetricSpec, Scorer
from reward.samples import CaptionSample, ScoreTable
from reward.scoring.columns import ColumnPlan, RowTask, listed
from reward.scoring.summary import SummaryBuilder

__all__ = [
    "CaptionResult",
    "RankColumns",
    "RowRankColumns",
    "RowResult",
    "ScoreColumns",
    "score_chunk",
    "score_samples",
]

# [scores or null, truncated], then [kind, message] of an error: what the journal holds of one caption.
CaptionResult: TypeAlias = "list[Any]"
# One result a caption, or {"kind": ..., "message": ...} when nothing of the row could be scored.
RowResult: TypeAlias = "list[CaptionResult] | dict[str, str]"


def score_chunk(chunk: Sequence[RowTask], scorer: Scorer, batch_size: int | None) -> list[RowResult]:
    """Results of some rows, in their order. A caption that is refused does not keep the others from being scored."""
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
                samples.append(CaptionSample(candidate, task.image, task.references, **task.context))
                row.append([])
                places.append(row[-1])
            except InvalidSampleError as error:
                row.append([None, False, "candidate", str(error)])
    if samples:
        scored_samples = score_samples(samples, scorer, batch_size, texts=scorer.spec.texts)
        for result, scored in zip(places, scored_samples, strict=True):
            result.extend(scored)
    return results


def score_samples(
    samples: Sequence[CaptionSample], scorer: Scorer, batch_size: int | None, texts: Sequence[str] = ()
) -> list[CaptionResult]:
    """The result of each sample; a score that is not finite is null. Texts of the table follow the scores."""
    table = scorer.score(samples, batch_size=batch_size)
    if len(table) != len(samples):
        raise ValueError(f"scorer {scorer.spec.name!r} gave {len(table)} results for {len(samples)} samples")
    assert table.truncated is not None  # ScoreTable fills it in
    results: list[CaptionResult] = []
    for position, (scores, cut) in enumerate(zip(table.scores.tolist(), table.truncated.tolist(), strict=True)):
        finite = [score if abs(score) < float("inf") else None for score in scores]  # False for NaN, too
        results.append([finite + [table.texts[name][position] for name in texts], cut])
        if None in finite or position in table.errors:
            results[-1] += ["metric", table.errors.get(position, "the metric gave no finite score")]
    return results


class ScoreColumns:
    """Adds one column an aspect, the reward, `truncated` and `error` to the rows.

    Args:
        spec: the metric.
        weights: aspect weights of the reward.
        prefix: put before the name of every added column.
        columns: the columns of the input, with which the added ones must not collide.
    """

    def __init__(
        self, spec: MetricSpec, weights: Mapping[str, float] | None, prefix: str, columns: Sequence[str]
    ) -> None:
        self.spec, self.weights, self.prefix = spec, weights, prefix
        self.names = [prefix + name for name in (*spec.aspects, *spec.texts, "reward", "truncated", "error")]
        _refuse_collisions(self.names, columns)

    def schema(self) -> dict[str, Any]:
        """{column: Arrow type} of the added columns."""
        import pyarrow as pa

        texts = [pa.string()] * len(self.spec.texts)
        types = [*[pa.float64()] * len(self.spec.aspects), *texts, pa.float64(), pa.bool_(), pa.string()]
        return dict(zip(self.names[: len(types)], types, strict=True))

    def build(self, rows: Sequence[Any], results: Sequence[RowResult], summary: SummaryBuilder) -> dict[str, list[Any]]:
        """The added columns of some rows, each a list as long as `results`; counts them in `summary`."""
        flat: list[CaptionResult] = []
        for row, result in enumerate(results, start=summary.rows):
            flat.append([None, False, result["kind"], result["message"]] if isinstance(result, dict) else result[0])
            if len(flat[-1]) > 2:
                summary.add_error(flat[-1][2], flat[-1][3], row)
        scores, rewards = _numbers(flat, self.spec, self.weights)
        _count(summary, self.spec, len(results), flat, scores, rewards)
        values: list[list[Any]] = [_nullable(column) for column in scores.T]
        for place in range(len(self.spec.aspects), len(self.spec.aspects) + len(self.spec.texts)):
            values.append([None if result[0] is None else result[0][place] for result in flat])
        values += [_nullable(rewards), [result[1] for result in flat], [_message(result) for result in flat]]
        return dict(zip(self.names[: len(values)], values, strict=True))


class RowRankColumns(ScoreColumns):
    """Adds to the columns of `ScoreColumns` the rank of each row's caption among the rows of its group, from 1.

    Ties keep the order of the input; a caption without a reward has no rank.

    Args: as for ScoreColumns.

    Attributes:
        groups: number of groups.
    """

    def __init__(
        self, spec: MetricSpec, weights: Mapping[str, float] | None, prefix: str, columns: Sequence[str]
    ) -> None:
        super().__init__(spec, weights, prefix, columns)
        self.names.append(prefix + "rank")
        _refuse_collisions(self.names, columns)
        self.groups = 0
        self._ranks: list[int | None] = []

    def schema(self) -> dict[str, Any]:
        """{column: Arrow type} of the added columns."""
        import pyarrow as pa

        return {**super().schema(), self.names[-1]: pa.int64()}

    def rank(self, rows: Iterable[tuple[str | None, RowResult]]) -> None:
        """Ranks all rows, given as (group, result) in their order; `build` needs it."""
        numbers: dict[str | None, int] = {None: 0}
        groups, rewards = array("q"), array("d")
        for group, result in rows:
            scores = [[None]] if isinstance(result, dict) else result
            groups.append(numbers.setdefault(group, len(numbers)))
            rewards.append(_numbers(scores, self.spec, self.weights)[1][0])
        self.groups = len(numbers) - 1
        order = np.lexsort((-np.array(rewards), np.array(groups)))  # stable; NaN comes last in its group
        place, last = 0, None
        self._ranks = [None] * len(order)
        for row in order.tolist():
            place = place + 1 if groups[row] == last else 1
            last = groups[row]
            if rewards[row] == rewards[row] and last:
                self._ranks[row] = place

    def build(self, rows: Sequence[Any], results: Sequence[RowResult], summary: SummaryBuilder) -> dict[str, list[Any]]:
        """The added columns of some rows, each a list as long as `results`; counts them in `summary`."""
        first = summary.rows
        return {**super().build(rows, results, summary), self.names[-1]: self._ranks[first : first + len(results)]}


class RankColumns:
    """Puts the candidates of each row in order, best first, and adds the best, the order and the scores.

    Ties keep the order of the input, candidates without a reward come last.

    Args: as for ScoreColumns; `plan` names the column of candidates, which is replaced; `is_csv` if it is JSON text.
    """

    def __init__(
        self,
        spec: MetricSpec,
        weights: Mapping[str, float] | None,
        prefix: str,
        columns: Sequence[str],
        plan: ColumnPlan,
        *,
        is_csv: bool = False,
    ) -> None:
        self.spec, self.weights, self.plan, self.is_csv = spec, weights, plan, is_csv
        self.names = [prefix + name for name in ("best", "order", "rewards", *spec.aspects, "truncated", "error")]
        _refuse_collisions(self.names, columns)

    def schema(self) -> dict[str, Any]:
        """{column: Arrow type} of the added and replaced columns."""
        import pyarrow as pa

        numbers = [pa.list_(pa.float64())] * (len(self.spec.aspects) + 1)
        types = [pa.string(), pa.list_(pa.int64()), *numbers, pa.list_(pa.bool_()), pa.string()]
        return {self.plan.caption: pa.list_(pa.string()), **dict(zip(self.names, types, strict=True))}

    def build(self, rows: Sequence[Any], results: Sequence[RowResult], summary: SummaryBuilder) -> dict[str, list[Any]]:
        """The added and replaced columns of some rows; `rows` must hold the column of candidates."""
        built: dict[str, list[Any]] = {name: [] for name in (self.plan.caption, *self.names)}
        for number, (row, result) in enumerate(zip(rows, results, strict=True), start=summary.rows):
            if isinstance(result, dict):
                summary.add_error(result["kind"], result["message"], number)
                blank: list[Any] = [None] * (len(self.names) - 1)
                for name, value in zip(built, [None, *blank, result["message"]], strict=True):
                    built[name].append(value)
                continue
            for caption in result:
                if len(caption) > 2:
                    summary.add_error(caption[2], caption[3], number)
            scores, rewards = _numbers(result, self.spec, self.weights)
            _count(summary, self.spec, 0, result, scores, rewards)
            order = np.argsort(np.where(np.isnan(rewards), np.inf, -rewards), kind="stable").tolist()
            given = listed(row[self.plan.caption], self.is_csv)
            candidates = [_text(given[position]) for position in order]
            problems = [f"candidate {place + 1}: {item[3]}" for place, item in enumerate(result) if len(item) > 2]
            values = [
                candidates,
                candidates[0] if np.isfinite(rewards[order[0]]) else None,
                order,
                _nullable(rewards[order]),
                *(_nullable(column[order]) for column in scores.T),
                [bool(result[position][1]) for position in order],
                "; ".join(problems) or None,
            ]
            for name, value in zip(built, values, strict=True):
                built[name].append(value)
        summary.rows += len(results)
        return built


def _refuse_collisions(added: Sequence[str], columns: Sequence[str]) -> None:
    taken = [name for name in added if name in columns]
    if taken:
        raise DataError(
            f"the input has a column {taken[0]!r} already, which the output would have too; "
            "give the new columns a prefix with --prefix, such as --prefix new_"
        )


def _numbers(
    results: Sequence[CaptionResult], spec: MetricSpec, weights: Mapping[str, float] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Scores (N, A) and rewards (N,) with NaN for null."""
    nothing = [None] * len(spec.aspects)
    rows = [nothing if result[0] is None else result[0][: len(nothing)] for result in results]
    scores = np.array(rows, dtype=np.float64).reshape(len(results), len(spec.aspects))
    chosen = spec.default_weights if weights is None else weights
    return scores, ScoreTable(scores, spec.aspects, aliases=spec.aliases).combine(chosen)


def _count(
    summary: SummaryBuilder,
    spec: MetricSpec,
    rows: int,
    results: Sequence[CaptionResult],
    scores: np.ndarray,
    rewards: np.ndarray,
) -> None:
    summary.rows += rows
    summary.captions += len(results)
    summary.scored += int(np.isfinite(rewards).sum())
    summary.truncated += sum(bool(result[1]) for result in results)
    for aspect, column in zip(spec.aspects, scores.T, strict=True):
        summary.add_numbers(aspect, column)
    summary.add_numbers("reward", rewards)


def _nullable(values: np.ndarray) -> list[float | None]:
    return [value if np.isfinite(value) else None for value in values.tolist()]


def _message(result: CaptionResult) -> str | None:
    return result[3] if len(result) > 2 else None


def _text(candidate: Any) -> str | None:
    """A candidate that is not a string has an error; it becomes text, so that the column has one type."""
    return candidate if candidate is None or isinstance(candidate, str) else repr(candidate)
