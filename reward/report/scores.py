"""The report of a scored data set: distributions, best and worst captions with pictures, and why scores lack."""

from __future__ import annotations

import re
from functools import partial

import pandas as pd

from reward.report.page import Card, Report, picture_card
from reward.report.plots import histogram
from reward.report.scored_data import ScoredData
from reward.report.tables import Grid

_VARIABLE = re.compile(r"'[^']*'|\"[^\"]*\"|\S*[/\\]\S*|[\d.,]*\d")  # what differs between errors of a kind
_KINDS = 20  # of errors that are shown
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def scores_report(data: ScoredData, *, command: str = "") -> Report:
    """A report of one HTML page; its warnings are what a reader must know beside the figures."""
    main = data.scores[data.by]
    same = [name for name in data.scores if name != data.by and data.scores[name].equals(main)]
    scores = data.scores.drop(columns=same)
    galleries: dict[str, list[Card]] = {}
    for title, rows in (("Best", data.best), ("Worst", data.worst)):
        if len(rows):
            galleries[f"{title}, by {data.by}"] = _cards(rows, data)
    histograms = {name: partial(histogram, name, scores[name].dropna().to_numpy()) for name in scores}
    candidates = f" with {len(scores):,} candidates" if len(scores) != data.rows else ""
    notes = [f"{data.rows:,} rows{candidates}."]
    notes += [f"{name} is not shown: it is the same as {data.by}." for name in same]
    metrics = [f"{metric} (checkpoint: {name or 'a Python object'})" for metric, name in data.checkpoints.items()]
    return Report(
        "report",
        f"Scores of {data.name}",
        command,
        {},
        [_scores_grid(scores), *_error_grids(data)],
        notes,
        sections=[("Distributions", histograms)],
        galleries=galleries,
        lead=[f"Scored by {', '.join(metrics)}."] if metrics else [],
        warnings=_warnings(data, [card for cards in galleries.values() for card in cards]),
    )


def _warnings(data: ScoredData, cards: list[Card]) -> list[str]:
    warnings = []
    unscored = int(data.scores[data.by].isna().sum())
    if unscored:
        warnings.append(f"{unscored:,} of {len(data.scores):,} captions have no {data.by}")
    if data.caption is None:
        warnings.append("No column of captions was found: name it with --candidate-column.")
    if data.image is None:
        warnings.append("No column of images was found, so that there are no pictures: name it with --image-column.")
    problems = [card.problem for card in cards if card.problem]
    if problems:
        warnings.append(
            f"{len(problems):,} pictures are left out, as they could not be read; the first: {problems[0]}. If the "
            "data were moved, name the folder that image paths start from with --image-root."
        )
    return warnings


def _cards(rows: pd.DataFrame, data: ScoredData) -> list[Card]:
    """Rows on the page; a picture that cannot be read says so in its place."""
    cards = []
    for row in rows.itertuples():
        figures = f"{row.score:.3f} · row {row.row}"
        if row.count > 1:
            figures += f" · {row.count} rows alike"
        caption = "(no column of captions)" if data.caption is None else row.caption
        cards.append(picture_card(row.image, caption, figures, root=data.root))
    return cards


def _scores_grid(scores: pd.DataFrame) -> Grid:
    rows = []
    for name, facts in scores.describe(percentiles=_QUANTILES).drop("std").items():
        count, *figures = facts
        rows.append([str(name), f"{int(count):,}", *(f"{figure:.3f}" for figure in figures)])
    quantiles = (f"{100 * quantile:g} %" for quantile in _QUANTILES)
    return Grid("Scores", ["", "captions", "mean", "min", *quantiles, "max"], rows)


def _error_grids(data: ScoredData) -> list[Grid]:
    """The most frequent kinds of errors, if any: messages that differ only in names and numbers are one kind."""
    if not len(data.errors):
        return []
    kinds = data.errors.groupby(data.errors.map(lambda message: _VARIABLE.sub("…", message)), sort=False)
    rows = []
    for kind, messages in sorted(kinds, key=lambda group: -len(group[1]))[:_KINDS]:
        share = f"{100 * len(messages) / data.rows:.2f}"
        rows.append([f"{kind:.300}", f"{len(messages):,}", share, f"row {messages.index[0]}: {messages.iloc[0]:.300}"])
    title = "Errors: 1 kind" if len(kinds) == 1 else f"Errors: {len(kinds)} kinds"
    return [Grid(title, ("", "rows", "% of all", "the first"), rows)]
