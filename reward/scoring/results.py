"""What metrics make of rows, as columns, and the columns that the output has of it."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from reward.errors import DataError, InvalidSampleError
from reward.metrics.base import Scorer
from reward.samples import CaptionSample
from reward.score_table import weighted_mean
from reward.scoring.columns import RowTask
from reward.scoring.several import Metrics, reads_images
from reward.scoring.summary import SummaryBuilder

__all__ = [
    "MetricScores",
    "RankColumns",
    "ScoreColumns",
    "Scored",
    "ranks",
    "score_rows",
    "score_samples",
]

Problem: TypeAlias = "tuple[str, str]"  # its kind, and the message


@dataclass
class MetricScores:
    """What one metric made of N captions.

    Args:
        scores: float64 (N, A), NaN where a caption has none.
        truncated: bool (N,), True where a text was cut.
        texts: {name: N texts or None}.
        problems: for each caption (kind, message), or None where nothing is wrong.
    """

    scores: np.ndarray
    truncated: np.ndarray
    texts: dict[str, list[Any]]
    problems: list[Problem | None]

    @classmethod
    def joined(cls, parts: Sequence[MetricScores]) -> MetricScores:
        """Those of some captions, then of the next."""
        texts = {name: [text for part in parts for text in part.texts[name]] for name in parts[0].texts}
        problems = [problem for part in parts for problem in part.problems]
        scores, truncated = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("scores", "truncated")
        )
        return cls(scores, truncated, texts, problems)

    def taken(self, places: Sequence[int]) -> MetricScores:
        """Those of the captions at some places."""
        texts = {name: [texts[place] for place in places] for name, texts in self.texts.items()}
        problems = [self.problems[place] for place in places]
        return MetricScores(self.scores[places], self.truncated[places], texts, problems)


@dataclass
class Scored:
    """Rows, and what each metric made of their captions: those of the first row, then of the next.

    A row without a caption that can be read has one place, which says why.
    """

    tasks: list[RowTask]
    metrics: list[MetricScores]

    @classmethod
    def joined(cls, parts: Sequence[Scored]) -> Scored:
        """Rows, then the next."""
        each = zip(*(part.metrics for part in parts), strict=True)
        return cls([task for part in parts for task in part.tasks], [MetricScores.joined(scores) for scores in each])

    def by_row(self) -> Scored:
        """Rows of one caption each in the order of their numbers."""
        order = sorted(range(len(self.tasks)), key=lambda place: self.tasks[place].row)
        return Scored([self.tasks[place] for place in order], [scores.taken(order) for scores in self.metrics])

    def problems(self, metrics: Metrics) -> list[list[Problem]]:
        """What is wrong with each caption. Where it is no matter of the metrics it is said once, else for each."""
        if len(self.metrics) == 1:
            return [[] if problem is None else [problem] for problem in self.metrics[0].problems]
        names = [spec.name for spec in metrics.specs]
        found: list[list[Problem]] = []
        for each in zip(*(scores.problems for scores in self.metrics), strict=True):
            first = each[0]
            if first is not None and first[0] != "metric" and all(problem == first for problem in each):
                found.append([first])
            else:
                found.append([(name, problem[1]) for name, problem in zip(names, each, strict=True) if problem])
        return found


def score_rows(tasks: list[RowTask], metrics: Metrics, batch_size: int | None) -> Scored:
    """Scores rows whose images are decoded. A caption that is refused does not keep the others from being scored."""
    return Scored(tasks, [_score_rows(tasks, scorer, batch_size) for scorer in metrics.scorers])


def _score_rows(tasks: Sequence[RowTask], scorer: Scorer, batch_size: int | None) -> MetricScores:
    """What one metric makes of rows; if it reads no images, it scores those without one, too."""
    needs_image = reads_images(scorer)
    samples: list[CaptionSample] = []
    places: list[int] = []  # of the samples among the captions
    problems: list[Problem | None] = []
    for task in tasks:
        problem = task.problem
        if needs_image and task.image_problem is not None:
            problem = ("image", task.image_problem)
        for candidate in task.candidates or [None]:
            problems.append(problem)
            if problem is None:
                try:
                    samples.append(CaptionSample(candidate, task.image, task.references, **task.context))
                    places.append(len(problems) - 1)
                except InvalidSampleError as error:
                    problems[-1] = ("candidate", str(error))
    count, spec = len(problems), scorer.spec
    scores, truncated = np.full((count, len(spec.aspects)), np.nan), np.zeros(count, dtype=bool)
    texts: dict[str, list[Any]] = {name: [None] * count for name in spec.texts}
    if samples:
        table = score_samples(samples, scorer, batch_size)
        scores[places], truncated[places] = table.scores, table.truncated
        for place, problem, *own in zip(places, table.problems, *table.texts.values(), strict=True):
            problems[place] = problem
            for name, text in zip(table.texts, own, strict=True):
                texts[name][place] = text
    return MetricScores(scores, truncated, texts, problems)


def score_samples(samples: Sequence[CaptionSample], scorer: Scorer, batch_size: int | None) -> MetricScores:
    """What a scorer makes of samples; a score that is not finite becomes NaN, and is a problem of kind "metric"."""
    table = scorer.score(samples, batch_size=batch_size)
    spec = scorer.spec
    if len(table) != len(samples):
        raise ValueError(f"scorer {spec.name!r} gave {len(table)} results for {len(samples)} samples")
    is_finite = np.isfinite(table.scores)
    bad = set(np.flatnonzero(~is_finite.all(axis=1)).tolist()) | set(table.errors)
    problems: list[Problem | None] = [None] * len(samples)
    for place in bad:
        problems[place] = ("metric", table.errors.get(place, "the metric gave no finite score"))
    texts = {name: list(table.texts[name]) for name in spec.texts}
    return MetricScores(np.where(is_finite, table.scores, np.nan), table.truncated, texts, problems)


class ScoreColumns:
    """Adds one column an aspect, the reward, `truncated` and `error` to rows of one caption each.

    Several metrics have `<metric>_<aspect>`, `<metric>_reward` and `<metric>_truncated` for each, `reward` if they are
    weighed, and one `error`.

    Args:
        metrics: what scores; loaded, if their aspects are not known before.
        weights: aspect weights of the reward.
        prefix: put before the name of every added column.
        columns: the columns of the input, with which the added ones must not collide.
        is_ranked: whether the rows of a group are ranked: adds the column `rank`, see `ranks`.

    Raises:
        DataError: a column of that name is there already.
        WeightsError: bad weights.
    """

    def __init__(
        self,
        metrics: Metrics,
        weights: Mapping[str, float] | None,
        prefix: str,
        columns: Sequence[str],
        *,
        is_ranked: bool = False,
    ) -> None:
        self.metrics, self.prefix = metrics, prefix
        self._weights = metrics.weigh(weights)
        types = {**self._types(), **({"rank": "int64"} if is_ranked else {})}
        self.types = {prefix + name: kind for name, kind in types.items()}  # {added column: see `schemas.arrow_type`}
        if taken := [name for name in self.types if name in columns]:
            raise DataError(
                f"the input has a column {taken[0]!r} already, which the output would have too; "
                "give the new columns a prefix with --prefix, such as --prefix new_"
            )

    def _types(self) -> dict[str, str]:
        """{column: its type} of what `build` gives, before the prefix."""
        metrics = self.metrics
        return {
            **dict.fromkeys(metrics.columns("aspects"), "float64"),
            **dict.fromkeys(metrics.columns("texts"), "string"),
            **dict.fromkeys(metrics.rewards, "float64"),
            **{metrics.column(spec, "truncated"): "bool_" for spec in metrics.specs},
            "error": "string",
        }

    def numbers(self, scored: Scored) -> dict[str, np.ndarray]:
        """{name of an aspect or a reward: (N,)} of N captions, before the prefix."""
        metrics = self.metrics
        columns = [column for scores in scored.metrics for column in scores.scores.T]
        pairs = zip(scored.metrics, self._weights, strict=True)
        rewards = [weighted_mean(scores.scores, weights) for scores, weights in pairs]
        if metrics.shares is not None:
            rewards.append(weighted_mean(np.stack(rewards, axis=1), np.array(metrics.shares)))
        return dict(zip([*metrics.columns("aspects"), *metrics.rewards], [*columns, *rewards], strict=True))

    def build(self, scored: Scored, summary: SummaryBuilder) -> dict[str, list[Any]]:
        """The added columns of some rows, without their ranks; counts them in `summary`."""
        numbers, problems = self.numbers(scored), scored.problems(self.metrics)
        for row, found in enumerate(problems, start=summary.rows):
            for kind, message in found:
                summary.add_error(kind, message, row)
        is_scored = np.any([np.isfinite(numbers[name]) for name in self.metrics.rewards], axis=0)
        summary.rows += len(scored.tasks)
        _count(summary, len(problems), scored, numbers, is_scored)
        values: dict[str, list[Any]] = {name: _nullable(column) for name, column in numbers.items()}
        for spec, scores in zip(self.metrics.specs, scored.metrics, strict=True):
            values |= {self.metrics.column(spec, name): texts for name, texts in scores.texts.items()}
            values[self.metrics.column(spec, "truncated")] = scores.truncated.tolist()
        values["error"] = [self.message(found) for found in problems]
        return {self.prefix + name: values[name] for name in self._types()}

    def message(self, problems: Sequence[Problem]) -> str | None:
        """Why a caption has no score; of several metrics, which of them have none, and why."""
        names = [spec.name for spec in self.metrics.specs] if len(self.metrics.parts) > 1 else []
        return "; ".join(f"{kind}: {why}" if kind in names else why for kind, why in problems) or None


class RankColumns(ScoreColumns):
    """Puts the candidates of each row in order, best first, and adds the best, the order and the scores.

    Ties keep the order of the input, candidates without a reward come last.

    Args: as for ScoreColumns; `caption` is the column of candidates, which is replaced.
    """

    def __init__(
        self,
        metrics: Metrics,
        weights: Mapping[str, float] | None,
        prefix: str,
        columns: Sequence[str],
        caption: str,
    ) -> None:
        self.caption = caption
        super().__init__(metrics, weights, prefix, columns)
        self.types = {caption: "list string", **self.types}

    def _types(self) -> dict[str, str]:
        others = [name for name in self.metrics.rewards if name != "reward"]  # of each of several metrics
        lists = dict.fromkeys(["rewards", *self.metrics.columns("aspects"), *others], "list float64")
        return {"best": "string", "order": "list int64", **lists, "truncated": "list bool_", "error": "string"}

    def build(self, scored: Scored, summary: SummaryBuilder) -> dict[str, list[Any]]:
        """The added and replaced columns of some rows; counts them in `summary`."""
        numbers, problems = self.numbers(scored), scored.problems(self.metrics)
        rewards, cut = numbers["reward"], np.any([scores.truncated for scores in scored.metrics], axis=0)
        _count(summary, sum(len(task.candidates) for task in scored.tasks), scored, numbers, np.isfinite(rewards))
        built: dict[str, list[Any]] = {name: [] for name in self.types}
        last = 0
        for row, task in enumerate(scored.tasks, start=summary.rows):
            first, last = last, last + max(1, len(task.candidates))
            for kind, message in (each for found in problems[first:last] for each in found):
                summary.add_error(kind, message, row)
            messages = [self.message(found) for found in problems[first:last]]
            if not task.candidates:  # none to keep
                values: list[Any] = [None] * (len(built) - 1) + messages
            else:
                whole = task.problem or (task.image_problem and ("image", task.image_problem))
                if whole and all(found == [whole] for found in problems[first:last]):
                    error: str | None = whole[1]
                else:
                    each = [f"candidate {place}: {why}" for place, why in enumerate(messages, start=1) if why]
                    error = "; ".join(each) or None
                values = [*self._ordered(task, slice(first, last), numbers, cut), error]
                summary.distinct += len({_text(each) for each in task.candidates})
            for name, value in zip(built, values, strict=True):
                built[name].append(value)
        summary.rows += len(scored.tasks)
        return built

    def _ordered(self, task: RowTask, own: slice, numbers: Mapping[str, np.ndarray], cut: np.ndarray) -> list[Any]:
        """The values of a row but its error."""
        rewards = numbers["reward"][own]
        order = np.argsort(np.where(np.isnan(rewards), np.inf, -rewards), kind="stable")
        candidates = [_text(task.candidates[place]) for place in order]
        listed = {name: _nullable(column[own][order]) for name, column in numbers.items() if name != "reward"}
        return [
            candidates,
            candidates[0] if np.isfinite(rewards[order[0]]) else None,
            order.tolist(),
            _nullable(rewards[order]),
            *listed.values(),
            cut[own][order].tolist(),
        ]


def ranks(rows: Iterable[tuple[str | None, float | None]]) -> tuple[list[int | None], int]:
    """The rank of each row's caption in its group, from 1, and the number of groups.

    Ties keep the order of the input; a caption without a reward has no rank, as one without a group.

    Args:
        rows: group and reward of each.

    Example:
        >>> ranks([("a", 0.5), ("b", 0.1), ("a", 0.7), ("a", None)])
        ([2, 1, 1, None], 2)
    """
    numbers: dict[str | None, int] = {None: 0}
    groups, rewards = array("q"), array("d")
    for group, reward in rows:
        groups.append(numbers.setdefault(group, len(numbers)))
        rewards.append(np.nan if reward is None else reward)
    order = np.lexsort((-np.array(rewards), np.array(groups)))  # stable; NaN comes last in its group
    found: list[int | None] = [None] * len(order)
    place, last = 0, None
    for row in order.tolist():
        place = place + 1 if groups[row] == last else 1
        last = groups[row]
        if rewards[row] == rewards[row] and last:
            found[row] = place
    return found, len(numbers) - 1


def _count(
    summary: SummaryBuilder, captions: int, scored: Scored, numbers: Mapping[str, np.ndarray], is_scored: np.ndarray
) -> None:
    summary.captions += captions
    summary.scored += int(is_scored.sum())
    summary.truncated += int(np.any([scores.truncated for scores in scored.metrics], axis=0).sum())
    summary.thinking_cut += sum(task.thinking_cut for task in scored.tasks)
    for name, column in numbers.items():
        summary.add_numbers(name, column)


def _nullable(values: np.ndarray) -> list[float | None]:
    return [value if np.isfinite(value) else None for value in values.tolist()]


def _text(candidate: Any) -> str | None:
    """A candidate that is not a string has an error; it becomes text, so that the column has one type."""
    return candidate if candidate is None or isinstance(candidate, str) else repr(candidate)
