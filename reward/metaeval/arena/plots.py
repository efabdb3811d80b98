"""Plots of an arena: ratings with their intervals, and what each decider makes of each model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from reward.errors import OutputError
from reward.metaeval.arena.ratings import BRADLEY_TERRY, ELO
from reward.metaeval.arena.result import ArenaResult
from reward.metaeval.plots import BEST, INK, PLAIN, SOFT, bare, blank_figure

__all__ = ["COLOURS", "bias_plot", "rating_plot", "save_plot"]

# In files, which have no page around them, what the page's colours stand for.
COLOURS = {INK: "#1b2330", SOFT: "#5c6878", BEST: "#2f5bea", PLAIN: "#aab2bf"}
_OVER, _UNDER = "#d1495b", "#2f7ed8"


def rating_plot(result: ArenaResult, colours: dict[str, str] | None = None) -> Any:
    """Ratings of the first decider by Bradley-Terry and by Elo, best model on top.

    A model whose rating is infinite has an arrow at the edge.

    Args:
        result: of `rate_arena`.
        colours: {placeholder: colour}; None keeps the placeholders for `page_svg`.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    colour = {name: (colours or {}).get(name, name) for name in COLOURS}
    order = result.order
    figure, axes = blank_figure(0.8 + 0.34 * len(order))
    methods = result.ratings[result.deciders[0].name]
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
            color=colour[tone],
            label=label,
        )
    for row, name in enumerate(order):
        value = methods[BRADLEY_TERRY].ratings[name].value
        if math.isinf(value):
            side = 0.99 if value > 0 else 0.01
            mark = ">" if value > 0 else "<"
            axes.plot(side, row - 0.13, mark, ms=6, color=colour[BEST], transform=axes.get_yaxis_transform())
    _names(axes, order, colour)
    axes.set_xlabel("rating, with 95 % intervals")
    axes.legend(fontsize=8, frameon=False, labelcolor=colour[INK], loc="lower right")
    return figure


def bias_plot(result: ArenaResult, colours: dict[str, str] | None = None) -> Any:
    """Win rate by each decider minus win rate by people, for each model; with 95 % intervals.

    Args, Raises: as for `rating_plot`. There must be agreement with people.
    """
    colour = {name: (colours or {}).get(name, name) for name in COLOURS}
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
        panel.barh(rows, value, xerr=errors, color=tones, ecolor=colour[INK], height=0.6, error_kw={"lw": 1})
        panel.set_title(name, fontsize=8, color=colour[INK], parse_math=False)
        _names(panel, order, colour)
        panel.set_xlabel("bias, %")
        panel.axvline(0, color=colour[SOFT], lw=0.8)
    return figure


def save_plot(figure: Any, stem: Path) -> list[Path]:
    """Writes STEM.png and STEM.svg of a figure that was drawn with `COLOURS`.

    Raises:
        OutputError: a file cannot be written.
    """
    import matplotlib

    bare(figure, ink=COLOURS[INK], soft=COLOURS[SOFT])
    written = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
    for path in written:
        try:
            with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "capreward"}):  # the same each time
                figure.savefig(path, facecolor="white", metadata={"Date": None} if path.suffix == ".svg" else None)
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
    return written


def _names(axes: Any, order: list[str], colour: dict[str, str]) -> None:
    axes.set_yticks(range(len(order)), order, parse_math=False)  # a dollar is a dollar
    axes.set_ylim(len(order) - 0.5, -0.5)
    axes.set_axisbelow(True)
    axes.grid(axis="x", color=colour[SOFT], alpha=0.25, lw=0.6)
