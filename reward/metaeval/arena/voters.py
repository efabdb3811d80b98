"""Who votes on the battles of a file: people, judges, metrics that score the captions, and scores in the file."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from reward.errors import DataError
from reward.judges.pairwise import Winner
from reward.metaeval.arena.battles import EQUAL, VERDICTS, Battle, has_human, read_battles
from reward.metaeval.benchmark_scores import score_benchmark
from reward.metaeval.benchmarks.catalogue import benchmark_spec
from reward.metaeval.benchmarks.items import PAIRS, Benchmark
from reward.metaeval.benchmarks.jsonl import as_item, is_score
from reward.metaeval.classification import tie_threshold, verdicts
from reward.registry import COLUMN, MetricSource

PEOPLE, JUDGE, ANNOTATOR = "people", "judge", "annotator"  # names of voters
_HAS_ANNOTATOR = "in-400"  # the field of CapArena that marks the battles that a second annotator judged, too
_BASELINE = MetricSource("length")
_VERDICT_POINTS = {VERDICTS["A"]: 1.0, VERDICTS["B"]: 0.0, VERDICTS["tie"]: 0.5}  # of the first caption
_VERDICT_WINNERS = {words: winner for winner, words in VERDICTS.items()}
_WINNERS: dict[float, Winner] = {1.0: "A", 0.0: "B", 0.5: "tie"}


@dataclass(frozen=True)
class PositionBias:
    """How much the positions of two captions decided comparisons, rather than the captions.

    Args:
        first, second, ties: answers for the caption shown first, the one shown second, and neither.
        both_orders: pairs that were asked in both orders.
        inconsistent: of those, pairs whose two answers differ.
        reversed: of those, pairs whose two orders name different winners, so that the position alone decided.
    """

    first: int = 0
    second: int = 0
    ties: int = 0
    both_orders: int = 0
    inconsistent: int = 0
    reversed: int = 0

    @property
    def first_share(self) -> float:
        """Share of the answers with a winner that name the caption shown first; 0.5 is no bias, NaN without any."""
        return self.first / (self.first + self.second) if self.first + self.second else math.nan

    @property
    def inconsistency(self) -> float:
        """Share of the pairs asked in both orders whose two answers differ; NaN if there are none."""
        return self.inconsistent / self.both_orders if self.both_orders else math.nan

    @property
    def sentence(self) -> str:
        """The end of a sentence about the caption that came first."""
        line = f"won {100 * self.first_share:.1f}% of the answers with a winner"
        if self.both_orders:
            line += f"; the two orders disagree in {100 * self.inconsistency:.1f}% of the pairs"
        return line


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
    if annotator is not None and people is None:
        raise DataError(f"no battle has a 'winner', so nobody can be compared with the annotator of {annotator}")
    judge = by_judge(battles)
    # People come first: their ratings are those of the arena, and all others are compared with them.
    voters = []
    if people is not None:
        voters.append(people)
    if annotator is not None:
        voters.append(_by_annotator(battles, annotator))
    if judge is not None:
        voters.append(judge)
    for name, path in (judged or {}).items():
        judge = by_judge(_same_battles(battles, path))
        if judge is None:
            raise DataError(f"{path} has no verdict of a judge ('judge') on these battles: `arena --judge` writes it")
        voters.append(replace(judge, name=name))

    scorers = list(metrics)
    if people is not None and not all(map(has_human, battles)):
        scorers.append(_BASELINE)
    scorers += [MetricSource(name, is_column=True) for name in columns]
    scorers = list(dict.fromkeys(scorers))
    if not (voters or scorers):
        raise DataError(
            "no battle has a winner: give 'winner' (one of the two sources, or 'equal'), have a judge decide "
            "(--judge MODEL -o FILE), or name a --metric or a --score-column that decides"
        )
    human_points = np.full(len(battles), np.nan)
    if people is not None:
        human_points = people.points
    # Columns come first, so that one that is missing is refused before hours of scoring.
    by_scorer = {}
    for scorer in sorted(scorers, key=lambda scorer: not scorer.is_column):
        if scorer.is_column:
            by_scorer[scorer] = by_column(battles, scorer.name, human_points)
        else:
            by_scorer[scorer] = by_metric(battles, scorer, human_points, images=images, **scoring)
    voters += [by_scorer[scorer] for scorer in scorers]
    names = set()
    for voter in voters:
        if voter.name in names:
            raise DataError(f"two voters are named {voter.name}")
        names.add(voter.name)
    return voters


def by_people(battles: Sequence[Battle]) -> Voter | None:
    """Votes of people, from the field `winner`, a source or `equal`; None if no battle has it."""
    points = np.full(len(battles), np.nan)
    choices: list[list[Winner]] = []
    for row, battle in enumerate(battles):
        points[row] = _points(battle, "winner", {battle["source1"]: 1.0, battle["source2"]: 0.0, EQUAL: 0.5})
        if not np.isnan(points[row]):
            choices.append([_WINNERS[points[row]]])
    if not choices:
        return None
    return Voter(PEOPLE, points, position=measure_position_bias(choices))


def by_judge(battles: Sequence[Battle]) -> Voter | None:
    """Votes of a judge, from the field `judge`; None if no battle has it. A text that is not a verdict is an error."""
    points = np.full(len(battles), np.nan)
    choices: list[list[Winner]] = []
    problems: list[str] = []
    for row, battle in enumerate(battles):
        try:
            points[row] = _points(battle, "judge", _VERDICT_POINTS)
        except DataError as error:
            problems.append(str(error))
            continue
        if not np.isnan(points[row]):
            # A file that does not say the orders counts as judged once, in its own order.
            choices.append(_choices(battle) or [_WINNERS[points[row]]])
        elif battle.get("judge_error"):
            problems.append(str(battle["judge_error"]))
    if not choices:  # nobody judged, or nothing that was judged can be read
        if any(battle.get("judge") is not None for battle in battles):
            raise DataError(problems[0])
        return None
    problem = problems[0] if problems else ""
    return Voter(JUDGE, points, position=measure_position_bias(choices), errors=len(problems), problem=problem)


def by_column(battles: Sequence[Battle], name: str, human_points: np.ndarray) -> Voter:
    """Votes by a field that holds two scores, of caption 1 and of caption 2.

    Args:
        battles: N battles.
        name: of the field; null, as a field or as one of the scores, is no score.
        human_points: (N,), points by people, which say how many ties there are; NaN where they did not decide.
    """
    scores = np.full((len(battles), 2), np.nan)
    for row, battle in enumerate(battles):
        pair = battle.get(name)
        if pair is None:
            continue
        if not (isinstance(pair, list) and len(pair) == 2 and is_score(pair[0]) and is_score(pair[1])):
            raise DataError(f"{name!r} must hold two numbers a battle, the scores of caption 1 and caption 2")
        scores[row] = pair  # None is NaN
    if np.isnan(scores).all():
        fields = [field for field, value in battles[0].items() if isinstance(value, list)]
        raise DataError(f"no battle has scores {name!r}; lists in the first battle: {', '.join(fields) or 'none'}")
    missing = int((~np.isfinite(scores)).sum())
    points, threshold = _score_points(battles, human_points, scores)
    return Voter(COLUMN + name, points, threshold, errors=missing, problem="the file has no score" if missing else "")


def by_metric(
    battles: Sequence[Battle], metric: MetricSource, human_points: np.ndarray, *, images: Path, **scoring: Any
) -> Voter:
    """Votes by the scores of a metric for the captions, with `ref` as reference; see `by_column` and `all_voters`."""
    rows = []
    items = []
    for row, battle in enumerate(battles):
        if has_human(battle):
            continue
        item = {"image": battle["img"], "captions": (battle["caption1"], battle["caption2"]), "label": None}
        item["references"] = (battle["ref"],) if "ref" in battle else ()
        rows.append(row)
        items.append(as_item(item, PAIRS, battle["img"], images))
    if not rows:
        raise DataError("all battles are of the source 'human', which metrics are not compared on")
    pairs = Benchmark.of(replace(benchmark_spec("pairs"), name="arena"), items)
    # What is said for all metrics, such as the device, comes after what is said for this one.
    scoring = {"revision": metric.revision, **dict(metric.options), **scoring}
    run = score_benchmark(pairs, metric.name, metric.source, **scoring)
    scores = np.full((len(battles), 2), np.nan)
    scores[rows] = run.for_aspects(pairs)  # pairs have no aspects: the weighted mean
    points, threshold = _score_points(battles, human_points, scores)
    problem = next(iter(run.errors.values()), "")
    return Voter(metric.label, points, threshold, errors=len(run.errors), problem=problem)


def measure_position_bias(choices: Iterable[Sequence[Winner]]) -> PositionBias:
    """How much positions decided, counted over many pairs.

    Args:
        choices: for each pair the winners of its one or two orders, see `Verdict.choices`. Where pairs have one order,
            it must have been drawn at random, or the shares say nothing.
    """
    first = second = ties = both_orders = inconsistent = reverse = 0
    for pair in choices:
        # Caption A was shown first in the first order, and caption B in the second one, if there was one.
        for shown_first, winner in zip("AB", pair, strict=False):
            if winner == "tie":
                ties += 1
            elif winner == shown_first:
                first += 1
            else:
                second += 1
        if len(pair) == 2:
            both_orders += 1
            inconsistent += pair[0] != pair[1]
            reverse += set(pair) == {"A", "B"}
    return PositionBias(first, second, ties, both_orders, inconsistent, reverse)


def _by_annotator(battles: Sequence[Battle], path: Path) -> Voter:
    """Votes of a second annotator in another file, on the marked battles only where any are marked."""
    any_marked = any(_HAS_ANNOTATOR in battle for battle in battles)
    counted = []
    for battle, other in zip(battles, _same_battles(battles, path), strict=True):
        if any_marked and battle.get(_HAS_ANNOTATOR) is not True:
            other = {**other, "winner": None}
        counted.append(other)
    annotator = by_people(counted)
    if annotator is None:
        raise DataError(f"{path} has no 'winner' on these battles (on those marked {_HAS_ANNOTATOR!r})")
    return replace(annotator, name=ANNOTATOR)


def _same_battles(battles: Sequence[Battle], path: Path) -> list[Battle]:
    """The battles as they are in another file; one that the file lacks comes without any verdict."""
    names = ("img", "source1", "source2", "caption1", "caption2")
    key_of = itemgetter(*names)
    others: dict[tuple[str, ...], list[Battle]] = defaultdict(list)
    for other in read_battles(path):
        others[key_of(other)].append(other)
    same_battles = []
    missing = 0
    for battle in battles:
        key = key_of(battle)
        if others[key]:
            same_battles.append(others[key].pop(0))  # one that is there twice is taken in the order of the file
        else:
            same_battles.append(dict(zip(names, key, strict=True)))
            missing += 1
    if missing == len(battles):
        raise DataError(
            f"{path} holds other battles: none has 'img', 'source1', 'source2', 'caption1' and 'caption2' of one of "
            f"these {len(battles)}. Give a file that was made from the same battles"
        )
    return same_battles


def _points(battle: Battle, field: str, points_of: Mapping[str, float]) -> float:
    """What the first caption won by a field of a battle, which must hold one of the words of a table; NaN without."""
    value = battle.get(field)
    if value is None:
        return math.nan
    for words, points in points_of.items():
        # A verdict may lack its full stop.
        if isinstance(value, str) and value.rstrip(".") == words.rstrip("."):
            return points
    name = f"battle of {battle['source1']!r} and {battle['source2']!r} on {battle['img']!r}"
    raise DataError(f"{name}: {field!r} must be one of {', '.join(map(repr, points_of))}, got {value!r:.80}")


def _choices(battle: Battle) -> list[Winner]:
    """The winners of the orders that a judge was asked in; none where the file does not say."""
    try:
        return [_VERDICT_WINNERS[words] for words in battle["judge_orders"]]
    except (KeyError, TypeError):
        return []


def _score_points(battles: Sequence[Battle], human_points: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, float]:
    """Points (N,) by scores (N, 2), and the threshold: battles whose scores differ by no more are ties.

    The threshold gives as many ties as people gave, in the battles that have both scores and their verdict. Where there
    is no such battle, only equal scores are ties. Battles of the source `human` get no points.

    Source: Cheng et al., "CapArena", 2025, section 4.2.
    """
    scored = np.isfinite(scores).all(axis=1) & ~np.array([has_human(battle) for battle in battles])
    points = np.full(len(battles), np.nan)
    differences = scores[scored, 0] - scores[scored, 1]
    human = human_points[scored]
    decided = ~np.isnan(human)
    threshold = 0.0
    if decided.any():
        threshold = tie_threshold(differences[decided], int((human[decided] == 0.5).sum()))
    points[scored] = (verdicts(differences, threshold) + 1) / 2
    return points, threshold
