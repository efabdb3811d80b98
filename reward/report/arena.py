"""The report of an arena: ratings, agreement with people, leaderboards, and how to read them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import pandas as pd

from reward.metaeval.arena.battles import HUMAN
from reward.metaeval.arena.model_ratings import BRADLEY_TERRY, ELO, KENDALL, SCORE, SPEARMAN, Ranking, model_pairs
from reward.metaeval.arena.result import ArenaResult
from reward.metaeval.arena.voters import Voter
from reward.metaeval.benchmarks.items import OVERALL
from reward.metaeval.bootstrap import Interval
from reward.report.report import Report
from reward.report.tables import Table, column_frame, few_images, interval_frame, percent

Correlations: TypeAlias = Mapping[str, Mapping[str, Mapping[str, Interval]]]  # {voter: {method: {kind: correlation}}}
_METHODS = {ELO: "Elo", BRADLEY_TERRY: "B-T", SCORE: "score"}
_HEADING = "Models by battles of their captions"


def arena_report(result: ArenaResult, *, command: str) -> Report:
    """Ratings; agreement with people; bias of each voter for each model; fixed ranking; CapArena-Auto's leaderboard.

    In JSON shares are fractions, NaN is null, and infinity "inf".
    """
    first = result.voters[0].name
    tables = [_ratings(first, result.ratings[first])]
    if result.agreement:
        tables += [_agreement(result), _bias(result)]
    if result.ranking is not None:
        tables.append(_fixed_ranking(result.correlations))
    for name, scores in result.auto.items():
        tables.append(_leaderboard(f"CapArena-Auto by {name}", scores))

    notes = list(_notes(result))
    figures: dict[str, Any] = {
        "seed": result.seed,
        "resamples": result.resamples,
        "battles": len(result.battles),
        "systems": result.order,
        "decided_by": first,
        "ratings": {},
        "agreement": result.agreement,
    }
    for name, methods in result.ratings.items():
        figures["ratings"][name] = {method: _ratings_figures(ratings) for method, ratings in methods.items()}
    if result.ranking is not None:
        figures |= {"ranking": result.ranking, "correlations": result.correlations}
    figures["weighted"] = "weight" in result.battles
    figures["caparena_auto"] = result.auto
    figures["deciders"] = {voter.name: _voter_figures(voter) for voter in result.voters}
    figures["notes"] = notes
    return Report("arena", _HEADING, command, figures, tables, notes)


def ranking_report(ranking: Ranking, correlations: Correlations, *, command: str) -> Report:
    """Leaderboards beside a fixed ranking, where there are no battles."""
    figures = {"ranking": ranking, "correlations": correlations}
    notes = [f"Fixed ranking: {ranking.source}"]
    return Report("arena", _HEADING, command, figures, [_fixed_ranking(correlations)], notes)


def _notes(result: ArenaResult) -> Iterator[str]:
    """How to read the tables, and what went wrong."""
    yield (
        "Bradley-Terry: maximum likelihood; a tie is half a win, 400 points are a chance of 10 to 1, the mean is 1000. "
        f"Elo: K = 4, median. Ranges: 95 % of {result.resamples} bootstrap resamples of the battles."
    )
    yield from few_images(result.battles["img"].nunique())
    if "weight" in result.battles:
        yield (
            "Weights: in Bradley-Terry each battle counts 1 / P, P being the share of its pair of models in all "
            "battles. Elo, agreement, bias and CapArena-Auto are not weighted."
        )
    if result.auto:
        yield (
            "CapArena-Auto: mean over the baselines of 100 (wins - losses) / battles, where one without a verdict that "
            "can be read is a tie; 0 against itself."
        )
    if result.ranking is not None:
        shared = result.ranking.common(name for name in model_pairs(result.battles)[0] if name != HUMAN)
        yield f"Fixed ranking: {result.ranking.source}; {len(shared)} models are in it and in the battles."
    if result.agreement:
        yield (
            "Agreement: share of battles with the people's verdict, ties included. Bias: win rate by the voter minus "
            "win rate by people. Battles of the source 'human' are left out. Intervals: 95 % of "
            f"{result.resamples} bootstrap resamples of whole images."
        )
    for voter in result.voters:
        if voter.position is not None and voter.position.first + voter.position.second:
            yield f"{voter.name}: the first caption {voter.position.sentence}"
        if voter.errors:
            yield f"{voter.name}: {voter.errors} without a result; the first: {voter.problem}"
        agreement = result.agreement.get(voter.name)
        if agreement is not None and agreement.without_verdict:
            count = agreement.without_verdict
            yield f"{voter.name}: {count} battles that people decided are left out, because it has no verdict on them"
    yield from result.notes


def _ratings(voter: str, ratings: Mapping[str, pd.DataFrame]) -> Table:
    exact, elo = ratings[BRADLEY_TERRY], ratings[ELO]
    rows = []
    for name, row in exact.iterrows():
        cells = [str(name)]
        for rating in (row, elo.loc[name]):
            cells.append(percent(Interval(rating["rating"], rating["low"], rating["high"]), scale=1, digits=0))
        rows.append([*cells, f"{row['battles']:.0f}", f"{100 * row['win_rate']:.1f}"])
    title = f"Ratings by {voter}: {exact['battles'].sum() // 2} battles"
    return Table(title, pd.DataFrame(rows, columns=["", "Bradley-Terry", "Elo", "battles", "won, %"]))


def _agreement(result: ArenaResult) -> Table:
    """Agreement at each level and over all, ties, correlations of the rankings, and mean bias of each voter."""
    columns: dict[str, dict[str, str]] = {OVERALL: {}}
    for name, agreement in result.agreement.items():
        for level, interval in agreement.levels.items():
            columns.setdefault(level, {})[name] = percent(interval)
    methods = [ELO, BRADLEY_TERRY] if result.ranking is None else []  # a fixed ranking has a table of its own
    # Levels come first, of whatever voter has them; these columns behind them.
    for column in ("ties", *_correlations({}, methods), "mean |bias|"):
        columns[column] = {}
    for name, agreement in result.agreement.items():
        columns["ties"][name] = f"{100 * agreement.ties:.1f} / {100 * agreement.human_ties:.1f}"
        for column, correlation in _correlations(agreement.ranking, methods).items():
            columns[column][name] = percent(correlation)
        columns["mean |bias|"][name] = f"{100 * agreement.mean_bias:.1f}"
    return Table("Agreement with people, x 100", column_frame(columns))


def _bias(result: ArenaResult) -> Table:
    rows: dict[str, dict[str, Interval]] = {}
    for model in result.order:
        for voter, agreement in result.agreement.items():
            if model in agreement.bias:
                rows.setdefault(model, {})[voter] = agreement.bias[model]
    frame = interval_frame(rows, result.agreement, write=partial(percent, sign="+"))
    return Table("Bias for each model, x 100", frame)


def _fixed_ranking(correlations: Correlations) -> Table:
    """Correlations of each voter's rankings with the fixed one."""
    # Leaderboards have only scores, and voters only ratings.
    methods = [method for method in _METHODS if any(method in row for row in correlations.values())]
    rows = {name: _correlations(row, methods) for name, row in correlations.items()}
    return Table("Correlation with the fixed ranking, x 100", interval_frame(rows, _correlations({}, methods)))


def _correlations(ranking: Mapping[str, Mapping[str, Interval]], methods: Sequence[str]) -> dict[str, Interval | None]:
    """{head of a column: correlation}, None where it could not be computed."""
    columns = {}
    for method in methods:
        for kind in (SPEARMAN, KENDALL):
            columns[f"{kind.capitalize()} ({_METHODS[method]})"] = ranking.get(method, {}).get(kind)
    return columns


def _leaderboard(title: str, scores: Sequence[Mapping[str, Any]]) -> Table:
    """Leaderboard of CapArena-Auto, in the columns of the published one."""
    rows = []
    for score in scores:
        against = pd.DataFrame(score["baselines"].values())
        judged = against[["wins", "ties", "losses"]].to_numpy().sum()
        cells = [score["model"]]
        for value in (score["score"], *against["score"], score["mean_words"]):
            cells.append("-" if math.isnan(value) else f"{value:.2f}")
        rows.append([*cells, f"{judged} of {judged + against['unjudged'].sum()}"])
    baselines = [f"against {name}" for name in scores[0]["baselines"]]
    return Table(title, pd.DataFrame(rows, columns=["", "score", *baselines, "mean words", "with a verdict"]))


def _ratings_figures(ratings: pd.DataFrame) -> dict[str, dict[str, Any]]:
    # JSON has no infinity, which is the rating of a model that won or lost all its battles.
    cells = ratings.astype(object).where(ratings.notna(), None).replace({math.inf: "inf", -math.inf: "-inf"})
    return {str(name): row.to_dict() for name, row in cells.iterrows()}


def _voter_figures(voter: Voter) -> dict[str, Any]:
    return {
        "threshold": voter.threshold,
        "position_bias": None if voter.position is None else voter.position.to_json(),
        "errors": voter.errors,
        "first_error": voter.problem or None,
    }
