"""The tables of an arena as text, Markdown, and plain values for JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reward.metaeval.arena.agreement import KENDALL, SPEARMAN, ArenaAgreement
from reward.metaeval.arena.ratings import BRADLEY_TERRY, ELO
from reward.metaeval.arena.result import ArenaResult
from reward.metaeval.benchmarks.items import OVERALL
from reward.metaeval.bootstrap import Interval
from reward.metaeval.tables import FEW_IMAGES, Grid, few_images, percent, plain, versions

__all__ = ["grids", "notes", "to_json"]

_RANKS = ((ELO, SPEARMAN), (ELO, KENDALL), (BRADLEY_TERRY, SPEARMAN), (BRADLEY_TERRY, KENDALL))


def grids(result: ArenaResult) -> list[Grid]:
    """Ratings; agreement with people; and the bias of each decider for each model."""
    shown = [_ratings(result)]
    if result.agreement:
        shown += [_agreement(result), _bias(result)]
    return shown


def notes(result: ArenaResult) -> Iterator[str]:
    """What one must know to read the tables, and what went wrong."""
    yield (
        "Bradley-Terry: maximum likelihood, a tie half a win, 400 points a chance of 10 to 1, mean 1000; 95 % "
        "intervals that allow for shared images. Elo: K = 4, median and 95 % range of "
        f"{result.resamples} resamples of the battles."
    )
    images = len(set(result.arena.images))
    if images < FEW_IMAGES:
        yield few_images(images)
    if result.prior:
        yield f"Prior: {result.prior:g} more games of each model with an average one, half of them won."
    if result.agreement:
        yield (
            "Agreement: share of battles with the people's verdict, ties counted; ties: the decider's and the people's "
            "share; rankings of the models compared with the people's. Battles of the source 'human' are left out. "
            f"95 % intervals of {result.resamples} bootstrap resamples of whole images."
        )
        yield "Bias: win rate by the decider minus win rate by people, a tie half; positive overestimates the model."
    for decider in result.deciders:
        position = decider.position
        if position is not None and position.first + position.second:
            line = (
                f"{decider.name}: the first caption won {100 * position.first_share:.1f}% of the answers with a winner"
            )
            if position.both_orders:
                line += f"; the two orders disagree in {100 * position.inconsistency:.1f}% of the pairs"
            yield line
        if decider.errors:
            yield f"{decider.name}: {decider.errors} without a result; the first: {decider.problem}"
    for name, agreement in result.agreement.items():
        if agreement.without_verdict:
            count = agreement.without_verdict
            yield f"{name}: {count} battles that people have decided are left out, having no verdict"
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
        "prior": result.prior,
        "battles": len(result.arena),
        "systems": result.order,
        "decided_by": result.deciders[0].name,
        "ratings": {
            name: {method: ratings.to_json() for method, ratings in methods.items()}
            for name, methods in result.ratings.items()
        },
        "agreement": {name: _agreement_json(agreement) for name, agreement in result.agreement.items()},
        "deciders": {
            decider.name: {
                "threshold": decider.threshold,
                "position_bias": None if decider.position is None else decider.position.to_json(),
                "errors": decider.errors,
                "first_error": decider.problem or None,
            }
            for decider in result.deciders
        },
        "notes": list(notes(result)),
    }


def _agreement_json(agreement: ArenaAgreement) -> dict[str, Any]:
    names = ("levels", "battles", "without_verdict", "ties", "human_ties", "ranking", "bias", "mean_bias")
    described: dict[str, Any] = plain({name: getattr(agreement, name) for name in names})
    return described


def _ratings(result: ArenaResult) -> Grid:
    first = result.deciders[0].name
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
    rows = []
    for name, agreement in result.agreement.items():
        cells = [percent(agreement.levels.get(level)) for level in columns]
        ties = f"{100 * agreement.ties:.1f} / {100 * agreement.human_ties:.1f}"
        ranks = [percent(agreement.ranking.get(method, {}).get(kind)) for method, kind in _RANKS]
        rows.append((name, *cells, ties, *ranks, f"{100 * agreement.mean_bias:.1f}"))
    heads = ("", *columns, "ties", "Spearman (Elo)", "Kendall (Elo)", "Spearman (B-T)", "Kendall (B-T)", "mean |bias|")
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
