"""What `capreward arena` shows: tables as text, remarks, and values for JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pandas as pd

from reward.metaeval.arena.battles import HUMAN
from reward.metaeval.arena.ratings import BRADLEY_TERRY, ELO, KENDALL, SCORE, SPEARMAN, Ranking, model_pairs
from reward.metaeval.arena.result import ArenaResult
from reward.metaeval.benchmarks.items import OVERALL
from reward.metaeval.bootstrap import Interval
from reward.metaeval.report import FEW_IMAGES, Grid, few_images, percent, plain, versions

Correlations: TypeAlias = Mapping[str, Mapping[str, Mapping[str, Interval]]]  # {voter: {method: {kind: correlation}}}
_SHORT = {ELO: "Elo", BRADLEY_TERRY: "B-T", SCORE: "score"}


def grids(result: ArenaResult) -> list[Grid]:
    """Ratings; agreement with people; bias of each voter for each model; fixed ranking; CapArena-Auto's leaderboard."""
    shown = [_ratings(result)]
    if result.agreement:
        shown += [_agreement(result), _bias(result)]
    if result.ranking is not None:
        shown.append(correlation_grid(result.correlations))
    return shown + [_auto(scores, f"CapArena-Auto by {name}") for name, scores in result.auto.items()]


def notes(result: ArenaResult) -> Iterator[str]:
    """How to read the tables, and what went wrong."""
    yield (
        "Bradley-Terry: maximum likelihood; a tie is half a win, 400 points are a chance of 10 to 1, the mean is 1000. "
        f"Elo: K = 4, median. Ranges: 95 % of {result.resamples} bootstrap resamples of the battles."
    )
    images = result.battles["img"].nunique()
    if images < FEW_IMAGES:
        yield few_images(images)
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


def to_json(result: ArenaResult, *, command: str) -> dict[str, Any]:
    """Everything as plain JSON values: shares are fractions, NaN is null, infinity "inf"."""
    return {
        "command": command,
        "versions": versions(),
        "seed": result.seed,
        "resamples": result.resamples,
        "battles": len(result.battles),
        "systems": result.order,
        "decided_by": result.voters[0].name,
        "ratings": {
            voter: {method: _rows(rows) for method, rows in methods.items()}
            for voter, methods in result.ratings.items()
        },
        "agreement": {name: plain(vars(agreement)) for name, agreement in result.agreement.items()},
        **({} if result.ranking is None else ranking_json(result.ranking, result.correlations)),
        "weighted": "weight" in result.battles,
        "caparena_auto": plain(dict(result.auto)),
        "deciders": {
            voter.name: {
                "threshold": voter.threshold,
                "position_bias": None if voter.position is None else voter.position.to_json(),
                "errors": voter.errors,
                "first_error": voter.problem or None,
            }
            for voter in result.voters
        },
        "notes": list(notes(result)),
    }


def ranking_json(ranking: Ranking, correlations: Correlations) -> dict[str, Any]:
    """The fixed ranking and the correlations with it as plain JSON values."""
    return {"ranking": plain(vars(ranking)), "correlations": plain(correlations)}


def correlation_grid(correlations: Correlations) -> Grid:
    """Correlations of each voter's rankings with the fixed one."""
    methods = [method for method in _SHORT if any(method in row for row in correlations.values())]
    return Grid(
        "Correlation with the fixed ranking, x 100",
        ("", *_rank_heads(methods)),
        tuple((name, *_rank_cells(row, methods)) for name, row in correlations.items()),
    )


def _rank_heads(methods: Sequence[str]) -> Iterator[str]:
    return (f"{kind.capitalize()} ({_SHORT[method]})" for method in methods for kind in (SPEARMAN, KENDALL))


def _rank_cells(row: Mapping[str, Mapping[str, Interval]], methods: Sequence[str]) -> Iterator[str]:
    return (percent(row.get(method, {}).get(kind)) for method in methods for kind in (SPEARMAN, KENDALL))


def _auto(scores: Sequence[Mapping[str, Any]], title: str) -> Grid:
    """Leaderboard of CapArena-Auto, in the columns of the published one."""
    rows = []
    for score in scores:
        parts = score["baselines"].values()
        values = [score["score"], *(part["score"] for part in parts), score["mean_words"]]
        judged = sum(part["wins"] + part["ties"] + part["losses"] for part in parts)
        met = judged + sum(part["unjudged"] for part in parts)
        shown = ("-" if math.isnan(value) else f"{value:.2f}" for value in values)
        rows.append((score["model"], *shown, f"{judged} of {met}"))
    against = (f"against {name}" for name in scores[0]["baselines"])
    return Grid(title, ("", "score", *against, "mean words", "with a verdict"), tuple(rows))


def _ratings(result: ArenaResult) -> Grid:
    first = result.voters[0].name
    exact, elo = (result.ratings[first][method] for method in (BRADLEY_TERRY, ELO))
    rows = []
    for name, row in exact.iterrows():
        cells = [
            percent(Interval(each["rating"], each["low"], each["high"]), scale=1, digits=0)
            for each in (row, elo.loc[name])
        ]
        rows.append((str(name), *cells, f"{row['battles']:.0f}", f"{100 * row['win_rate']:.1f}"))
    title = f"Ratings by {first}: {exact['battles'].sum() // 2} battles"
    return Grid(title, ("", "Bradley-Terry", "Elo", "battles", "won, %"), tuple(rows))


def _agreement(result: ArenaResult) -> Grid:
    levels = dict.fromkeys(level for agreement in result.agreement.values() for level in agreement.levels)
    columns = [OVERALL, *(level for level in levels if level != OVERALL)]
    methods = [ELO, BRADLEY_TERRY] if result.ranking is None else []  # a fixed ranking has a table of its own
    rows = []
    for name, agreement in result.agreement.items():
        cells = [percent(agreement.levels.get(level)) for level in columns]
        ties = f"{100 * agreement.ties:.1f} / {100 * agreement.human_ties:.1f}"
        rows.append((name, *cells, ties, *_rank_cells(agreement.ranking, methods), f"{100 * agreement.mean_bias:.1f}"))
    heads = ("", *columns, "ties", *_rank_heads(methods), "mean |bias|")
    return Grid("Agreement with people, x 100", heads, tuple(rows))


def _bias(result: ArenaResult) -> Grid:
    rows = []
    for name in result.order:
        cells = [agreement.bias.get(name) for agreement in result.agreement.values()]
        if any(cell is not None for cell in cells):
            rows.append((name, *(percent(cell, sign="+") for cell in cells)))
    return Grid("Bias for each model, x 100", ("", *result.agreement), tuple(rows))


def _rows(ratings: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Ratings for JSON."""
    cells = ratings.astype(object).where(ratings.notna(), None).replace({math.inf: "inf", -math.inf: "-inf"})
    return {str(name): row.to_dict() for name, row in cells.iterrows()}
