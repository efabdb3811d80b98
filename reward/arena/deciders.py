"""Who decides the battles of a file: people, a judge, a metric that scores the captions, or scores in the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reward.arena.agreement import score_points
from reward.arena.table import Arena, human_points
from reward.arena.verdicts import PositionBias, measure_position_bias
from reward.battles import Battle, Winner, choices_of, outcome
from reward.errors import DataError
from reward.metaeval.bench import COLUMN, MetricSource
from reward.metaeval.benchmarks.caparena import pair_of_battle
from reward.metaeval.benchmarks.items import Benchmark
from reward.metaeval.benchmarks.registry import benchmark_spec
from reward.metaeval.scoring import score_benchmark

__all__ = ["JUDGE", "PEOPLE", "Decider", "by_column", "by_judge", "by_metric", "by_people"]

PEOPLE, JUDGE = "people", "judge"
_WINNERS: dict[float, Winner] = {1.0: "A", 0.0: "B", 0.5: "tie"}  # by points


@dataclass(frozen=True, eq=False)
class Decider:
    """What somebody or something says of N battles.

    Args:
        name: "people", "judge", the metric as it is written on the command line, or "column:" and the field's name.
        points: (N,), see `Arena`; NaN where it has decided nothing.
        threshold: of scores: up to which difference a battle is a tie; None for verdicts.
        position: how far the place of a caption decided; None for scores, which know no place.
        errors: captions that could not be scored, or verdicts that could not be read.
        problem: why, for the first of them.
    """

    name: str
    points: np.ndarray
    threshold: float | None = None
    position: PositionBias | None = None
    errors: int = 0
    problem: str = ""


def by_people(battles: Sequence[Battle]) -> Decider | None:
    """The field `winner`; None if no battle has it.

    Raises:
        DataError: a winner is neither of the two sources nor `equal`.
    """
    points = human_points(battles)
    if np.isnan(points).all():
        return None
    return Decider(PEOPLE, points, position=measure_position_bias((_WINNERS[p],) for p in points if not np.isnan(p)))


def by_judge(battles: Sequence[Battle]) -> Decider | None:
    """The field `judge`; None if no battle has it. A text that is not a verdict counts as an error.

    Raises:
        DataError: none of the texts is a verdict.
    """
    points, problems = np.full(len(battles), np.nan), []
    choices: list[tuple[Winner, ...]] = []
    for row, battle in enumerate(battles):
        try:
            result = outcome(battle.record, 1)
        except DataError as error:
            problems.append(str(error))
            continue
        if result is not None:
            points[row] = (result + 1) / 2
            choices.append(choices_of(battle.record) or (_WINNERS[points[row]],))
        elif battle.record.get("judge_error"):
            problems.append(str(battle.record["judge_error"]))
    if not choices:
        if any(battle.record.get("judge") is not None for battle in battles):
            raise DataError(problems[0])
        return None
    bias = measure_position_bias(choices)
    return Decider(JUDGE, points, position=bias, errors=len(problems), problem=problems[0] if problems else "")


def by_column(battles: Sequence[Battle], name: str, human: np.ndarray) -> Decider:
    """A field of the battles that holds two scores, of caption 1 and of caption 2; null is none.

    Args:
        battles: N battles.
        name: of the field.
        human: points (N,) by people, for the number of ties.

    Raises:
        DataError: no battle has the field, or it holds something else.
    """
    scores = np.full((len(battles), 2), np.nan)
    for row, battle in enumerate(battles):
        values = battle.record.get(name)
        if values is None:
            continue
        is_pair = isinstance(values, list) and len(values) == 2
        if not is_pair or any(isinstance(value, bool) or not isinstance(value, int | float | None) for value in values):
            raise DataError(
                f"battle {row + 1} on {battle.img!r}: {name!r} must hold two numbers, the scores of caption 1 and "
                f"caption 2, got {values!r:.80}"
            )
        scores[row] = [np.nan if value is None else value for value in values]
    if np.isnan(scores).all():
        fields = {field for battle in battles for field, value in battle.record.items() if isinstance(value, list)}
        raise DataError(
            f"no battle has scores {name!r}: two numbers, [score of caption 1, score of caption 2]; fields with lists: "
            f"{', '.join(sorted(fields)) or 'none'}"
        )
    points, threshold = score_points(Arena.of_battles(battles), human, scores)
    missing = int((~np.isfinite(scores)).sum())
    problem = "the file has no score" if missing else ""
    return Decider(COLUMN + name, points, threshold, errors=missing, problem=problem)


def by_metric(
    battles: Sequence[Battle], metric: MetricSource, human: np.ndarray, *, images: Path, **scoring: Any
) -> Decider:
    """The scores of a metric for the captions; battles of the source `human` are not scored.

    Args:
        battles: N battles; `ref` is the reference of both captions.
        metric: metric and checkpoint.
        human: points (N,) by people, for the number of ties.
        images: folder of the images.
        scoring: passed to `score_benchmark` (cache, references, batch_size, progress, device, dtype).

    Raises:
        DataError: there is nothing to score, or the metric needs images or references that are not there.
    """
    rows = [row for row, battle in enumerate(battles) if not battle.has_human]
    if not rows:
        raise DataError("all battles are of the source 'human', which metrics are not compared on")
    pairs = Benchmark(benchmark_spec("caparena"), tuple(pair_of_battle(battles[row], images) for row in rows))
    run = score_benchmark(pairs, metric.name, metric.source, revision=metric.revision, **scoring)
    scores = np.full((len(battles), 2), np.nan)
    scores[rows] = run.for_aspects(pairs)  # pairs have no aspects: the weighted mean
    points, threshold = score_points(Arena.of_battles(battles), human, scores)
    problem = next(iter(run.errors.values()), "")
    return Decider(metric.label, points, threshold, errors=len(run.errors), problem=problem)
