"""Who votes on the battles of a file: people, judges, metrics that score the captions, and scores in the file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from reward.errors import DataError
from reward.judges.opinions import Winner
from reward.metaeval.arena.battles import EQUAL, POINTS, VERDICTS, Battle, has_human, points_of, read_battles
from reward.metaeval.arena.position import PositionBias, measure_position_bias
from reward.metaeval.benchmarks.items import PAIRS, Benchmark
from reward.metaeval.benchmarks.jsonl import as_item, is_score
from reward.metaeval.benchmarks.registry import benchmark_spec
from reward.metaeval.classification import tie_threshold, verdicts
from reward.metaeval.scoring import score_benchmark
from reward.registry import COLUMN, MetricSource

PEOPLE, JUDGE, ANNOTATOR = "people", "judge", "annotator"
TWICE = "in-400"  # the field of CapArena that marks the battles that a second annotator judged, too
_BASELINE = MetricSource("length")
_WINNERS: dict[float, Winner] = {points: winner for winner, points in POINTS.items()}


@dataclass(frozen=True, eq=False)
class Voter:
    """A voter, and its votes on N battles.

    Args:
        name: "people", "judge", the metric as it is written on the command line, or "column:" and the field's name.
        points: (N,), what the first caption won: 1, 0.5 for a tie, or 0; NaN for battles without its vote.
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


def all_voters(
    battles: Sequence[Battle],
    metrics: Sequence[MetricSource] = (),
    columns: Sequence[str] = (),
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
        columns: fields with two scores, of caption 1 and of caption 2, which are read before any metric scores.
        images: folder of the images.
        judged: {name: file} of other judges: the same battles with their verdicts in `judge`.
        annotator: file of the same battles, or some, with the second annotator's verdicts in `winner`. Where battles
            are marked `in-400`, only those count: others may repeat the first annotator.
        scoring: passed to `score_benchmark` (references, batch_size, progress, device, dtype).

    Raises:
        DataError: there is no voter, two have one name, a second annotator without a first, a file of other battles,
            or what a metric needs is not there.
    """
    people = by_people(battles)
    voters = [] if people is None else [people]
    if annotator is not None:
        if people is None:
            raise DataError(f"no battle has a 'winner', so nobody can be compared with the annotator of {annotator}")
        marked = any(TWICE in battle for battle in battles)
        counted = [not marked or battle.get(TWICE) is True for battle in battles]
        others = zip(_same_battles(battles, annotator), counted, strict=True)
        second = by_people([battle if counts else {**battle, "winner": None} for battle, counts in others])
        if second is None:
            raise DataError(f"{annotator} has no 'winner' on these battles (on those marked {TWICE!r})")
        voters.append(replace(second, name=ANNOTATOR))
    judge = by_judge(battles)
    voters += [] if judge is None else [judge]
    for name, path in (judged or {}).items():
        judge = by_judge(_same_battles(battles, path))
        if judge is None:
            raise DataError(f"{path} has no verdict of a judge ('judge') on these battles: `arena --judge` writes it")
        voters.append(replace(judge, name=name))
    human = np.full(len(battles), np.nan) if people is None else people.points
    sources = list(metrics)
    if people is not None and _BASELINE not in sources and not all(map(has_human, battles)):
        sources.append(_BASELINE)
    sources = list(dict.fromkeys([*sources, *(MetricSource(name, is_column=True) for name in columns)]))
    if not (voters or sources):
        raise DataError(
            "no battle has a winner: give 'winner' (one of the two sources, or 'equal'), have a judge decide "
            "(--judge MODEL -o FILE), or name a --metric or a --score-column that decides"
        )
    by_columns = {each: by_column(battles, each.name, human) for each in sources if each.is_column}
    voters += [
        by_columns[each] if each.is_column else by_metric(battles, each, human, images=images, **scoring)
        for each in sources
    ]
    names = [voter.name for voter in voters]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"two voters are named {', '.join(doubled)}")
    return voters


def by_people(battles: Sequence[Battle]) -> Voter | None:
    """Votes of people, from the field `winner`, a source or `equal`; None if no battle has it."""
    meanings = ({battle["source1"]: 1.0, battle["source2"]: 0.0, EQUAL: 0.5} for battle in battles)
    won = [points_of(battle, "winner", meaning) for battle, meaning in zip(battles, meanings, strict=True)]
    decided = [points for points in won if points is not None]
    if not decided:
        return None
    points = np.array([np.nan if each is None else each for each in won])
    return Voter(PEOPLE, points, position=measure_position_bias((_WINNERS[each],) for each in decided))


def by_judge(battles: Sequence[Battle]) -> Voter | None:
    """Votes of a judge, from the field `judge`; None if no battle has it. A text that is not a verdict is an error."""
    meaning = {VERDICTS[winner]: points for winner, points in POINTS.items()}
    names = {words: winner for winner, words in VERDICTS.items()}
    points = np.full(len(battles), np.nan)
    choices: list[tuple[Winner, ...]] = []
    problems: list[str] = []
    for row, battle in enumerate(battles):
        try:
            won = points_of(battle, "judge", meaning)
        except DataError as error:
            problems.append(str(error))
            continue
        if won is not None:
            points[row] = won
            orders = battle.get("judge_orders")
            known = isinstance(orders, list) and all(each in list(names) for each in orders)
            choices.append(tuple(names[each] for each in orders) if orders and known else (_WINNERS[won],))
        elif battle.get("judge_error"):
            problems.append(str(battle["judge_error"]))
    if not choices:
        if any(battle.get("judge") is not None for battle in battles):
            raise DataError(problems[0])
        return None
    bias, problem = measure_position_bias(choices), problems[0] if problems else ""
    return Voter(JUDGE, points, position=bias, errors=len(problems), problem=problem)


def _same_battles(battles: Sequence[Battle], path: Path) -> list[Battle]:
    """The battles as they are in another file; one that the file lacks comes without any verdict."""
    names = ("img", "source1", "source2", "caption1", "caption2")
    found: dict[tuple[str, ...], list[Battle]] = defaultdict(list)
    for other in read_battles(path):
        found[tuple(other[name] for name in names)].append(other)
    rows, missing = [], 0
    for battle in battles:
        same = found[tuple(battle[name] for name in names)]
        missing += not same
        rows.append(same.pop(0) if same else {name: battle[name] for name in names})
    if missing == len(battles):
        raise DataError(
            f"{path} holds other battles: none has 'img', 'source1', 'source2', 'caption1' and 'caption2' of one of "
            f"these {len(battles)}. Give a file that was made from the same battles"
        )
    return rows


def by_column(battles: Sequence[Battle], name: str, human: np.ndarray) -> Voter:
    """Votes by a field that holds two scores, of caption 1 and of caption 2; `human` says how many ties there are."""
    cells = [[None, None] if battle.get(name) is None else battle[name] for battle in battles]
    if not all(isinstance(pair, list) and len(pair) == 2 and all(map(is_score, pair)) for pair in cells):
        raise DataError(f"{name!r} must hold two numbers a battle, the scores of caption 1 and caption 2")
    scores = np.array(cells, dtype=np.float64)  # None is NaN
    if np.isnan(scores).all():
        fields = sorted({field for battle in battles for field, value in battle.items() if isinstance(value, list)})
        raise DataError(f"no battle has scores {name!r}; fields with lists: {', '.join(fields) or 'none'}")
    missing = int((~np.isfinite(scores)).sum())
    points, threshold = _score_points(battles, human, scores)
    return Voter(COLUMN + name, points, threshold, errors=missing, problem="the file has no score" if missing else "")


def by_metric(
    battles: Sequence[Battle], metric: MetricSource, human: np.ndarray, *, images: Path, **scoring: Any
) -> Voter:
    """Votes by the scores of a metric for the captions, with `ref` as reference; see `by_column` and `all_voters`."""
    rows = [row for row, battle in enumerate(battles) if not has_human(battle)]
    if not rows:
        raise DataError("all battles are of the source 'human', which metrics are not compared on")
    spec = replace(benchmark_spec("pairs"), name="arena")
    pairs = Benchmark.of(spec, (_pair(battles[row], images) for row in rows))
    scoring = {"revision": metric.revision, **dict(metric.options), **scoring}
    run = score_benchmark(pairs, metric.name, metric.source, **scoring)
    scores = np.full((len(battles), 2), np.nan)
    scores[rows] = run.for_aspects(pairs)  # pairs have no aspects: the weighted mean
    points, threshold = _score_points(battles, human, scores)
    problem = next(iter(run.errors.values()), "")
    return Voter(metric.label, points, threshold, errors=len(run.errors), problem=problem)


def _pair(battle: Battle, images: Path) -> dict[str, Any]:
    pair = {"image": battle["img"], "captions": (battle["caption1"], battle["caption2"]), "label": None}
    references = (battle["ref"],) if "ref" in battle else ()
    return as_item({**pair, "references": references}, PAIRS, battle["img"], images)


def _score_points(battles: Sequence[Battle], human: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, float]:
    """Turns scores (N, 2) into points, with as many ties as people gave in the battles that both have decided.

    The threshold comes with them: battles whose scores differ by no more are ties. Battles of the source `human` have
    no say, and get no points. Where people have decided nothing, only equal scores are ties.

    Source: Cheng et al., "CapArena", 2025, section 4.2.
    """
    scored = np.isfinite(scores).all(axis=1) & ~np.array([has_human(battle) for battle in battles])
    points = np.full(len(battles), np.nan)
    if not scored.any():
        return points, 0.0
    differences, decided = scores[scored, 0] - scores[scored, 1], ~np.isnan(human[scored])
    threshold = 0.0
    if decided.any():
        threshold = tie_threshold(differences[decided], int((human[scored][decided] == 0.5).sum()))
    points[scored] = (verdicts(differences, threshold) + 1) / 2
    return points, threshold
