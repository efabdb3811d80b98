"""The report of an arena: tables as text and Markdown, plots, values for JSON, and everything on one HTML page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from reward.arena.agreement import KENDALL, SPEARMAN, ArenaAgreement
from reward.arena.caparena_auto import AutoScore
from reward.arena.ranking import SCORE, Ranking
from reward.arena.ratings import BRADLEY_TERRY, ELO
from reward.arena.result import ArenaResult
from reward.battles import HUMAN
from reward.errors import OutputError
from reward.metaeval.benchmarks.items import OVERALL
from reward.metaeval.bootstrap import Interval
from reward.metaeval.report import (
    BEST,
    FEW_IMAGES,
    INK,
    PLAIN,
    SOFT,
    Grid,
    bare,
    blank_figure,
    check_report,
    few_images,
    page_svg,
    percent,
    plain,
    versions,
    write_pages,
)

__all__ = [
    "auto_grid",
    "bias_plot",
    "correlation_grid",
    "grids",
    "notes",
    "ranking_json",
    "rating_plot",
    "save_plot",
    "to_json",
    "write_arena",
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


# Plots

_OVER, _UNDER = "#d1495b", "#2f7ed8"


def rating_plot(result: ArenaResult) -> Any:
    """Ratings of the first voter by Bradley-Terry and by Elo, best model on top.

    A model whose rating is infinite has an arrow at the edge.

    Args:
        result: of `rate_arena`.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    order = result.order
    figure, axes = blank_figure(0.8 + 0.34 * len(order))
    methods = result.ratings[result.voters[0].name]
    drawn = ((BRADLEY_TERRY, "Bradley-Terry", BEST, -0.13), (ELO, "Elo", PLAIN, 0.13))
    for method, label, tone, shift in drawn:
        kept = [row for row, name in enumerate(order) if math.isfinite(methods[method].ratings[name].value)]
        intervals = [methods[method].ratings[order[row]] for row in kept]
        value, low, high = np.array([[each.value, each.low, each.high] for each in intervals]).reshape(-1, 3).T
        axes.errorbar(
            value,
            np.array(kept) + shift,
            xerr=np.stack([np.maximum(value - low, 0), np.maximum(high - value, 0)]),
            fmt="o",
            ms=4,
            lw=1.2,
            color=tone,
            label=label,
        )
    for row, name in enumerate(order):
        value = methods[BRADLEY_TERRY].ratings[name].value
        if math.isinf(value):
            side = 0.99 if value > 0 else 0.01
            mark = ">" if value > 0 else "<"
            axes.plot(side, row - 0.13, mark, ms=6, color=BEST, transform=axes.get_yaxis_transform())
    _names(axes, order)
    axes.set_xlabel("rating, with 95 % intervals")
    axes.legend(fontsize=8, frameon=False, labelcolor=INK, loc="lower right")
    return figure


def bias_plot(result: ArenaResult) -> Any:
    """Win rate by each voter minus win rate by people, for each model; with 95 % intervals.

    Args, Raises: as for `rating_plot`. There must be agreement with people.
    """
    order = [name for name in result.order if any(name in agreement.bias for agreement in result.agreement.values())]
    count = len(result.agreement)
    figure, axes = blank_figure(0.8 + 0.3 * len(order), width=1.8 + 2.3 * count)
    axes.remove()
    panels = np.atleast_1d(figure.subplots(1, count, sharey=True, sharex=True))
    for panel, (name, agreement) in zip(panels, result.agreement.items(), strict=True):
        rows = [row for row, model in enumerate(order) if model in agreement.bias]
        biases = [agreement.bias[order[row]] for row in rows]
        value, low, high = 100 * np.array([[bias.value, bias.low, bias.high] for bias in biases]).T
        tones = [_OVER if each > 0 else _UNDER for each in value]
        errors = np.stack([np.maximum(value - low, 0), np.maximum(high - value, 0)])
        panel.barh(rows, value, xerr=errors, color=tones, ecolor=INK, height=0.6, error_kw={"lw": 1})
        panel.set_title(name, fontsize=8, color=INK, parse_math=False)
        _names(panel, order)
        panel.set_xlabel("bias, %")
        panel.axvline(0, color=SOFT, lw=0.8)
    return figure


def save_plot(figure: Any, stem: Path) -> list[Path]:
    """Writes STEM.png and STEM.svg of a figure.

    Raises:
        OutputError: a file cannot be written.
    """
    import matplotlib

    bare(figure)
    written = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
    for path in written:
        try:
            with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "capreward"}):  # the same each time
                figure.savefig(path, facecolor="white", metadata={"Date": None} if path.suffix == ".svg" else None)
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
    return written


def _names(axes: Any, order: list[str]) -> None:
    axes.set_yticks(range(len(order)), order, parse_math=False)  # a dollar is a dollar
    axes.set_ylim(len(order) - 0.5, -0.5)
    axes.set_axisbelow(True)
    axes.grid(axis="x", color=SOFT, alpha=0.25, lw=0.6)


def write_arena(folder: Path, result: ArenaResult, *, command: str) -> Path:
    """Writes arena.json, arena.md, arena.html, and ratings and bias as .png and .svg.

    Args:
        folder: made if absent.
        result: of `rate_arena`.
        command: as it was typed.

    Returns:
        Path of the page, which needs no other file.

    Raises:
        MissingExtraError: matplotlib is not installed.
        OutputError: a file cannot be written.
    """
    check_report(folder)
    plots = {"ratings": rating_plot(result), **({"bias": bias_plot(result)} if result.agreement else {})}
    for name, plot in plots.items():
        save_plot(plot, folder / name)
    figures = to_json(result, command=command)
    section = ("Plots", {name: page_svg(plot) for name, plot in plots.items()})
    pictures = {name: f"{name}.png" for name in plots}
    return write_pages(
        folder, "arena", "Arena", figures, grids(result), list(notes(result)), [section], pictures=pictures
    )
