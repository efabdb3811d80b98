"""What metrics make of rows, as the columns that the output has of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from reward.data.held_data import TakesData
from reward.data.samples import CaptionSample, check_batch_size, is_wordless
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
    if getattr(scorer.score, "__func__", None) is TakesData.score:
        # Samples are checked already. What looks at the data of people stays out of the way of a row.
        check_batch_size(batch_size)
        table = scorer.score_samples(list(samples), batch_size)  # type: ignore[attr-defined]
    else:
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
        aspects: dict[str, str] = {}  # names and types of columns
        texts: dict[str, str] = {}
        truncated: dict[str, str] = {}
        for name, spec in zip(metrics.prefixes, metrics.specs, strict=True):
            for aspect in spec.aspects:
                aspects[name + aspect] = "float64"
            for text in spec.texts:
                texts[name + text] = "string"
            truncated[f"{name}truncated"] = "bool_"
        self.rewards = metrics.rewards
        self.numbers = [*aspects, *self.rewards]
        if caption is None:
            types = {**aspects, **texts, **dict.fromkeys(self.rewards, "float64"), **truncated, "error": "string"}
            if is_ranked:
                types["rank"] = "int64"
        else:
            types = {
                "best": "string",
                "order": "list int64",
                **dict.fromkeys(["rewards", *self.numbers], "list float64"),
            }
            del types["reward"]  # of which `rewards` is the list
            types |= {"truncated": "list bool_", "error": "string"}
        self.types: dict[str, str] = {}
        for name, kind in types.items():
            self.types[prefix + name] = kind
            if prefix + name in taken:
                raise DataError(
                    f"the input has a column {prefix + name!r} already, which the output would have too; "
                    "give the new columns a prefix with --prefix, such as --prefix new_"
                )
        if caption is not None:
            self.types = {caption: "list string", **self.types}

    def build(self, tasks: Sequence[RowTask], batch_size: int | None, summary: SummaryBuilder) -> dict[str, list[Any]]:
        """Scores rows whose images are decoded: their columns, without ranks. Counts them in `summary`.

        A caption that is refused does not keep the others from being scored. A row without a caption that can be read
        has one place among the captions, which says why.
        """
        captions = _Captions(tasks)
        tables: list[ScoreTable] = []
        failures: list[list[Problem | None]] = []  # of each metric
        readings_before = judge_readings(self.metrics.parts)
        for scorer in self.metrics.parts:
            table, problems_of_metric = _score(captions, scorer, batch_size)
            tables.append(table)
            failures.append(problems_of_metric)
        summary.readings.update(judge_readings(self.metrics.parts) - readings_before)
        numbers = self._numbers(tables, captions)
        problems, errors = self._join_problems(failures)
        is_cut = np.any([table.truncated for table in tables], axis=0)

        counted, count = self.rewards, len(errors)
        if self.caption is not None:  # a row without candidates has a place, and no caption
            counted, count = ["reward"], sum(len(task.candidates) for task in tasks)
        has_reward = np.any([np.isfinite(numbers[name]) for name in counted], axis=0)
        summary.count(
            rows=len(tasks),
            captions=count,
            scored=int(has_reward.sum()),
            truncated=int(is_cut.sum()),
            thinking_cut=sum(task.thinking_cut for task in tasks),
        )
        for task, problems_of_caption in zip(captions.tasks, problems, strict=True):
            for kind, message in problems_of_caption:
                summary.add_error(kind, message, task.row)
        for name, values in numbers.items():
            summary.add_numbers(name, values)

        if self.caption is not None:
            return self._columns_of_lists(tasks, captions, numbers, problems, errors, is_cut, summary)
        cells: dict[str, list[Any]] = {"error": errors}
        for name, values in numbers.items():
            cells[name] = _nullable(values)
        for prefix, table in zip(self.metrics.prefixes, tables, strict=True):
            for name, texts in table.texts.items():
                cells[prefix + name] = list(texts)
            cells[f"{prefix}truncated"] = table.truncated.tolist()
        columns: dict[str, list[Any]] = {}
        for name in self.types:
            if name != f"{self.prefix}rank":  # which is known once all rows are scored
                columns[name] = cells[name.removeprefix(self.prefix)]
        return columns

    def _numbers(self, tables: Sequence[ScoreTable], captions: _Captions) -> dict[str, np.ndarray]:
        """{name of an aspect or a reward: (N,)} of N captions; a reward may be -inf, see `fill_rewards`."""
        columns: list[np.ndarray] = []
        rewards: list[np.ndarray] = []
        # The lowest reward of a metric without a bound is known once all rows are scored: a caption without a word has
        # -inf until then.
        for scorer, table, weights in zip(self.metrics.parts, tables, self._weights, strict=True):
            columns.extend(table.scores.T)
            rewards.append(
                rewards_of_rows(
                    table.scores,
                    weights,
                    scorer.spec.range,
                    is_wordless=captions.wordless,
                    is_complete=_are_complete(captions.tasks, scorer),
                    whole_call=False,
                )
            )
        if self._shares is not None:
            combined = weighted_mean(np.stack(rewards, axis=1), self._shares)
            combined[np.isinf(combined)] = -np.inf
            rewards.append(combined)
        if self.caption is not None:  # the captions of one image are a call
            for row in captions.rows:
                for values in rewards:
                    values[row] = fill_lowest(values[row])
        return dict(zip(self.numbers, [*columns, *rewards], strict=True))

    def _join_problems(
        self, failures: Sequence[Sequence[Problem | None]]
    ) -> tuple[list[list[Problem]], list[str | None]]:
        """What is wrong with each caption, as problems and as a text.

        Where it is no matter of the metrics it is said once, else with the names of those of several that failed.
        """
        problems: list[list[Problem]] = []
        errors: list[str | None] = []
        for of_metrics in zip(*failures, strict=True):
            first = next(filter(None, of_metrics), None)
            if first is None:
                problems.append([])
                errors.append(None)
            elif len(of_metrics) == 1 or (len(set(of_metrics)) == 1 and first[0] not in ("metric", "text")):
                problems.append([first])
                errors.append(first[1])
            else:
                by_metric: list[Problem] = []
                for name, problem in zip(self.metrics.names, of_metrics, strict=True):
                    if problem is not None:
                        by_metric.append((name, problem[1]))
                problems.append(by_metric)
                errors.append("; ".join(map(": ".join, by_metric)))
        return problems, errors

    def _columns_of_lists(
        self,
        tasks: Sequence[RowTask],
        captions: _Captions,
        numbers: Mapping[str, np.ndarray],
        problems: Sequence[Sequence[Problem]],
        errors: Sequence[str | None],
        is_cut: np.ndarray,
        summary: SummaryBuilder,
    ) -> dict[str, list[Any]]:
        """The columns of rows with many captions each."""
        columns: dict[str, list[Any]] = {name: [] for name in self.types}
        for task, row in zip(tasks, captions.rows, strict=True):
            cells: dict[str, Any] = {"error": errors[row.start]}
            if task.candidates:
                rewards = numbers["reward"][row]
                # Best first; without a reward last, and of equal rewards that of a caption without a word.
                order = np.lexsort((captions.wordless[row], np.where(np.isnan(rewards), np.inf, -rewards)))
                # A candidate that is no text has an error; it becomes text, so that the column has one type.
                texts = []
                for text in task.candidates:
                    texts.append(text if text is None or isinstance(text, str) else repr(text))
                summary.count(distinct=len(set(texts)))
                cells = {name: _nullable(values[row][order]) for name, values in numbers.items()}
                cells["best"] = texts[order[0]] if np.isfinite(rewards[order[0]]) else None
                cells["order"] = order.tolist()
                cells["rewards"] = _nullable(rewards[order])
                cells["truncated"] = is_cut[row][order].tolist()
                cells["error"] = _error_of_list(task, problems[row], errors[row])
                columns[str(self.caption)].append([texts[position] for position in order])
            else:  # none to keep
                columns[str(self.caption)].append(None)
            for name in self.types:
                if name != self.caption:
                    columns[name].append(cells.get(name.removeprefix(self.prefix)))
        return columns


class _Captions:
    """The captions of some rows, one after the other.

    Attributes:
        samples: what is to be scored, or what is wrong with it.
        tasks: the row of each.
        wordless: whether each is a caption without a word (N,).
        rows: where those of each row are.
    """

    def __init__(self, tasks: Sequence[RowTask]) -> None:
        self.samples: list[CaptionSample | Problem] = []
        self.tasks: list[RowTask] = []
        self.rows: list[slice] = []
        wordless: list[bool] = []
        for task in tasks:
            first = len(self.samples)
            samples = task.make_samples()
            self.samples += samples
            self.tasks += [task] * len(samples)
            self.rows.append(slice(first, len(self.samples)))
            for candidate in task.candidates or [None]:
                wordless.append(isinstance(candidate, str) and is_wordless(candidate))
        self.wordless = np.array(wordless, dtype=bool)


def _score(captions: _Captions, scorer: Scorer, batch_size: int | None) -> tuple[ScoreTable, list[Problem | None]]:
    """What one metric makes of captions; if it reads no images, it scores those without one, too."""
    needs_image, spec, count = reads_images(scorer), scorer.spec, len(captions.samples)
    problems: list[Problem | None] = [None] * count
    places: list[int] = []  # of the captions that are scored
    samples: list[CaptionSample] = []
    for place, (sample, task) in enumerate(zip(captions.samples, captions.tasks, strict=True)):
        if needs_image and task.image_problem is not None:
            problems[place] = ("image", task.image_problem)
        elif isinstance(sample, tuple):
            problems[place] = sample
        else:
            places.append(place)
            samples.append(sample)
    scores = np.full((count, len(spec.aspects)), np.nan)
    truncated = np.zeros(count, dtype=bool)
    texts: dict[str, list[Any]] = {name: [None] * count for name in spec.texts}
    if samples:
        table = score_samples(samples, scorer, batch_size)
        scores[places], truncated[places] = table.scores, table.truncated
        for row, message in table.errors.items():
            # Who has scores and an error lacks a text alone, such as an explanation.
            has_scores = np.isfinite(table.scores[row]).all()
            problems[places[row]] = ("text" if has_scores else "metric", message)
        for name, column in texts.items():
            for place, text in zip(places, table.texts[name], strict=True):
                column[place] = text
    return ScoreTable(scores, spec.aspects, truncated=truncated, texts=texts), problems


def _are_complete(tasks: Sequence[RowTask], scorer: Scorer) -> list[bool]:
    """Whether each row has what a metric needs beside the caption."""
    needs_image, needs = reads_images(scorer), scorer.spec.needs
    flags = []
    for task in tasks:
        is_complete = task.problem is None and not (needs_image and task.image_problem is not None)
        if is_complete and needs:
            values = {"image": task.image, "references": task.references or None, **task.context.get("columns", {})}
            is_complete = all(values.get(need) is not None for need in needs)
        flags.append(is_complete)
    return flags


def _error_of_list(task: RowTask, problems: Sequence[Sequence[Problem]], errors: Sequence[str | None]) -> str | None:
    """What is wrong with a row of captions: once if it is the same with all, else by caption."""
    problem = task.problem
    if problem is None and task.image_problem:
        problem = ("image", task.image_problem)
    if problem is not None and all(problems_of_caption == [problem] for problems_of_caption in problems):
        return problem[1]
    numbered = enumerate(errors, start=1)
    return "; ".join(f"candidate {number}: {error}" for number, error in numbered if error) or None


def fill_rewards(columns: dict[str, list[Any]], names: Sequence[str], prefix: str, summary: SummaryBuilder) -> None:
    """Gives captions without a word the lowest reward of all rows, where a metric has no bound of its own.

    Args:
        columns: the added columns of all rows of a call, in which these rewards are -inf; changed.
        names: of those with rewards, without prefix.
        prefix: of the columns' names.
        summary: counts these rewards, too.
    """
    rewards = np.array([columns[prefix + name] for name in names], dtype=float)  # (rewards, rows)
    if not np.isneginf(rewards).any():
        return
    filled = rewards.copy()
    for position, name in enumerate(names):
        filled[position] = fill_lowest(rewards[position])
        columns[prefix + name] = _nullable(filled[position])
        summary.add_numbers(name, filled[position][np.isneginf(rewards[position])])
    counts = [int(np.isfinite(values).any(axis=0).sum()) for values in (rewards, filled)]
    summary.count(scored=counts[1] - counts[0])


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
    numbers: list[float | None] = values.tolist()
    for row in np.flatnonzero(np.isnan(values)).tolist():
        numbers[row] = None
    return numbers
