"""Results of rows: scored in chunks, kept in the journal, and turned into the columns of the output."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from reward.errors import DataError, InvalidSampleError
from reward.metrics.base import MetricSpec, Scorer
from reward.samples import CaptionSample
from reward.score_table import weighted_mean
from reward.scoring.columns import ColumnPlan, RowTask
from reward.scoring.several import Several, SeveralSpec, reads_images
from reward.scoring.sources import BadRow
from reward.scoring.summary import SummaryBuilder
from reward.values import listed, values_of

__all__ = [
    "CaptionResult",
    "RankColumns",
    "RowRankColumns",
    "RowResult",
    "ScoreColumns",
    "score_chunk",
    "score_samples",
]

# [scores or null, truncated], then [kind, message] of an error: what the journal holds of one caption. After the scores
# come the texts of the metric. Of several metrics, `truncated` names those that cut a text, and each that failed adds
# [its name, message].
CaptionResult: TypeAlias = "list[Any]"
# One result a caption, or {"kind": ..., "message": ...} when nothing of the row could be scored.
RowResult: TypeAlias = "list[CaptionResult] | dict[str, str]"


def score_chunk(chunk: Sequence[RowTask], scorer: Scorer | Several, batch_size: int | None) -> list[RowResult]:
    """Results of some rows, in their order. A caption that is refused does not keep the others from being scored."""
    if not isinstance(scorer, Several):
        return _score_chunk(chunk, scorer, batch_size)
    parts: list[Any] = scorer.parts  # type: ignore[assignment]  # loaded
    each = [_score_chunk(chunk, part, batch_size) for part in parts]
    return [_side_by_side(scorer.spec, row) for row in zip(*each, strict=True)]


def _score_chunk(chunk: Sequence[RowTask], scorer: Scorer, batch_size: int | None) -> list[RowResult]:
    """Results of one metric; if it reads no images, it scores rows without one, too."""
    needs_image = reads_images(scorer)
    samples: list[CaptionSample] = []
    places: list[CaptionResult] = []  # for each sample, the place of its result
    results: list[RowResult] = []
    for task in chunk:
        problem = task.problem
        if needs_image and task.image_problem is not None:
            problem = ("image", task.image_problem)
        if problem is not None:
            results.append({"kind": problem[0], "message": problem[1]})
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
    """The result of each sample, see `CaptionResult`; a score that is not finite is null.

    Args:
        samples, scorer, batch_size: what is scored, and how.
        texts: names of the texts of the table that are kept.
    """
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


def _side_by_side(spec: SeveralSpec, row: Sequence[RowResult]) -> RowResult:
    """What several metrics made of one row, as one result."""
    if all(isinstance(result, dict) and result == row[0] for result in row):
        return row[0]
    count = next((len(result) for result in row if isinstance(result, list)), 1)
    captions: list[list[CaptionResult]] = [
        [[None, False, result["kind"], result["message"]]] * count if isinstance(result, dict) else result
        for result in row
    ]
    return [_joined(spec, caption) for caption in zip(*captions, strict=True)]


def _joined(spec: SeveralSpec, caption: Sequence[CaptionResult]) -> CaptionResult:
    """What several metrics made of one caption: the scores of all, then the texts of all."""
    scores: list[Any] = []
    texts: list[Any] = []
    for part, result in zip(spec.metrics, caption, strict=True):
        aspects, stop = len(part.aspects), len(part.aspects) + len(part.texts)
        values = result[0] or [None] * stop
        scores, texts = scores + values[:aspects], texts + values[aspects:stop]
    named = list(zip([part.name for part in spec.metrics], caption, strict=True))
    cut = [name for name, result in named if result[1]]
    first = caption[0][2:]
    if first and all(result[0] is None and result[2:] == first for result in caption):  # no matter of the metrics
        return [None, cut, *first]
    errors = [[name, result[3]] for name, result in named if len(result) > 2]
    return [scores + texts, cut, *(text for error in errors for text in error)]


class ScoreColumns:
    """Adds one column an aspect, the reward, `truncated` and `error` to the rows.

    Several metrics have `<metric>_<aspect>`, `<metric>_reward` and `<metric>_truncated` for each, `reward` if they are
    weighed, and one `error`.

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
        several = spec.parts if isinstance(spec, SeveralSpec) else ()
        self.cuts = [f"{part.name}_truncated" for part in several] or ["truncated"]
        names = (*spec.aspects, *spec.texts, *spec.reward_names, *self.cuts, "error")
        self.names = [prefix + name for name in names]
        _refuse_collisions(self.names, columns)

    def schema(self) -> dict[str, Any]:
        """{column: Arrow type} of the added columns."""
        import pyarrow as pa

        spec = self.spec
        texts, rewards = [pa.string()] * len(spec.texts), [pa.float64()] * len(spec.reward_names)
        types = [*[pa.float64()] * len(spec.aspects), *texts, *rewards, *[pa.bool_()] * len(self.cuts), pa.string()]
        return dict(zip(self.names[: len(types)], types, strict=True))

    def build(self, rows: Sequence[Any], results: Sequence[RowResult], summary: SummaryBuilder) -> dict[str, list[Any]]:
        """The added columns of some rows, each a list as long as `results`; counts them in `summary`."""
        flat: list[CaptionResult] = []
        for row, result in enumerate(results, start=summary.rows):
            flat.append([None, False, result["kind"], result["message"]] if isinstance(result, dict) else result[0])
            _add_errors(summary, flat[-1], row)
        scores, rewards = _numbers(flat, self.spec, self.weights)
        is_scored = np.isfinite(list(rewards.values())).any(axis=0)
        _count(summary, self.spec, len(results), flat, scores, rewards, is_scored)
        values: list[list[Any]] = [_nullable(column) for column in scores.T]
        for place in range(len(self.spec.aspects), len(self.spec.aspects) + len(self.spec.texts)):
            values.append([None if result[0] is None else result[0][place] for result in flat])
        values += [_nullable(reward) for reward in rewards.values()]
        if isinstance(self.spec, SeveralSpec):
            values += [[bool(result[1]) and part.name in result[1] for result in flat] for part in self.spec.parts]
        else:
            values.append([result[1] for result in flat])
        values.append([_message(result, self.spec) for result in flat])
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
            rewards.append(_numbers(scores, self.spec, self.weights)[1]["reward"][0])
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

    Args: as for ScoreColumns; `plan` names the column of candidates, which is replaced.
    """

    def __init__(
        self,
        spec: MetricSpec,
        weights: Mapping[str, float] | None,
        prefix: str,
        columns: Sequence[str],
        plan: ColumnPlan,
    ) -> None:
        self.spec, self.weights, self.plan = spec, weights, plan
        self.others = [name for name in spec.reward_names if name != "reward"]  # of each of several metrics
        names = ("best", "order", "rewards", *spec.aspects, *self.others, "truncated", "error")
        self.names = [prefix + name for name in names]
        _refuse_collisions(self.names, columns)

    def schema(self) -> dict[str, Any]:
        """{column: Arrow type} of the added and replaced columns."""
        import pyarrow as pa

        numbers = [pa.list_(pa.float64())] * (len(self.spec.aspects) + 1 + len(self.others))
        types = [pa.string(), pa.list_(pa.int64()), *numbers, pa.list_(pa.bool_()), pa.string()]
        return {self.plan.caption: pa.list_(pa.string()), **dict(zip(self.names, types, strict=True))}

    def build(self, rows: Sequence[Any], results: Sequence[RowResult], summary: SummaryBuilder) -> dict[str, list[Any]]:
        """The added and replaced columns of some rows; `rows` must hold the column of candidates."""
        built: dict[str, list[Any]] = {name: [] for name in (self.plan.caption, *self.names)}
        for number, (row, result) in enumerate(zip(rows, results, strict=True), start=summary.rows):
            given = None if isinstance(row, BadRow) else _candidates(row[self.plan.caption])
            reason = result["message"] if isinstance(result, dict) else None
            if isinstance(result, dict):
                if not given:  # no candidates to keep
                    summary.add_error(result["kind"], result["message"], number)
                    blank: list[Any] = [None] * (len(self.names) - 1)
                    for name, value in zip(built, [None, *blank, reason], strict=True):
                        built[name].append(value)
                    continue
                result = [[None, False, result["kind"], result["message"]] for _ in given]
            for caption in result:
                _add_errors(summary, caption, number)
            scores, every = _numbers(result, self.spec, self.weights)
            rewards = every["reward"]
            _count(summary, self.spec, 0, result, scores, every, np.isfinite(rewards))
            order = np.argsort(np.where(np.isnan(rewards), np.inf, -rewards), kind="stable").tolist()
            assert given is not None
            shown = [_text(self.plan.shown(each)) for each in given]
            candidates = [shown[position] for position in order]
            summary.distinct += len(set(shown))
            summary.thinking_cut += self.plan.thinking_cut(given)
            messages = [_message(item, self.spec) for item in result]
            problems = [f"candidate {place + 1}: {why}" for place, why in enumerate(messages) if why is not None]
            values = [
                candidates,
                candidates[0] if np.isfinite(rewards[order[0]]) else None,
                order,
                _nullable(rewards[order]),
                *(_nullable(column[order]) for column in scores.T),
                *(_nullable(every[name][order]) for name in self.others),
                [bool(result[position][1]) for position in order],
                reason or "; ".join(problems) or None,
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
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Scores (N, A) and rewards {name: (N,)} with NaN for null."""
    nothing = [None] * len(spec.aspects)
    rows = [nothing if result[0] is None else result[0][: len(nothing)] for result in results]
    scores = np.array(rows, dtype=np.float64).reshape(len(results), len(spec.aspects))
    return scores, {name: weighted_mean(scores, vector) for name, vector in spec.rewards(weights).items()}


def _count(
    summary: SummaryBuilder,
    spec: MetricSpec,
    rows: int,
    results: Sequence[CaptionResult],
    scores: np.ndarray,
    rewards: Mapping[str, np.ndarray],
    is_scored: Any,
) -> None:
    summary.rows += rows
    summary.captions += len(results)
    summary.scored += int(np.sum(is_scored))
    summary.truncated += sum(bool(result[1]) for result in results)
    for aspect, column in zip(spec.aspects, scores.T, strict=True):
        summary.add_numbers(aspect, column)
    for name, reward in rewards.items():
        summary.add_numbers(name, reward)


def _nullable(values: np.ndarray) -> list[float | None]:
    return [value if np.isfinite(value) else None for value in values.tolist()]


def _add_errors(summary: SummaryBuilder, result: CaptionResult, row: int) -> None:
    for kind, message in zip(result[2::2], result[3::2], strict=True):
        summary.add_error(kind, message, row)


def _message(result: CaptionResult, spec: MetricSpec) -> str | None:
    """Why a caption has no score; of several metrics, which of them have none, and why."""
    names = [part.name for part in spec.parts] if isinstance(spec, SeveralSpec) else []
    errors = zip(result[2::2], result[3::2], strict=True)
    return "; ".join(f"{kind}: {why}" if kind in names else why for kind, why in errors) or None


def _text(candidate: Any) -> str | None:
    """A candidate that is not a string has an error; it becomes text, so that the column has one type."""
    return candidate if candidate is None or isinstance(candidate, str) else repr(candidate)


def _candidates(cell: Any) -> list[Any] | None:
    """The candidates in a cell; None where it holds no list, for which the row has a message."""
    try:
        return values_of(listed(cell), "candidates")
    except InvalidSampleError:
        return None
