"""The report of captioners: their scores, and the images on which these differ most."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from reward.metaeval.bootstrap import RESAMPLES
from reward.metaeval.captioners import Captioners
from reward.report.page import Picture, read_picture
from reward.report.report import Report
from reward.report.tables import Table, few_images, percent

_PICTURES = 24  # of images, for all captioners together
_DIFFERENCES, _WINS = "Difference from the best", "Images won, %"


def compare_report(
    names: Sequence[str], comparisons: Sequence[Captioners], *, command: str, with_pictures: bool
) -> Report:
    """Tables with a row for each captioner and a column for each metric; pictures are by the first metric."""
    metrics_of_note: dict[str, list[str]] = {}
    for comparison in comparisons:
        metrics_of_note.setdefault(comparison.note, []).append(comparison.metric)
    notes = [f"{', '.join(metrics)}: {note}" for note, metrics in metrics_of_note.items()]
    notes.append(
        "The best is chosen on these images, so that its lead is flattered. Images won: those on which a captioner "
        f"scores highest; equal scores share an image. [low, high]: 95 % of {RESAMPLES} bootstrap resamples of images."
    )
    notes += few_images(min(len(comparison.images) for comparison in comparisons))
    return Report(
        "compare",
        f"{', '.join(names[:-1])} and {names[-1]}",
        command,
        {"resamples": RESAMPLES, "seed": 0},
        _tables(names, comparisons),
        notes,
        galleries=_galleries(names, comparisons[0]) if with_pictures else {},
    )


def _tables(names: Sequence[str], comparisons: Sequence[Captioners]) -> list[Table]:
    """Mean scores, differences from the best and images won; of one metric all in one table."""
    means, differences, wins = (pd.DataFrame({"captioner": names}) for _ in range(3))
    best: dict[str, int] = {}
    most_wins: dict[str, int] = {}
    for comparison in comparisons:
        metric = comparison.metric
        best[metric] = comparison.best
        most_wins[metric] = int(np.argmax([share.value for share in comparison.wins]))
        means[metric] = comparison.scores.mean(axis=1)
        differences[metric] = comparison.differences
        differences[metric] = differences[metric].mask(differences.index == comparison.best, None)
        wins[metric] = [percent(share) for share in comparison.wins]
    if len(comparisons) == 1:
        frame = means.assign(**{_DIFFERENCES: differences[metric], _WINS: wins[metric]})
        best_of = {metric: best[metric], _WINS: most_wins[metric]}
        return [Table("Mean score", frame, best_of=best_of, forms={metric: ".3f", _DIFFERENCES: "+.3f"})]
    return [
        Table("Mean scores", means, best_of=best, form=".3f"),
        Table(_DIFFERENCES, differences, form="+.3f"),
        Table(_WINS, wins, best_of=most_wins),
    ]


def _galleries(names: Sequence[str], comparison: Captioners) -> dict[str, list[Picture]]:
    """For each captioner the images on which it is better than all others by most."""
    galleries = {}
    for number, name in enumerate(names):
        others = np.delete(comparison.scores, number, axis=0)
        gains = comparison.scores[number] - others.max(axis=0)
        pictures = []
        for position in np.argsort(-gains, kind="stable")[: max(1, _PICTURES // len(names))].tolist():
            # From here on another captioner is better.
            if gains[position] <= 0:
                break
            lines = []
            for captioner, scores, captions in zip(names, comparison.scores, comparison.captions, strict=True):
                lines.append(f"{captioner} ({scores[position]:.3f}): {captions[position]}")
            pictures.append(read_picture(comparison.images[position], "\n".join(lines)))
        if pictures:
            galleries[f"{name} is better, by {comparison.metric}"] = pictures
    return galleries
