"""The report of a scored data set: distributions, best and worst captions with pictures, and why scores lack."""

from __future__ import annotations

import re
from functools import partial

import pandas as pd

from reward.report.page import Picture, read_picture
from reward.report.plots import histogram
from reward.report.report import Report
from reward.report.scored_data import ScoredData
from reward.report.tables import Table
from reward.scoring.summary import metric_label

# What differs between errors of a kind: quoted texts, paths, numbers.
_VARIABLE = re.compile(r"'[^']*'|\"[^\"]*\"|\S*[/\\]\S*|[\d.,]*\d")
_KINDS = 20  # of errors that are shown
_PILE = 0.2  # share of the scores from which equal scores are explained
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def scores_report(data: ScoredData, *, command: str = "") -> Report:
    """A report of one HTML page; its warnings are what a reader must know beside the figures."""
    by = data.columns.by
    # A metric with one aspect has written the same numbers twice, as its own and as the reward.
    same: dict[str, str] = {}
    rewards = [name for name in data.scores if name == by or name.endswith(("reward", "rewards"))]
    for name in data.scores:
        for reward in rewards:
            if name not in rewards and data.scores[name].equals(data.scores[reward]):
                same[name] = reward
    scores = data.scores.drop(columns=[*same])
    notes = [f"{data.rows:,} rows."]
    if data.columns.are_lists:
        notes = [f"{data.rows:,} rows with {len(scores):,} candidates."]
    metrics = [metric_label(metric, checkpoint) for metric, checkpoint in data.checkpoints.items()]
    if metrics:
        notes.append(f"Scored by {', '.join(metrics)}.")
    notes += [f"{name} is not shown: it is the same as {reward}." for name, reward in same.items()]
    galleries = {}
    for title, rows in (("Best", data.best), ("Worst", data.worst)):
        if len(rows):
            galleries[f"{title}, by {by}"] = _pictures(rows, data)
    histograms = {}
    for name in scores:
        numbers = scores[name].dropna()
        histograms[name] = partial(histogram, numbers.to_numpy(), name, data.columns.unit)
        pile = _pile(numbers, data.columns.unit)
        if pile:
            notes.append(f"{name}: {pile}")
    return Report(
        "report",
        f"Scores of {data.name}",
        command,
        {},
        [_distributions(scores, data.columns.unit), *_errors(data)],
        notes,
        plots=[("Distributions", histograms)],
        galleries=galleries,
        warnings=_warnings(data, [picture for pictures in galleries.values() for picture in pictures]),
    )


def _warnings(data: ScoredData, pictures: list[Picture]) -> list[str]:
    warnings = []
    unscored = int(data.scores[data.columns.by].isna().sum())
    if unscored:
        warnings.append(f"{unscored:,} of {len(data.scores):,} {data.columns.unit} have no {data.columns.by}")
    if data.columns.caption is None:
        warnings.append("No column of captions was found: name it with --candidate-column.")
    if data.columns.image is None:
        warnings.append("No column of images was found, so that there are no pictures: name it with --image-column.")
    problems = [picture.problem for picture in pictures if picture.problem]
    if problems:
        warnings.append(
            f"{len(problems):,} pictures are left out, as they could not be read; the first: {problems[0]}. If the "
            "data were moved, name the folder that image paths start from with --image-root."
        )
    return warnings


def _pictures(rows: pd.DataFrame, data: ScoredData) -> list[Picture]:
    """Rows on the page; a picture that cannot be read says so in its place."""
    pictures = []
    for row in rows.itertuples():
        figures = f"{row.score:.3f} · row {row.row}"
        # A pile of equal rows is one picture, and says how high it is.
        if row.count > 1:
            figures += f" · {row.count} rows alike"
        caption = "(no column of captions)" if data.columns.caption is None else row.caption
        pictures.append(read_picture(row.image, caption, figures, root=data.root))
    return pictures


def _pile(scores: pd.Series, unit: str) -> str:
    """What the highest bar of a histogram is, where that is a pile of equal scores; else empty."""
    low, high = scores.min(), scores.max()
    # Scores that differ by less than a thousandth of their range look equal.
    heights = ((scores - low) / (high - low)).round(3).fillna(0)
    piles = heights.value_counts()
    if not len(piles) or piles.iloc[0] < max(2, _PILE * len(scores)):
        return ""
    score = scores[heights == piles.index[0]].median()
    end = ""
    if low < high:
        end = {0: ", the lowest", 1: ", the highest"}.get(piles.index[0], "")
    share = f"{piles.iloc[0]:,} of {len(scores):,} {unit} ({100 * piles.iloc[0] / len(scores):.0f} %)"
    return f"The high bar is a pile of equal scores: {share} have {score:.3f}{end}."


def _distributions(scores: pd.DataFrame, unit: str) -> Table:
    facts = scores.describe(percentiles=_QUANTILES).drop("std").T.rename(columns={"count": unit})
    frame = facts.astype({unit: int}).rename_axis("").reset_index()
    return Table("Scores", frame, form=".3f")


def _errors(data: ScoredData) -> list[Table]:
    """The most frequent kinds of errors, if any: messages that differ only in names and numbers are one kind."""
    if not len(data.errors):
        return []
    kinds = data.errors.groupby(data.errors.map(lambda message: _VARIABLE.sub("…", message)), sort=False)
    rows = []
    for kind, messages in sorted(kinds, key=lambda group: -len(group[1]))[:_KINDS]:
        share = 100 * len(messages) / data.rows
        rows.append([f"{kind:.300}", len(messages), share, f"row {messages.index[0]}: {messages.iloc[0]:.300}"])
    frame = pd.DataFrame(rows, columns=["", "rows", "% of all", "the first"])
    return [Table(f"Kinds of errors: {len(kinds)}", frame, form=".2f")]
