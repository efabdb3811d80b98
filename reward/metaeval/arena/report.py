"""What `capreward arena` shows: tables as text, remarks, and values for JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from reward.metaeval.arena.agreement import KENDALL, SPEARMAN, ArenaAgreement
from reward.metaeval.arena.battles import HUMAN
from reward.metaeval.arena.caparena_auto import AutoScore
from reward.metaeval.arena.ranking import SCORE, Ranking
from reward.metaeval.arena.ratings import BRADLEY_TERRY, ELO
from reward.metaeval.arena.result import ArenaResult
from reward.metaeval.benchmarks.items import OVERALL
from reward.metaeval.bootstrap import Interval
from reward.metaeval.report import FEW_IMAGES, Grid, few_images, percent, plain, versions

__all__ = [
    "auto_grid",
    "correlation_grid",
    "grids",
    "notes",
    "ranking_json",
    "to_json",
]

Correlations: TypeAlias = Mapping[str, Mapping[str, Mapping[str, Interval]]]  # {voter: {method: {kind: correlation}}}
_SHORT = {ELO: "Elo", BRADLEY_TERRY: "B-T", SCORE: "score"}
_RANKS = ((ELO, SPEARMAN), (ELO, KENDALL), (BRADLEY_TERRY, SPEARMAN), (BRADLEY_TERRY, KENDALL))


def grids(result: ArenaResult) -> list[Grid]:
    """Ratings; agreement with people; bias of each voter for each model; fixed ranking; CapArena-Auto's leaderboard."""
    shown = [_ratings(result)]
    if result.agreement:
        shown += [_agreement(result), _bias(result)]
    if result.ranking is not None:
        shown.append(correlation_grid(result.correlations))
    return shown + [auto_grid(scores, f"CapArena-Auto by {name}") for name, scores in result.auto.items()]


def notes(result: ArenaResult) -> Iterator[str]:
    """How to read the tables, and what went wrong."""
    yield (
        "Bradley-Terry: maximum likelihood; a tie is half a win, 400 points are a chance of 10 to 1, the mean is 1000; "
        "95 % intervals allow for shared images. Elo: K = 4, median and 95 % range of "
        f"{result.resamples} resamples of the battles."
    )
    images = len(set(result.arena.images))
    if images < FEW_IMAGES:
        yield few_images(images)
    if result.arena.weights is not None:
        yield (
            "Weights: in Bradley-Terry each battle counts 1 / P, P being the share of its pair of models in all "
            "battles. Elo, agreement, bias and CapArena-Auto are not weighted."
        )
    if result.auto:
        yield (
            "CapArena-Auto: mean over the baselines of 100 (wins - losses) / battles with a verdict; of a baseline, 0 "
            "against itself."
        )
    if result.ranking is not None:
        shared = result.ranking.common(name for name in result.arena.systems if name != HUMAN)
        yield f"Fixed ranking: {result.ranking.source}; {len(shared)} models are in it and in the battles."
    if result.agreement:
        own = "Rankings are compared with the people's. "
        yield (
            "Agreement: share of battles with the people's verdict, ties included. Ties: share by the voter and by "
            f"people. {'' if result.ranking else own}Battles of the source 'human' are left out. "
            f"95 % intervals of {result.resamples} bootstrap resamples of whole images."
        )
        yield "Bias: win rate by the voter minus win rate by people; positive values overestimate the model."
    for voter in result.voters:
        position = voter.position
        if position is not None and position.first + position.second:
            yield f"{voter.name}: the first caption {position.sentence}"
        if voter.errors:
            yield f"{voter.name}: {voter.errors} without a result; the first: {voter.problem}"
    for name, agreement in result.agreement.items():
        if agreement.without_verdict:
            count = agreement.without_verdict
            yield f"{name}: {count} battles that people decided are left out, because it has no verdict on them"
        if not agreement.ranking:
            yield f"{name}: no ranking, since the battles decided by both do not link all models"
    yield from result.notes


def to_json(result: ArenaResult, *, command: str) -> dict[str, Any]:
    """Everything as plain JSON values: shares are fractions, NaN is null, infinity "inf"."""
    return {
        "command": command,
        "versions": versions(),
        "seed": result.seed,
        "resamples": result.resamples,
        "battles": len(result.arena),
        "systems": result.order,
        "decided_by": result.voters[0].name,
        "ratings": {
            name: {method: ratings.to_json() for method, ratings in methods.items()}
            for name, methods in result.ratings.items()
        },
        "agreement": {name: _agreement_json(agreement) for name, agreement in result.agreement.items()},
        **({} if result.ranking is None else ranking_json(result.ranking, result.correlations)),
        "weighted": result.arena.weights is not None,
        "caparena_auto": {name: [score.to_json() for score in scores] for name, scores in result.auto.items()},
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
    cells = [(method, kind) for method in methods for kind in (SPEARMAN, KENDALL)]
    rows = [
        (name, *(percent(row.get(method, {}).get(kind)) for method, kind in cells))
        for name, row in correlations.items()
    ]
    heads = ("", *(f"{kind.capitalize()} ({_SHORT[method]})" for method, kind in cells))
    return Grid("Correlation with the fixed ranking, x 100", heads, tuple(rows))


def auto_grid(scores: Sequence[AutoScore], title: str) -> Grid:
    """Leaderboard of CapArena-Auto, in the columns of the published one."""
    baselines = list(scores[0].baselines)
    rows = []
    for score in scores:
        parts = list(score.baselines.values())
        values = [_number(value) for value in (score.score, *(part.score for part in parts), score.mean_words)]
        judged, missing = sum(part.judged for part in parts), sum(part.unjudged for part in parts)
        rows.append((score.model, *values, f"{judged} of {judged + missing}"))
    heads = ("", "score", *(f"against {name}" for name in baselines), "mean words", "with a verdict")
    return Grid(title, heads, tuple(rows))


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"


def _agreement_json(agreement: ArenaAgreement) -> dict[str, Any]:
    names = ("levels", "battles", "without_verdict", "ties", "human_ties", "ranking", "bias", "mean_bias")
    described: dict[str, Any] = plain({name: getattr(agreement, name) for name in names})
    return described


def _ratings(result: ArenaResult) -> Grid:
    first = result.voters[0].name
    exact, elo = (result.ratings[first][method] for method in (BRADLEY_TERRY, ELO))
    rows = [
        (
            name,
            _points(exact.ratings[name]),
            _points(elo.ratings[name]),
            str(exact.battles[name]),
            f"{100 * exact.win_rates[name]:.1f}",
        )
        for name in result.order
    ]
    title = f"Ratings by {first}: {sum(exact.battles.values()) // 2} battles"
    return Grid(title, ("", "Bradley-Terry", "Elo", "battles", "won, %"), tuple(rows))


def _agreement(result: ArenaResult) -> Grid:
    levels = list(dict.fromkeys(level for agreement in result.agreement.values() for level in agreement.levels))
    levels.remove(OVERALL)
    columns = [OVERALL, *levels]
    shown = _RANKS if result.ranking is None else ()  # a fixed ranking has a table of its own
    rows = []
    for name, agreement in result.agreement.items():
        cells = [percent(agreement.levels.get(level)) for level in columns]
        ties = f"{100 * agreement.ties:.1f} / {100 * agreement.human_ties:.1f}"
        ranks = [percent(agreement.ranking.get(method, {}).get(kind)) for method, kind in shown]
        rows.append((name, *cells, ties, *ranks, f"{100 * agreement.mean_bias:.1f}"))
    ranked = (f"{kind.capitalize()} ({_SHORT[method]})" for method, kind in shown)
    heads = ("", *columns, "ties", *ranked, "mean |bias|")
    return Grid("Agreement with people, x 100", heads, tuple(rows))


def _bias(result: ArenaResult) -> Grid:
    rows = []
    for name in result.order:
        cells = [agreement.bias.get(name) for agreement in result.agreement.values()]
        if any(cell is not None for cell in cells):
            rows.append((name, *(percent(cell, sign="+") for cell in cells)))
    return Grid("Bias for each model, x 100", ("", *result.agreement), tuple(rows))


def _points(interval: Interval) -> str:
    return percent(interval, scale=1, digits=0)
