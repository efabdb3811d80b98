"""The report of a scored data set as one HTML page: distributions, best and worst with pictures, why scores lack."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from reward.data.samples import find_column, join_names
from reward.errors import DataError, OutputError
from reward.metaeval.report import BEST, SOFT, Grid, blank_figure, page_html, page_svg, picture_card, versions
from reward.scoring.image_root import image_root as find_root
from reward.scoring.readers import open_source
from reward.scoring.schemas import schema_of
from reward.scoring.sources import BadRow, Source
from reward.scoring.summary import summary_beside
from reward.scoring.writers import check_output_name, write_text

_REWARDS = ("reward", "rewards")  # how columns of them end; the second is of lists
_VARIABLE = re.compile(r"'[^']*'|\"[^\"]*\"|\S*[/\\]\S*|[\d.,]*\d")  # what differs between errors of a kind
_KINDS = 20  # of errors that are shown
_BATCH = 10_000  # rows that are held at a time, but for their numbers
_BINS = 40  # of a histogram
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass
class ScoredSet:
    """What a report says of a scored data set. A caption is a row, or a candidate in the list of a row.

    Args:
        source: the file.
        scored_by: {metric: its source}, as far as the summary beside the file says.
        root: where relative paths of images start.
        by: column of the main score.
        caption, image: columns; None where there is none.
        rows: rows in all.
        scores: a number for each caption and column of scores, NaN for null, the main score first.
        errors: messages, one a row that has one, with the number of the row from 1 as index.
        best, worst: different captions with the highest and lowest main score, best and worst first: score, caption,
            image, row, and count of rows that are the same. None is among both.
    """

    source: Source
    scored_by: dict[str, str | None]
    root: Path
    by: str
    caption: str | None
    image: str | None
    rows: int
    scores: pd.DataFrame
    errors: pd.Series
    best: pd.DataFrame
    worst: pd.DataFrame

    def notes(self) -> Iterator[str]:
        """What a reader must know beside the figures."""
        lacking = int(self.scores[self.by].isna().sum())
        if lacking:
            yield f"{lacking:,} of {len(self.scores):,} captions have no {self.by}"
        if self.caption is None:
            yield "No column of captions was found: name it with --candidate-column."
        if self.image is None:
            yield "No column of images was found, so that there are no pictures: name it with --image-column."


def read_scored(
    data: str | os.PathLike[str],
    *,
    by: str | None = None,
    candidate_column: str | None = None,
    image_column: str | None = None,
    image_root: str | os.PathLike[str] | None = None,
    examples: int = 6,
) -> ScoredSet:
    """Reads a scored data set once; of each number, 8 bytes are held.

    Args:
        data: what `capreward score`, `rerank` or `caption` wrote, or a folder of Parquet files.
        by: column of the main score; None is `reward`, `rewards`, or the first that ends so.
        candidate_column, image_column: None takes those that were scored, as the summary beside the data says, else
            finds them; see `score_dataset`.
        image_root: where relative image paths start; None is where they started when they were scored, else as for
            `score_dataset`.
        examples: how many of the best and of the worst captions to keep.

    Raises:
        DataError: the data cannot be read, lack a column, or hold no score there.
    """
    source, summary = open_source(data, fields=[by, candidate_column, image_column]), summary_beside(data)
    schema = schema_of(source)
    known = [name for name in schema.names if name.endswith(_REWARDS)]
    if by is None and not known:
        raise DataError(
            f"no column of {source.name} is named reward or ends with it; name the scores with --by. The columns "
            f"are: {join_names(schema.names)}."
        )
    by = by or next((name for name in _REWARDS if name in known), known[0])
    find_column("score", schema.names, by, option="--by")
    kinds = {name: str(schema.field(name).type) for name in schema.names}
    lists = kinds[by].startswith(("list", "large_list"))
    if not re.search("int|float|double|null", kinds[by]):
        raise DataError(f"column {by!r} holds {kinds[by]}, no scores")

    def column(role: str, given: str | None, of: str) -> str | None:
        scored = (summary.get("columns") or {}).get(role)
        if given is None and scored in schema.names:
            return scored
        return find_column(of, schema.names, given, option=f"--{role}-column")

    caption = column("candidate", candidate_column, "candidates" if lists else "candidate")
    if caption and candidate_column is None and kinds[caption].startswith(("list", "large_list")) != lists:
        caption = None  # --by names a score of the whole list
    image = column("image", image_column, "image")
    root = source.folder
    with suppress(DataError):  # the page says that the pictures are not there
        root = find_root(source, image, image_root, scored_from=summary.get("image_root"))
    floats = [
        n
        for n, kind in kinds.items()
        if re.search("float|double", kind) and kind.startswith(("list", "large")) == lists
    ]
    prefix = by.removesuffix("s").removesuffix("reward")
    error = next((name for name in (prefix + "error", "error") if name in schema.names), None)
    columns = dict.fromkeys([by, *floats])
    wanted = dict.fromkeys([*columns, *(name for name in (caption, image, error) if name is not None)])
    rows, scores, errors = 0, [], []
    best: list[pd.DataFrame] = []
    worst: list[pd.DataFrame] = []
    records = ({} if isinstance(read, BadRow) else read for read in source.records())
    while batch := list(islice(records, _BATCH)):
        frame = pd.DataFrame(batch, columns=[*wanted], dtype=object)
        frame.index = pd.RangeIndex(rows + 1, rows + 1 + len(frame), name="row")
        rows += len(frame)
        if error is not None:
            errors.append(frame[error].dropna().astype(str))
        if lists:
            try:
                frame = frame.explode([*columns, *([caption] if caption else [])])
            except ValueError:
                raise DataError(f"{by!r} and other columns of {source.name} hold lists of different lengths") from None
        scores.append(frame[[*columns]].astype(float))
        shown = {"score": scores[-1][by], "caption": frame[caption] if caption else None}
        new = pd.DataFrame({**shown, "image": frame[image] if image else None, "count": 1}).dropna(subset="score")
        best = [_extremes([*best, new.reset_index()], examples, largest=True)]
        worst = [_extremes([*worst, new.reset_index()], examples, largest=False)]
    found = pd.concat(errors) if errors else pd.Series(dtype=str)
    if pd.concat(scores)[by].isna().all():
        reason = found.iloc[0] if len(found) else "the column is empty"
        raise DataError(f"no row of {source.name} has a score in {by!r}, so there is nothing to report: {reason}")
    worst = [worst[0][~worst[0]["key"].isin(best[0]["key"])]]
    checkpoints = summary.get("checkpoints") or {}
    joined = pd.concat(scores, ignore_index=True)
    return ScoredSet(source, checkpoints, root, by, caption, image, rows, joined, found, best[0], worst[0])


def _extremes(parts: Sequence[pd.DataFrame], most: int, *, largest: bool) -> pd.DataFrame:
    """The first of the different rows in order, with how often each is there; rows alike on a page have one `key`."""
    rows = pd.concat(parts, ignore_index=True)
    bare = rows["caption"].isna() & rows["image"].isna()
    texts = rows["score"].astype(str) + "\n" + rows["caption"].astype(str) + "\n" + rows["image"].astype(str)
    rows["key"] = np.where(bare, rows["row"].astype(str), texts)
    rows["count"] = rows.groupby("key")["count"].transform("sum")
    rows = rows.drop_duplicates("key")
    return rows.sort_values("score", ascending=not largest, kind="stable").head(most)


def write_scored_report(
    data: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    command: str = "",
    overwrite: bool = False,
    **options: Any,
) -> list[str]:
    """Writes a page that needs no other file, with plots for light and dark screens.

    Args:
        data: what `capreward score`, `rerank` or `caption` wrote, or a folder of Parquet files.
        output: `.html` file.
        command: as it was typed, for the page.
        overwrite: replace an output that is there.
        options: further arguments of `read_scored`.

    Returns:
        What a reader must know beside the page, and at last how many rows it is on.
    """
    target = Path(output)
    check_output_name(target, ".html")
    if target.exists() and not overwrite:
        raise OutputError(f"{target} is there already; give another --output, or replace it with --overwrite")
    found = read_scored(data, **options)
    same = [n for n in found.scores if n != found.by and found.scores[n].equals(found.scores[found.by])]
    scores = found.scores.drop(columns=same)
    galleries: list[dict[str, Any]] = [
        {"title": f"{title}, by {found.by}", "cards": [_card(row, found) for row in rows.itertuples()]}
        for title, rows in (("Best", found.best), ("Worst", found.worst))
        if len(rows)
    ]
    unread = [card["figures"] for each in galleries for card in each["cards"] if "no picture: " in card["figures"]]
    warnings = list(found.notes())
    if unread:
        warnings.append(
            f"{len(unread):,} pictures are left out, as they could not be read; the first: "
            f"{unread[0].partition('no picture: ')[2]}. If the data were moved, name the folder that image paths start "
            "from with --image-root."
        )
    sources = found.scored_by.items()
    lead = ", ".join(f"{metric} (checkpoint: {source or 'a Python object'})" for metric, source in sources)
    captions = f" with {len(scores):,} candidates." if len(scores) != found.rows else "."
    html = page_html(
        "report",
        f"Scores of {found.source.name}",
        {"command": command, "versions": versions()},
        [_scores_grid(scores), *([_error_grid(found)] if len(found.errors) else [])],
        [f"{found.rows:,} rows{captions}", *(f"{n} is not shown: it is the same as {found.by}." for n in same)],
        [("Distributions", {name: _histogram(name, scores[name].dropna()) for name in scores})],
        galleries,
        lead=[f"Scored by {lead}."] if lead else [],
        warnings=warnings,
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    write_text(target, html)
    return [*warnings, f"report on {found.rows:,} rows -> {output}"]


def _scores_grid(scores: pd.DataFrame) -> Grid:
    facts = scores.describe(percentiles=_QUANTILES).drop("std")
    rows = [(name, f"{int(each.iloc[0]):,}", *(f"{one:.3f}" for one in each.iloc[1:])) for name, each in facts.items()]
    ends = ("min", *(f"{100 * one:g} %" for one in _QUANTILES), "max")
    return Grid("Scores", ("", "captions", "mean", *ends), tuple(rows))


def _error_grid(found: ScoredSet) -> Grid:
    kinds = found.errors.groupby(found.errors.map(lambda message: _VARIABLE.sub("…", message)), sort=False)
    rows = [
        (
            f"{kind:.300}",
            f"{len(each):,}",
            f"{100 * len(each) / found.rows:.2f}",
            f"row {each.index[0]}: {each.iloc[0]:.300}",
        )
        for kind, each in sorted(kinds, key=lambda item: -len(item[1]))[:_KINDS]
    ]
    title = f"Errors: {len(kinds)} kind{'s' * (len(kinds) != 1)}"
    return Grid(title, ("", "rows", "% of all", "the first"), tuple(rows))


def _histogram(name: str, values: pd.Series) -> str:
    """Shares of the captions in 40 bins."""
    figure, axes = blank_figure(2.4, width=4.4)
    share = np.full(len(values), 100 / max(1, len(values)))
    axes.hist(values, _bin_edges(values.to_numpy()), weights=share, histtype="stepfilled", color=BEST)
    axes.grid(axis="y", color=SOFT, alpha=0.25, lw=0.6)
    axes.set_xlabel(name, parse_math=False)
    axes.set_ylabel("% of the captions")
    return page_svg(figure)


def _bin_edges(values: np.ndarray) -> np.ndarray:
    """The edges of 40 bins (41,), also around scores that are equal, or too near for floats to stand between them."""
    if not len(values):
        return np.linspace(0, 1, _BINS + 1)
    low, high = float(values.min()), float(values.max())
    edges = np.linspace(low, high, _BINS + 1)
    if (np.diff(edges) > 0).all():
        return edges
    margin = max(0.5, abs(low) / 1000)
    return np.linspace(low - margin, high + margin, _BINS + 1)


def _card(row: Any, found: ScoredSet) -> dict[str, Any]:
    """A row on the page; a picture that cannot be read says so in its place."""
    figures = [f"{row.score:.3f}", f"row {row.row}", *([f"{row.count} rows alike"] if row.count > 1 else [])]
    caption = "(no column of captions)" if found.caption is None else row.caption
    return picture_card(row.image, caption, figures, root=found.root)
