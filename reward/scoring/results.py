"""What metrics make of rows, as the columns that the output has of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from reward.data.samples import CaptionSample, is_wordless
from reward.data.score_table import ScoreTable, fill_lowest, rewards_of_rows, weighted_mean
from reward.errors import DataError
from reward.metrics.base import Scorer
from reward.scoring.columns import Problem, RowTask
from reward.scoring.several import Metrics
from reward.scoring.summary import SummaryBuilder, judge_readings


def reads_images(scorer: Scorer) -> bool:
    """Whether a metric looks at images; others score a row whose image is not there."""
    return bool(getattr(scorer, "reads_images", scorer.spec.needs_image))


def score_samples(samples: Sequence[CaptionSample], scorer: Scorer, batch_size: int | None) -> ScoreTable:
    """What a scorer makes of samples; a score that is not finite becomes NaN, and the row an error."""
    table = scorer.score(samples, batch_size=batch_size)
    if len(table) != len(samples):
        raise ValueError(f"scorer {scorer.spec.name!r} gave {len(table)} results for {len(samples)} samples")
    is_finite = np.isfinite(table.scores)
    bad_rows = np.flatnonzero(~is_finite.all(axis=1)).tolist()
    errors = dict.fromkeys(bad_rows, "the metric gave no finite score")
    return replace(table, scores=np.where(is_finite, table.scores, np.nan), errors={**errors, **table.errors})


class AddedColumns:
    """The columns that the output has more than the input.

    Rows of one caption each get one column an aspect, the metric's texts, the reward, `truncated` and `error`, and
    `rank` where rows compete. Several metrics have `<metric>_<aspect>`, `<metric>_reward` and `<metric>_truncated`
    each, `reward` if they are weighed, and one `error`. In rows of many captions the column of captions is put in
    order, best first; they get the `best`, the `order`, `rewards` and a list an aspect. Ties keep the order of the
    input, captions without a reward come last.

    Args:
        metrics: what scores; loaded, if their aspects are not known before.
        prefix: put before the name of every added column.
        taken: the columns of the input, with which the added ones must not collide.
        caption: the column of captions, if a row has many; it is replaced.
        is_ranked: whether rows compete: the type of `rank` is named, see `ranks`.

    Attributes:
        types: {column: its type, see `schemas.arrow_type`}.

    Raises:
        DataError: a column of that name is there already.
        WeightsError: bad weights.
    """

    def __init__(
        self,
        metrics: Metrics,
        prefix: str,
        taken: Sequence[str],
        *,
        caption: str | None = None,
        is_ranked: bool = False,
    ) -> None:
        self.metrics, self.prefix, self.caption = metrics, prefix, caption
        self._weights, self._shares = metrics.weigh(), metrics.shares
        aspects: list[str] = []
        texts: list[str] = []
        for name, spec in zip(metrics.prefixes, metrics.specs, strict=True):
            aspects += [name + aspect for aspect in spec.aspects]
            texts += [name + text for text in spec.texts]
        self.rewards = reward_names(metrics)
        self.numbers = [*aspects, *self.rewards]
        if caption is None:
            types = dict.fromkeys(aspects, "float64") | dict.fromkeys(texts, "string")
            types |= dict.fromkeys(self.rewards, "float64")
            types |= {f"{name}truncated": "bool_" for name in metrics.prefixes}
            types["error"] = "string"
            if is_ranked:
                types["rank"] = "int64"
        else:
            lists = ["rewards", *(name for name in self.numbers if name != "reward")]
            types = {"best": "string", "order": "list int64", **dict.fromkeys(lists, "list float64")}
            types |= {"truncated": "list bool_", "error": "string"}
        self.types = {prefix + name: kind for name, kind in types.items()}
        for name in self.types:
            if name in taken:
                raise DataError(
                    f"the input has a column {name!r} already, which the output would have too; "
                    "give the new columns a prefix with --prefix, such as --prefix new_"
                )
        if caption is not None:
            self.types = {caption: "list string", **self.types}

    def build(self, tasks: Sequence[RowTask], batch_size: int | None, summary: SummaryBuilder) -> dict[str, list[Any]]:
        """Scores rows whose images are decoded: their columns, without ranks. Counts them in `summary`.

        A caption that is refused does not keep the others from being scored. A row without a caption that can be read
        has one place among the captions, which says why.
        """
        samples: list[CaptionSample | Problem] = []
        owners: list[RowTask] = []
        for task in tasks:
            samples += task.samples
            owners += [task] * len(task.samples)
        tables: list[ScoreTable] = []
        failures: list[list[Problem | None]] = []  # of each metric
        readings_before = judge_readings(self.metrics.parts)
        for scorer in self.metrics.parts:
            table, problems_of_metric = _score(samples, owners, scorer, batch_size)
            tables.append(table)
            failures.append(problems_of_metric)
        summary.add_readings(judge_readings(self.metrics.parts) - readings_before)
        numbers = self._numbers(tables, tasks)
        problems, errors = self._join_problems(failures)
        is_cut = np.any([table.truncated for table in tables], axis=0)
        self._count(tasks, numbers, problems, owners, is_cut, summary)
        if self.caption is not None:
            return self._columns_of_lists(tasks, numbers, problems, errors, is_cut, summary)
        columns: dict[str, list[Any]] = {name: _nullable(values) for name, values in numbers.items()}
        for prefix, table in zip(self.metrics.prefixes, tables, strict=True):
            for name, texts in table.texts.items():
                columns[prefix + name] = list(texts)
            columns[f"{prefix}truncated"] = table.truncated.tolist()
        columns["error"] = errors
        names = [name for name in self.types if name != f"{self.prefix}rank"]
        return {name: columns[name.removeprefix(self.prefix)] for name in names}

    def _numbers(self, tables: Sequence[ScoreTable], tasks: Sequence[RowTask]) -> dict[str, np.ndarray]:
        """{name of an aspect or a reward: (N,)} of N captions; a reward may be -inf, see `fill_rewards`."""
        columns: list[np.ndarray] = []
        for table in tables:
            columns.extend(table.scores.T)
        wordless: list[bool] = []
        for task in tasks:
            wordless += _wordless(task)
        rewards: list[np.ndarray] = []
        for scorer, table, weights in zip(self.metrics.parts, tables, self._weights, strict=True):
            complete: list[bool] = []
            for task in tasks:
                complete += [_is_complete(task, scorer)] * _width(task)
            bounds = scorer.spec.range
            rewards.append(
                rewards_of_rows(
                    table.scores, weights, bounds, is_wordless=wordless, is_complete=complete, whole_call=False
                )
            )
        if self._shares is not None:
            combined = weighted_mean(np.stack(rewards, axis=1), self._shares)
            combined[np.isinf(combined)] = -np.inf
            rewards.append(combined)
        if self.caption is not None:  # the captions of one image are a call
            for captions in _slices(tasks):
                for values in rewards:
                    values[captions] = fill_lowest(values[captions])
        return dict(zip(self.numbers, [*columns, *rewards], strict=True))

    def _join_problems(
        self, failures: Sequence[Sequence[Problem | None]]
    ) -> tuple[list[list[Problem]], list[str | None]]:
        """What is wrong with each caption, as problems and as a text.

        Where it is no matter of the metrics it is said once, else with the names of those of several that failed.
        """
        problems: list[list[Problem]] = []
        errors: list[str | None] = []
        names = self.metrics.names
        for of_metrics in zip(*failures, strict=True):
            by_metric = {name: problem for name, problem in zip(names, of_metrics, strict=True) if problem is not None}
            first = next(iter(by_metric.values()), None)
            if first is None:
                problems.append([])
                errors.append(None)
            elif len(names) > 1 and (len(set(of_metrics)) > 1 or first[0] == "metric"):
                problems.append([(name, message) for name, (_, message) in by_metric.items()])
                errors.append("; ".join(f"{name}: {message}" for name, message in problems[-1]))
            else:
                problems.append([first])
                errors.append(first[1])
        return problems, errors

    def _count(
        self,
        tasks: Sequence[RowTask],
        numbers: Mapping[str, np.ndarray],
        problems: Sequence[Sequence[Problem]],
        owners: Sequence[RowTask],
        is_cut: np.ndarray,
        summary: SummaryBuilder,
    ) -> None:
        counted = self.rewards if self.caption is None else ["reward"]
        has_reward = np.any([np.isfinite(numbers[name]) for name in counted], axis=0)
        captions = len(owners) if self.caption is None else sum(len(task.candidates) for task in tasks)
        summary.count(
            rows=len(tasks),
            captions=captions,
            scored=int(has_reward.sum()),
            truncated=int(is_cut.sum()),
            thinking_cut=sum(task.thinking_cut for task in tasks),
        )
        for task, problems_of_caption in zip(owners, problems, strict=True):
            for kind, message in problems_of_caption:
                summary.add_error(kind, message, task.row)
        for name, values in numbers.items():
            summary.add_numbers(name, values)

    def _columns_of_lists(
        self,
        tasks: Sequence[RowTask],
        numbers: Mapping[str, np.ndarray],
        problems: Sequence[Sequence[Problem]],
        errors: Sequence[str | None],
        is_cut: np.ndarray,
        summary: SummaryBuilder,
    ) -> dict[str, list[Any]]:
        """The columns of rows with many captions each."""
        columns: dict[str, list[Any]] = {name: [] for name in self.types}
        for task, captions in zip(tasks, _slices(tasks), strict=True):
            cells: dict[str, Any] = {"error": errors[captions.start]}
            if task.candidates:
                rewards = numbers["reward"][captions]
                # Best first; without a reward last, and of equal rewards that of a caption without a word.
                order = np.lexsort((np.array(_wordless(task)), np.where(np.isnan(rewards), np.inf, -rewards)))
                texts = [_text(candidate) for candidate in task.candidates]
                summary.count(distinct=len(set(texts)))
                cells = {name: _nullable(values[captions][order]) for name, values in numbers.items()}
                cells["best"] = texts[order[0]] if np.isfinite(rewards[order[0]]) else None
                cells["order"] = order.tolist()
                cells["rewards"] = _nullable(rewards[order])
                cells["truncated"] = is_cut[captions][order].tolist()
                cells["error"] = _error_of_list(task, problems[captions], errors[captions])
                columns[str(self.caption)].append([texts[place] for place in order])
            else:  # none to keep
                columns[str(self.caption)].append(None)
            for name in self.types:
                if name != self.caption:
                    columns[name].append(cells.get(name.removeprefix(self.prefix)))
        return columns


def _score(
    samples: Sequence[CaptionSample | Problem], owners: Sequence[RowTask], scorer: Scorer, batch_size: int | None
) -> tuple[ScoreTable, list[Problem | None]]:
    """What one metric makes of captions; if it reads no images, it scores those without one, too."""
    needs_image, spec = reads_images(scorer), scorer.spec
    problems: list[Problem | None] = []
    for sample, task in zip(samples, owners, strict=True):
        if needs_image and task.image_problem is not None:
            problems.append(("image", task.image_problem))
        else:
            problems.append(sample if isinstance(sample, tuple) else None)
    scores = np.full((len(samples), len(spec.aspects)), np.nan)
    truncated = np.zeros(len(samples), dtype=bool)
    texts: dict[str, list[Any]] = {name: [None] * len(samples) for name in spec.texts}
    places = [place for place, problem in enumerate(problems) if problem is None]
    if places:
        table = score_samples([samples[place] for place in places], scorer, batch_size)  # type: ignore[misc]
        scores[places], truncated[places] = table.scores, table.truncated
        for row, message in table.errors.items():
            problems[places[row]] = ("metric", message)
        for name, column in texts.items():
            for place, text in zip(places, table.texts[name], strict=True):
                column[place] = text
    return ScoreTable(scores, spec.aspects, truncated=truncated, texts=texts), problems


def _is_complete(task: RowTask, scorer: Scorer) -> bool:
    """Whether a row has what a metric needs beside the caption."""
    if task.problem is not None or (reads_images(scorer) and task.image_problem is not None):
        return False
    values = {"image": task.image, "references": task.references or None, **task.context.get("columns", {})}
    return all(values.get(need) is not None for need in scorer.spec.needs)


def _width(task: RowTask) -> int:
    """How many places a row has among the captions."""
    return max(1, len(task.candidates))


def _slices(tasks: Sequence[RowTask]) -> list[slice]:
    """The places of each row among the captions."""
    slices = []
    first = 0
    for task in tasks:
        slices.append(slice(first, first + _width(task)))
        first += _width(task)
    return slices


def _wordless(task: RowTask) -> list[bool]:
    """Of each place of a row, whether its caption has no word."""
    candidates = task.candidates or [None]
    return [isinstance(candidate, str) and is_wordless(candidate) for candidate in candidates]


def _error_of_list(task: RowTask, problems: Sequence[Sequence[Problem]], errors: Sequence[str | None]) -> str | None:
    """What is wrong with a row of captions: once if it is the same with all, else by caption."""
    problem = task.problem
    if problem is None and task.image_problem:
        problem = ("image", task.image_problem)
    if problem is not None and all(problems_of_caption == [problem] for problems_of_caption in problems):
        return problem[1]
    numbered = enumerate(errors, start=1)
    return "; ".join(f"candidate {number}: {error}" for number, error in numbered if error) or None


def reward_names(metrics: Metrics) -> list[str]:
    """The names of the columns with rewards, without a prefix: one a metric, and `reward` of all that are weighed."""
    names = [f"{prefix}reward" for prefix in metrics.prefixes]
    return names if metrics.shares is None else [*names, "reward"]


def fill_rewards(columns: dict[str, list[Any]], names: Sequence[str], prefix: str, summary: SummaryBuilder) -> None:
    """Gives captions without a word the lowest reward of all rows, where a metric has no bound of its own.

    Args:
        columns: the added columns of all rows of a call, in which these rewards are -inf; changed.
        names: of those with rewards, without prefix.
        prefix: of the columns' names.
        summary: counts these rewards, too.
    """
    rewards = {name: np.array(columns[prefix + name], dtype=float) for name in names}
    if not any(np.isneginf(values).any() for values in rewards.values()):
        return
    scored_before = np.any([np.isfinite(values) for values in rewards.values()], axis=0)
    for name, values in rewards.items():
        rewards[name] = fill_lowest(values)
        columns[prefix + name] = _nullable(rewards[name])
        summary.add_numbers(name, rewards[name][np.isneginf(values)])
    scored = np.any([np.isfinite(values) for values in rewards.values()], axis=0)
    summary.count(scored=int(scored.sum() - scored_before.sum()))


def ranks(groups: Sequence[str | None], rewards: Sequence[float | None]) -> tuple[list[int | None], int]:
    """The rank of each row's caption in its group, from 1, and the number of groups.

    Ties keep the order of the input; a caption without a reward has no rank, as one without a group.

    Example:
        >>> ranks(["a", "b", "a", "a"], [0.5, 0.1, 0.7, None])
        ([2, 1, 1, None], 2)
    """
    rows_of_group: dict[str, list[tuple[float, int]]] = {}
    for row, (group, reward) in enumerate(zip(groups, rewards, strict=True)):
        if group is not None:
            rows = rows_of_group.setdefault(group, [])
            if reward is not None:
                rows.append((-reward, row))
    ranked: list[int | None] = [None] * len(rewards)
    for rows in rows_of_group.values():
        for rank, (_, row) in enumerate(sorted(rows), start=1):
            ranked[row] = rank
    return ranked, len(rows_of_group)


def _nullable(values: np.ndarray) -> list[float | None]:
    return [None if np.isnan(value) else value for value in values.tolist()]


def _text(candidate: Any) -> str | None:
    """A candidate that is not a string has an error; it becomes text, so that the column has one type."""
    return candidate if candidate is None or isinstance(candidate, str) else repr(candidate)
