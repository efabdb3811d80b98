"""The report of two captioners: their scores, and the images on which these differ most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from reward.metaeval.bootstrap import RESAMPLES
from reward.metaeval.two_captioners import Captioners
from reward.report.page import Picture, read_picture
from reward.report.report import Report
from reward.report.tables import Table, percent

_PICTURES = 12  # of images for each captioner


def compare_report(
    names: Sequence[str], comparisons: Sequence[Captioners], *, command: str, with_pictures: bool
) -> Report:
    """A row for each metric, and pictures of the images on which the first metric sees the largest differences."""
    rows = []
    figures: list[dict[str, Any]] = []
    for comparison in comparisons:
        means = comparison.scores.mean(axis=1)
        numbers = {name: getattr(comparison, name) for name in ("metric", "difference", "win_rate", "unscored", "note")}
        figures.append({**numbers, "items": len(comparison.images), "scores": means.tolist()})
        difference = percent(comparison.difference, scale=1, digits=3, sign="+")
        scores = [f"{mean:.3f}" for mean in means]
        images = str(len(comparison.images))
        rows.append([comparison.metric, *scores, difference, percent(comparison.win_rate), images])
    heads = ["", *names, f"{names[0]} - {names[1]}", f"{names[0]} wins, %", "images"]
    return Report(
        "compare",
        " and ".join(names),
        command,
        {"captioners": names, "resamples": RESAMPLES, "seed": 0, "rows": figures},
        [Table(f"{names[0]} and {names[1]} on the same images", pd.DataFrame(rows, columns=heads))],
        [f"{comparison.metric}: {comparison.note}" for comparison in comparisons],
        galleries=_galleries(names, comparisons[0]) if with_pictures else {},
    )


def _galleries(names: Sequence[str], comparison: Captioners) -> dict[str, list[Picture]]:
    """For each captioner the images on which it is better by most."""
    galleries = {}
    gains = comparison.scores[0] - comparison.scores[1]
    for name, gains_of_name in zip(names, (gains, -gains), strict=True):
        pictures = []
        for position in np.argsort(-gains_of_name, kind="stable")[:_PICTURES].tolist():
            # From here on the other captioner is better.
            if gains_of_name[position] <= 0:
                break
            lines = []
            for captioner, scores, captions in zip(names, comparison.scores, comparison.captions, strict=True):
                lines.append(f"{captioner} ({scores[position]:.3f}): {captions[position]}")
            pictures.append(read_picture(comparison.images[position], "\n".join(lines)))
        if pictures:
            galleries[f"{name} is better, by {comparison.metric}"] = pictures
    return galleries
