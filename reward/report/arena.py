"""The report of an arena: ratings, agreement with people, leaderboards, and how to read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pandas as pd

from reward.metaeval.arena.battles import HUMAN
from reward.metaeval.arena.model_ratings import BRADLEY_TERRY, ELO, KENDALL, SCORE, SPEARMAN, Ranking, model_pairs
from reward.metaeval.arena.result import ArenaResult
from reward.metaeval.benchmarks.items import OVERALL
from reward.metaeval.bootstrap import Interval
from reward.report.report import Report
from reward.report.tables import Table, few_images, frame_of_rows, percent

Correlations: TypeAlias = Mapping[str, Mapping[str, Mapping[str, Interval]]]  # {voter: {method: {kind: correlation}}}
_METHODS = {ELO: "Elo", BRADLEY_TERRY: "B-T", SCORE: "score"}
_HEADING = "Models by battles of their captions"


def arena_report(result: ArenaResult, *, command: str) -> Report:
    """Ratings; agreement with people; bias of each voter for each model; fixed ranking; CapArena-Auto's leaderboard."""
    first = result.voters[0].name
    tables = [_ratings(first, result.ratings[first])]
    if result.agreement:
        tables += [_agreement(result), _bias(result)]
    if result.ranking is not None:
        tables.append(_fixed_ranking(result.correlations))
    for name, scores in result.auto.items():
        tables.append(_leaderboard(f"CapArena-Auto by {name}", scores))

    figures = {"seed": result.seed, "resamples": result.resamples}
    return Report("arena", _HEADING, command, figures, tables, list(_notes(result)))


def ranking_report(ranking: Ranking, correlations: Correlations, *, command: str) -> Report:
    """Leaderboards beside a fixed ranking, where there are no battles."""
    notes = [f"Fixed ranking: {ranking.source}"]
    return Report("arena", _HEADING, command, {}, [_fixed_ranking(correlations)], notes)


def _notes(result: ArenaResult) -> Iterator[str]:
    """How to read the tables, and what went wrong."""
    yield (
        "Bradley-Terry: maximum likelihood; a tie is half a win, the mean is 1000. Elo: K = 4, median. [low, high]: "
        f"95 % of {result.resamples} bootstrap resamples of the battles, and of whole images for agreement and bias."
    )
    yield from few_images(result.battles["img"].nunique())
    if "weight" in result.battles:
        yield "In Bradley-Terry each battle counts 1 / P, P being the share of its pair of models in all battles."
    if result.ranking is not None:
        shared = result.ranking.common(name for name in model_pairs(result.battles)[0] if name != HUMAN)
        yield f"Fixed ranking: {result.ranking.source}; {len(shared)} models are in it and in the battles."
    if result.agreement:
        yield "Bias: win rate by the voter minus win rate by people. Battles of the source 'human' are left out."
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
    rows = {}
    for name, row in exact.iterrows():
        other = elo.loc[name]
        rows[str(name)] = {
            "Bradley-Terry": Interval(row["rating"], row["low"], row["high"]),
            "Elo": Interval(other["rating"], other["low"], other["high"]),
            "battles": int(row["battles"]),
            "won, %": 100 * row["win_rate"],
        }
    title = f"Ratings by {voter}: {exact['battles'].sum() // 2} battles"
    return Table(title, frame_of_rows(rows), form=".0f", forms={"won, %": ".1f"})


def _agreement(result: ArenaResult) -> Table:
    """Agreement at each level and over all, ties, correlations of the rankings, and mean bias of each voter."""
    # Levels come first, of whatever voter has them; the other columns behind them.
    levels = dict.fromkeys(level for agreement in result.agreement.values() for level in agreement.levels)
    rows = {}
    for name, agreement in result.agreement.items():
        row: dict[str, Any] = {OVERALL: percent(agreement.levels[OVERALL])}
        for level in levels:
            row[level] = percent(agreement.levels.get(level))
        row |= {"battles": agreement.battles[OVERALL], "ties": 100 * agreement.ties}
        row["ties of people"] = 100 * agreement.human_ties
        if result.ranking is None:  # a fixed ranking has a table of its own
            row |= _correlations(agreement.ranking, (ELO, BRADLEY_TERRY))
        rows[name] = {**row, "mean |bias|": 100 * agreement.mean_bias}
    return Table("Agreement with people, x 100", frame_of_rows(rows))


def _bias(result: ArenaResult) -> Table:
    rows: dict[str, dict[str, Interval | None]] = {}
    for model in result.order:
        for voter, agreement in result.agreement.items():
            if model in agreement.bias:
                rows.setdefault(model, {})[voter] = percent(agreement.bias[model])
    return Table("Bias for each model, x 100", frame_of_rows(rows), form="+.1f")


def _fixed_ranking(correlations: Correlations) -> Table:
    """Correlations of each voter's rankings with the fixed one."""
    # Leaderboards have only scores, and voters only ratings.
    methods = [method for method in _METHODS if any(method in row for row in correlations.values())]
    rows = {name: _correlations(row, methods) for name, row in correlations.items()}
    return Table("Correlation with the fixed ranking, x 100", frame_of_rows(rows))


def _correlations(ranking: Mapping[str, Mapping[str, Interval]], methods: Sequence[str]) -> dict[str, Interval | None]:
    """{head of a column: correlation}, None where it could not be computed."""
    columns = {}
    for method in methods:
        for kind in (SPEARMAN, KENDALL):
            correlation = ranking.get(method, {}).get(kind)
            columns[f"{kind.capitalize()} ({_METHODS[method]})"] = percent(correlation)
    return columns


def _leaderboard(title: str, scores: Sequence[Mapping[str, Any]]) -> Table:
    """Leaderboard of CapArena-Auto, in the columns of the published one."""
    rows = {}
    for score in scores:
        row = {"score": score["score"]}
        for name, against in score["baselines"].items():
            row[f"against {name}"] = against["score"]
        counts = pd.DataFrame(score["baselines"].values())
        judged = int(counts[["wins", "ties", "losses"]].to_numpy().sum())
        row |= {"mean words": score["mean_words"], "judged": judged, "not judged": int(counts["unjudged"].sum())}
        rows[score["model"]] = row
    return Table(title, frame_of_rows(rows), form=".2f")
