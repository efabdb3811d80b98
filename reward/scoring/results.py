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
    bad = dict.fromkeys(np.flatnonzero(~is_finite.all(axis=1)).tolist(), "the metric gave no finite score")
    return replace(table, scores=np.where(is_finite, table.scores, np.nan), errors={**bad, **table.errors})


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
        self._weights, self._shares, own = (
            metrics.weigh(),
            metrics.shares,
            [*zip(metrics.prefixes, metrics.specs, strict=True)],
        )
        aspects = [before + name for before, spec in own for name in spec.aspects]
        self.rewards = reward_names(metrics)
        self.numbers = [*aspects, *self.rewards]
        if caption is None:
            types = dict.fromkeys(aspects, "float64")
            types |= {before + name: "string" for before, spec in own for name in spec.texts}
            types |= dict.fromkeys(self.rewards, "float64") | {f"{before}truncated": "bool_" for before, _ in own}
            types |= {"error": "string"} | ({"rank": "int64"} if is_ranked else {})
        else:
            lists = ["rewards", *(name for name in self.numbers if name != "reward")]
            types = {"best": "string", "order": "list int64", **dict.fromkeys(lists, "list float64")}
            types |= {"truncated": "list bool_", "error": "string"}
        self.types = {prefix + name: kind for name, kind in types.items()}
        if there := [name for name in self.types if name in taken]:
            raise DataError(
                f"the input has a column {there[0]!r} already, which the output would have too; "
                "give the new columns a prefix with --prefix, such as --prefix new_"
            )
        if caption is not None:
            self.types = {caption: "list string", **self.types}

    def build(self, tasks: Sequence[RowTask], batch_size: int | None, summary: SummaryBuilder) -> dict[str, list[Any]]:
        """Scores rows whose images are decoded: their columns, without ranks. Counts them in `summary`.

        A caption that is refused does not keep the others from being scored. A row without a caption that can be read
        has one place among the captions, which says why.
        """
        samples = [sample for task in tasks for sample in task.samples]
        owners = [task for task in tasks for _ in task.samples]
        readings_before = judge_readings(self.metrics.parts)
        scored = [_scored(samples, owners, scorer, batch_size) for scorer in self.metrics.parts]
        summary.add_readings(judge_readings(self.metrics.parts) - readings_before)
        tables = [table for table, _ in scored]
        numbers = self._numbers(tables, tasks)
        problems, errors = self._told([each for _, each in scored])
        has_reward = np.any([np.isfinite(numbers[name]) for name in self.rewards], axis=0)
        is_cut = np.any([table.truncated for table in tables], axis=0)
        summary.count(
            rows=len(tasks),
            captions=sum(len(task.candidates) for task in tasks) if self.caption else len(samples),
            scored=int((np.isfinite(numbers["reward"]) if self.caption else has_reward).sum()),
            truncated=int(is_cut.sum()),
            thinking_cut=sum(task.thinking_cut for task in tasks),
        )
        for task, own in zip(owners, problems, strict=True):
            for kind, message in own:
                summary.add_error(kind, message, task.row)
        for name, values in numbers.items():
            summary.add_numbers(name, values)
        if self.caption is not None:
            return self._lists(tasks, numbers, problems, errors, is_cut, summary)
        columns: dict[str, list[Any]] = {name: _nullable(column) for name, column in numbers.items()}
        for before, table in zip(self.metrics.prefixes, tables, strict=True):
            columns |= {before + name: list(texts) for name, texts in table.texts.items()}
            columns[f"{before}truncated"] = table.truncated.tolist()
        columns["error"] = errors
        return {name: columns[name.removeprefix(self.prefix)] for name in self.types if name != f"{self.prefix}rank"}

    def _numbers(self, tables: Sequence[ScoreTable], tasks: Sequence[RowTask]) -> dict[str, np.ndarray]:
        """{name of an aspect or a reward: (N,)} of N captions; a reward may be -inf, see `fill_rewards`."""
        wordless: list[bool] = []
        for task in tasks:
            for candidate in task.candidates or [None]:
                wordless.append(isinstance(candidate, str) and is_wordless(candidate))
        rewards = []
        for scorer, table, weights in zip(self.metrics.parts, tables, self._weights, strict=True):
            complete: list[bool] = []
            for task in tasks:
                complete += [_is_complete(task, scorer)] * max(1, len(task.candidates))
            rewards.append(
                rewards_of_rows(
                    table.scores,
                    weights,
                    scorer.spec.range,
                    is_wordless=wordless,
                    is_complete=complete,
                    whole_call=False,
                )
            )
        if self._shares is not None:
            combined = weighted_mean(np.stack(rewards, axis=1), self._shares)
            combined[np.isinf(combined)] = -np.inf
            rewards.append(combined)
        if self.caption is not None:  # the captions of one image are a call
            first = 0
            for task in tasks:
                last = first + max(1, len(task.candidates))
                for values in rewards:
                    values[first:last] = fill_lowest(values[first:last])
                first = last
        return dict(zip(self.numbers, [*(each for table in tables for each in table.scores.T), *rewards], strict=True))

    def _told(self, found: Sequence[Sequence[Problem | None]]) -> tuple[list[list[Problem]], list[str | None]]:
        """What is wrong with each caption, as problems and as a text.

        Where it is no matter of the metrics it is said once, else with the names of those of several that failed.
        """
        problems, errors, names = list[list[Problem]](), list[str | None](), self.metrics.names
        for each in zip(*found, strict=True):
            own = [problem for problem in each if problem is not None]
            if len(names) > 1 and own and (len({*each}) > 1 or own[0][0] == "metric"):
                own = [(name, problem[1]) for name, problem in zip(names, each, strict=True) if problem is not None]
                errors.append("; ".join(f"{name}: {why}" for name, why in own))
            else:
                own = own[:1]
                errors.append(own[0][1] if own else None)
            problems.append(own)
        return problems, errors

    def _lists(
        self,
        tasks: Sequence[RowTask],
        numbers: Mapping[str, np.ndarray],
        problems: Sequence[Sequence[Problem]],
        errors: Sequence[str | None],
        is_cut: np.ndarray,
        summary: SummaryBuilder,
    ) -> dict[str, list[Any]]:
        """The columns of rows with many captions each."""
        rows: list[list[Any]] = []
        last = 0
        for task in tasks:
            first, last = last, last + max(1, len(task.candidates))
            own = slice(first, last)
            if not task.candidates:  # none to keep
                rows.append([*[None] * (len(self.types) - 1), errors[first]])
                continue
            rewards = numbers["reward"][own]
            wordless = [isinstance(candidate, str) and is_wordless(candidate) for candidate in task.candidates]
            order = np.lexsort((np.array(wordless), np.where(np.isnan(rewards), np.inf, -rewards)))
            texts = [_text(each) for each in task.candidates]
            summary.count(distinct=len(set(texts)))
            whole = task.problem or (task.image_problem and ("image", task.image_problem))
            told = [f"candidate {place}: {why}" for place, why in enumerate(errors[own], start=1) if why]
            rows.append(
                [
                    [texts[place] for place in order],
                    texts[order[0]] if np.isfinite(rewards[order[0]]) else None,
                    order.tolist(),
                    _nullable(rewards[order]),
                    *(_nullable(column[own][order]) for name, column in numbers.items() if name != "reward"),
                    is_cut[own][order].tolist(),
                    whole[1] if whole and all(each == [whole] for each in problems[own]) else "; ".join(told) or None,
                ]
            )
        return dict(zip(self.types, map(list, zip(*rows, strict=True)), strict=True))


def _scored(
    samples: Sequence[CaptionSample | Problem], owners: Sequence[RowTask], scorer: Scorer, batch_size: int | None
) -> tuple[ScoreTable, list[Problem | None]]:
    """What one metric makes of captions; if it reads no images, it scores those without one, too."""
    needs_image, spec = reads_images(scorer), scorer.spec
    problems: list[Problem | None] = [each if isinstance(each, tuple) else None for each in samples]
    for place, task in enumerate(owners):
        if needs_image and task.image_problem is not None:
            problems[place] = ("image", task.image_problem)
    places = [place for place, problem in enumerate(problems) if problem is None]
    scores, truncated = np.full((len(samples), len(spec.aspects)), np.nan), np.zeros(len(samples), dtype=bool)
    texts: dict[str, list[Any]] = {name: [None] * len(samples) for name in spec.texts}
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


def reward_names(metrics: Metrics) -> list[str]:
    """The names of the columns with rewards, without a prefix: one a metric, and `reward` of all that are weighed."""
    names = [f"{before}reward" for before in metrics.prefixes]
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
    import pandas as pd  # on use: a large package

    grouped = pd.Series(rewards, dtype="float64").groupby(pd.Series(groups, dtype="object"))
    places = grouped.rank(method="first", ascending=False)
    return [None if place != place else int(place) for place in places], grouped.ngroups


def _nullable(values: np.ndarray) -> list[float | None]:
    return [None if np.isnan(value) else value for value in values.tolist()]


def _text(candidate: Any) -> str | None:
    """A candidate that is not a string has an error; it becomes text, so that the column has one type."""
    return candidate if candidate is None or isinstance(candidate, str) else repr(candidate)
