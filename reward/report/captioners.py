"""The report of two captioners: their scores, and the images on which these differ most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reward.metaeval.two_captioners import Captioners
from reward.report.page import Card, Report, picture_card
from reward.report.tables import Grid, percent


def compare_report(
    names: Sequence[str],
    comparisons: Sequence[Captioners],
    *,
    command: str,
    resamples: int,
    seed: int,
    examples: int = 0,
) -> Report:
    """A row for each metric, and pictures of so many images on which the first metric sees the largest differences."""
    rows = []
    figures: list[dict[str, Any]] = []
    for comparison in comparisons:
        means = comparison.scores.mean(axis=1)
        figures.append(
            {
                "metric": comparison.metric,
                "items": len(comparison.images),
                "scores": means.tolist(),
                "difference": comparison.difference,
                "win_rate": comparison.win_rate,
                "unscored": comparison.unscored,
                "note": comparison.note,
            }
        )
        cells = [comparison.metric, *(f"{mean:.3f}" for mean in means)]
        cells.append(percent(comparison.difference, scale=1, digits=3, sign="+"))
        rows.append([*cells, percent(comparison.win_rate), str(len(comparison.images))])
    heads = ("", *names, f"{names[0]} - {names[1]}", f"{names[0]} wins, %", "images")
    return Report(
        "compare",
        " and ".join(names),
        command,
        {"captioners": names, "resamples": resamples, "seed": seed, "rows": figures},
        [Grid(f"{names[0]} and {names[1]} on the same images", heads, rows)],
        [f"{comparison.metric}: {comparison.note}" for comparison in comparisons],
        galleries=_galleries(names, comparisons[0], examples),
    )


def _galleries(names: Sequence[str], comparison: Captioners, examples: int) -> dict[str, list[Card]]:
    """For each captioner the images on which it is better by most."""
    galleries = {}
    gains = comparison.scores[0] - comparison.scores[1]
    for name, gains_of_name in zip(names, (gains, -gains), strict=True):
        cards = []
        for row in np.argsort(-gains_of_name, kind="stable")[:examples].tolist():
            if gains_of_name[row] > 0:
                lines = []
                for captioner, score, text in zip(
                    names, comparison.scores[:, row], comparison.captions[:, row], strict=True
                ):
                    lines.append(f"{captioner} ({score:.3f}): {text}")
                cards.append(picture_card(comparison.images[row], "\n".join(lines)))
        if cards:
            galleries[f"{name} is better, by {comparison.metric}"] = cards
    return galleries
