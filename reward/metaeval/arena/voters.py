"""Who votes on the battles of a file: people, a judge, a metric that scores the captions, or scores in the file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from reward.errors import DataError
from reward.judges.opinions import PositionBias, Winner, measure_position_bias
from reward.metaeval.arena.agreement import score_points
from reward.metaeval.arena.battles import Battle, choices_of, outcome, read_battles
from reward.metaeval.arena.table import Arena, human_points
from reward.metaeval.benchmarks.items import PAIRS, Benchmark
from reward.metaeval.benchmarks.jsonl import as_item
from reward.metaeval.benchmarks.registry import benchmark_spec
from reward.metaeval.scoring import score_benchmark
from reward.registry import COLUMN, MetricSource

__all__ = ["JUDGE", "PEOPLE", "TWICE", "Voter", "all_voters", "by_column", "by_judge", "by_metric", "by_people"]

PEOPLE, JUDGE, ANNOTATOR = "people", "judge", "annotator"
TWICE = "in-400"  # the field of CapArena that marks the battles that a second annotator judged, too
_BASELINE = MetricSource("length")
_WINNERS: dict[float, Winner] = {1.0: "A", 0.0: "B", 0.5: "tie"}  # by points


@dataclass(frozen=True, eq=False)
class Voter:
    """A voter, and its votes on N battles.

    Args:
        name: "people", "judge", the metric as it is written on the command line, or "column:" and the field's name.
        points: (N,), see `Arena`; NaN for battles without its vote.
        threshold: largest difference of two scores that is a tie; None for verdicts.
        position: how much the position of a caption decided; None for scores, which do not depend on it.
        errors: captions that could not be scored, or verdicts that could not be read.
        problem: the reason for the first of them.
    """

    name: str
    points: np.ndarray
    threshold: float | None = None
    position: PositionBias | None = None
    errors: int = 0
    problem: str = ""

    @property
    def decided(self) -> bool:
        """Whether it voted on any battle."""
        return not np.isnan(self.points).all()


def by_people(battles: Sequence[Battle]) -> Voter | None:
    """Votes of people, from the field `winner`; None if no battle has it.

    Raises:
        DataError: a winner is neither of the two sources nor `equal`.
    """
    points = human_points(battles)
    if np.isnan(points).all():
        return None
    return Voter(PEOPLE, points, position=measure_position_bias((_WINNERS[p],) for p in points if not np.isnan(p)))


def by_judge(battles: Sequence[Battle]) -> Voter | None:
    """Votes of a judge, from the field `judge`; None if no battle has it. A text that is not a verdict is an error.

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
    return Voter(JUDGE, points, position=bias, errors=len(problems), problem=problems[0] if problems else "")


def _by_judged_file(battles: Sequence[Battle], name: str, path: Path) -> Voter:
    """Votes of another judge, from the field `judge` of another file of the same battles; CapArena has one a judge."""
    voter = by_judge(_same_battles(battles, path))
    if voter is None:
        raise DataError(f"{path} has no verdict of a judge ('judge') on these battles: let `capreward battle` write it")
    return replace(voter, name=name)


def _by_annotator(battles: Sequence[Battle], path: Path) -> Voter:
    """Votes of a second annotator, from the field `winner` of another file of the same battles, or some of them.

    Where battles have the field `in-400`, only those with true count: others may repeat the first annotator.
    """
    second = by_people(_same_battles(battles, path))
    points = np.full(len(battles), np.nan) if second is None else second.points
    if any(TWICE in battle.record for battle in battles):
        points = np.where([battle.record.get(TWICE) is True for battle in battles], points, np.nan)
    if np.isnan(points).all():
        raise DataError(f"{path} has no 'winner' by a second annotator on these battles (on those marked {TWICE!r})")
    return Voter(ANNOTATOR, points)


def _same_battles(battles: Sequence[Battle], path: Path) -> list[Battle]:
    """The battles as they are in another file; one that the file lacks comes without any verdict."""
    found: dict[tuple[str, ...], list[Battle]] = defaultdict(list)
    for other in read_battles(path):
        found[_key(other)].append(other)
    rows, missing = [], 0
    for battle in battles:
        same = found[_key(battle)]
        missing += not same
        bare = {name: value for name, value in battle.to_json().items() if name != "winner"}
        rows.append(same.pop(0) if same else Battle.from_json(bare))
    if missing == len(battles):
        raise DataError(
            f"{path} holds other battles: none has 'img', 'source1', 'source2', 'caption1' and 'caption2' of one of "
            f"these {len(battles)}. Give a file that was made from the same battles"
        )
    return rows


def _key(battle: Battle) -> tuple[str, ...]:
    return battle.img, battle.source1, battle.source2, battle.caption1, battle.caption2


def by_column(battles: Sequence[Battle], name: str, human: np.ndarray) -> Voter:
    """Votes by a field of the battles that holds two scores, of caption 1 and of caption 2; null is no score.

    Args:
        battles: N battles.
        name: of the field.
        human: points (N,) by people, which say how many ties there are.

    Raises:
        DataError: no battle has the field, or it does not hold two numbers.
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
    return Voter(COLUMN + name, points, threshold, errors=missing, problem=problem)


def by_metric(
    battles: Sequence[Battle], metric: MetricSource, human: np.ndarray, *, images: Path, **scoring: Any
) -> Voter:
    """Votes by the scores of a metric for the captions; battles of the source `human` are not scored.

    Args:
        battles: N battles; `ref` is the reference of both captions.
        metric: metric and checkpoint.
        human: points (N,) by people, which say how many ties there are.
        images: folder of the images.
        scoring: passed to `score_benchmark` (references, batch_size, progress, device, dtype).

    Raises:
        DataError: there is nothing to score, or the metric needs images or references that are not there.
    """
    rows = [row for row, battle in enumerate(battles) if not battle.has_human]
    if not rows:
        raise DataError("all battles are of the source 'human', which metrics are not compared on")
    spec = replace(benchmark_spec("pairs"), name="arena")
    pairs = Benchmark.of(spec, (_pair(battles[row], images) for row in rows))
    scoring = {"revision": metric.revision, **dict(metric.options), **scoring}
    run = score_benchmark(pairs, metric.name, metric.source, **scoring)
    scores = np.full((len(battles), 2), np.nan)
    scores[rows] = run.for_aspects(pairs)  # pairs have no aspects: the weighted mean
    points, threshold = score_points(Arena.of_battles(battles), human, scores)
    problem = next(iter(run.errors.values()), "")
    return Voter(metric.label, points, threshold, errors=len(run.errors), problem=problem)


def _pair(battle: Battle, images: Path) -> dict[str, Any]:
    references = () if battle.ref is None else (battle.ref,)
    pair = {"image": battle.img, "captions": (battle.caption1, battle.caption2), "label": None}
    return as_item({**pair, "references": references}, PAIRS, battle.img, images)


def all_voters(
    battles: Sequence[Battle],
    metrics: Sequence[MetricSource],
    columns: Sequence[str],
    *,
    images: Path,
    judged: Mapping[str, Path] | None = None,
    annotator: Path | None = None,
    **scoring: Any,
) -> list[Voter]:
    """People and the judge, where the file has their verdicts, other annotators and judges, metrics, score columns.

    With verdicts of people, the length of the captions is added as a baseline that every metric must beat.

    Args:
        battles: N battles.
        metrics: with their checkpoints.
        columns: fields with two scores, which are read before any metric scores.
        images: folder of the images.
        judged: {name: file} of other judges: the same battles with their verdicts in `judge`.
        annotator: file of the same battles, or some, with the second annotator's verdicts in `winner`.
        scoring: see `by_metric`.

    Raises:
        DataError: there is no voter, a second annotator without a first, or a file of other battles; or as for the
            other functions here.
    """
    people = by_people(battles)
    if annotator is not None and people is None:
        raise DataError(f"no battle has a 'winner', so there is nobody to compare the annotator of {annotator} with")
    second = None if annotator is None else _by_annotator(battles, annotator)
    voters = [voter for voter in (people, second, by_judge(battles)) if voter is not None]
    voters += [_by_judged_file(battles, name, path) for name, path in (judged or {}).items()]
    human = np.full(len(battles), np.nan) if people is None else people.points
    sources = list(metrics)
    if people is not None and _BASELINE not in sources and not all(battle.has_human for battle in battles):
        sources.append(_BASELINE)
    sources = list(dict.fromkeys([*sources, *(MetricSource(name, is_column=True) for name in columns)]))
    if not (voters or sources):
        raise DataError(
            "no battle has a winner: give 'winner' (one of the two sources, or 'equal'), have `capreward battle` write "
            "'judge', or name a --metric or a --score-column that decides"
        )
    by_columns = {each: by_column(battles, each.name, human) for each in sources if each.is_column}
    return voters + [
        by_columns[each] if each.is_column else by_metric(battles, each, human, images=images, **scoring)
        for each in sources
    ]
