"""The report of a scored data set as one HTML page: distributions, best and worst with pictures, why scores lack."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from reward.data.cells import parse_list, read_number
from reward.data.samples import find_column, join_names
from reward.errors import DataError, InvalidSampleError, OutputError
from reward.metaeval.report import BEST, SOFT, Grid, blank_figure, page_html, page_svg, picture_card, versions
from reward.scoring.columns import image_identity
from reward.scoring.image_root import image_root as find_root
from reward.scoring.readers import open_source
from reward.scoring.schemas import infer_schema, schema_of
from reward.scoring.sources import BadRow, Source
from reward.scoring.summary import summary_beside
from reward.scoring.writers import check_output_name, write_text

_REWARDS = ("reward", "rewards")  # how columns of them end; the second is of lists
_VARIABLE = re.compile(r"'[^']*'|\"[^\"]*\"|\S*[/\\]\S*|[\d.,]*\d")  # what differs between errors of a kind
_KINDS = 20  # of errors that are shown
_BATCH = 1000  # rows that are held at a time with their pictures, but for their numbers
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_BINS = 40  # of a histogram
_NO_PICTURE = "no picture: "  # begins the reason on a card


@dataclass
class ScoredSet:
    """What a report says of a scored data set. A caption is a row, or a candidate in the list of a row.

    Args:
        source: the file.
        scored_by: {metric: its checkpoint}, as far as the summary beside the file says.
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
        unscored = int(self.scores[self.by].isna().sum())
        if unscored:
            yield f"{unscored:,} of {len(self.scores):,} captions have no {self.by}"
        if self.caption is None:
            yield "No column of captions was found: name it with --candidate-column."
        if self.image is None:
            yield "No column of images was found, so that there are no pictures: name it with --image-column."


@dataclass(frozen=True)
class _Columns:
    """The columns that a report reads.

    Args:
        by: of the main score.
        scores: of all scores, the main one first.
        are_lists: whether they hold a list for each row, as the captions do.
        caption, image, error: None where there is none.
    """

    by: str
    scores: list[str]
    are_lists: bool
    caption: str | None
    image: str | None
    error: str | None


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
    source, summary = open_source(data), summary_beside(data)
    columns = _find_columns(source, summary.get("columns") or {}, by, candidate_column, image_column)
    root = source.folder
    with suppress(DataError):  # the page says that the pictures are not there
        root = find_root(source, columns.image, image_root, scored_from=summary.get("image_root"))
    # Once through the rows: numbers are held as columns, texts and pictures only of the best and the worst so far.
    roles = [name for name in (columns.caption, columns.image, columns.error) if name is not None]
    rows = 0
    all_scores: list[pd.DataFrame] = []
    errors = [pd.Series(dtype=str)]
    best = worst = pd.DataFrame()
    names = list(dict.fromkeys([*columns.scores, *roles]))
    records = _read_records(source, names, columns)
    while batch := list(islice(records, _BATCH)):
        frame = pd.DataFrame(batch, columns=names, dtype=object)
        frame.index = pd.RangeIndex(rows + 1, rows + 1 + len(frame), name="row")
        rows += len(frame)
        if columns.error is not None:
            errors.append(frame[columns.error].replace("", None).dropna().astype(str))
        if columns.are_lists:
            try:
                frame = frame.explode([*columns.scores, *([columns.caption] if columns.caption else [])])
            except ValueError:
                message = f"{columns.by!r} and other columns of {source.name} hold lists of different lengths"
                raise DataError(message) from None
        scores = frame[columns.scores].astype(float)
        all_scores.append(scores)
        shown = {"score": scores[columns.by], "caption": None, "image": None, "count": 1}
        if columns.caption is not None:
            shown["caption"] = frame[columns.caption]
        if columns.image is not None:
            shown["image"] = frame[columns.image]
        candidates = pd.DataFrame(shown).dropna(subset="score").reset_index()
        best = _extremes([best, candidates], examples, largest=True)
        worst = _extremes([worst, candidates], examples, largest=False)
    joined_errors = pd.concat(errors)
    if all(scores[columns.by].isna().all() for scores in all_scores):
        reason = joined_errors.iloc[0] if len(joined_errors) else "the column is empty"
        raise DataError(
            f"no row of {source.name} has a score in {columns.by!r}, so there is nothing to report: {reason}"
        )
    return ScoredSet(
        source=source,
        scored_by=summary.get("checkpoints") or {},
        root=root,
        by=columns.by,
        caption=columns.caption,
        image=columns.image,
        rows=rows,
        scores=pd.concat(all_scores, ignore_index=True),
        errors=joined_errors,
        best=best,
        worst=worst[~worst["key"].isin(best["key"])],
    )


def _find_columns(
    source: Source, scored: Mapping[str, str | None], by: str | None, candidate: str | None, image: str | None
) -> _Columns:
    """The columns to report; `scored` are {role: column} of the run that made the scores."""
    types = _column_types(source)
    rewards = [name for name in types if name.endswith(_REWARDS)]
    if by is not None:
        find_column("score", types, by, option="--by")
    elif rewards:
        by = next((name for name in _REWARDS if name in rewards), rewards[0])
    else:
        raise DataError(
            f"no column of {source.name} is named reward or ends with it; name the scores with --by. The columns "
            f"are: {join_names([*types])}."
        )
    lists = {name for name, type_name in types.items() if type_name.startswith(("list", "large_list"))}
    are_lists = by in lists
    if not re.search("int|float|double|null", types[by]):
        raise DataError(f"column {by!r} holds {types[by]}, no scores")

    def column(option: str, name: str | None, role: str) -> str | None:
        if name is None and scored.get(option) in types:
            return scored[option]
        return find_column(role, types, name, option=f"--{option}-column")

    caption = column("candidate", candidate, "candidates" if are_lists else "candidate")
    if caption and candidate is None and (caption in lists) != are_lists:
        caption = None  # --by names a score of the whole list
    # Whole numbers are ids and counts more often than scores.
    scores = [by]
    for name, type_name in types.items():
        if name != by and re.search("float|double", type_name) and (name in lists) == are_lists:
            scores.append(name)
    prefix = by.removesuffix("s").removesuffix("reward")
    error = next((name for name in (f"{prefix}error", "error") if name in types), None)
    return _Columns(by, scores, are_lists, caption, column("image", image, "image"), error)


def _column_types(source: Source) -> dict[str, str]:
    """{column: its Arrow type}; in tables of text, where cells have none, of what all cells of the column write."""
    if not source.is_csv:
        schema = schema_of(source)
    else:
        rows = ({} if isinstance(row, BadRow) else row for row in source.rows(source.columns))
        values = ({name: _value(cell) for name, cell in row.items()} for row in rows)
        schema = infer_schema(iter(lambda: list(islice(values, _BATCH)), []))
    return {name: str(schema.field(name).type) for name in schema.names}


def _read_records(source: Source, names: Sequence[str], columns: _Columns) -> Iterator[dict[str, Any]]:
    """The rows with these columns, of tables of text with numbers and lists; a row that cannot be read is empty."""
    texts = {columns.image, columns.error}
    if not columns.are_lists:
        texts.add(columns.caption)
    for row in source.rows(names):
        if isinstance(row, BadRow):
            yield {}
        elif source.is_csv:
            yield {name: cell if name in texts else _value(cell) for name, cell in row.items()}
        else:
            yield row


def _value(cell: str) -> Any:
    """The number or the list that a cell of a table of text writes; None for nothing, else the text."""
    try:
        value: Any = parse_list(cell) if cell.startswith("[") else read_number(cell)
    except InvalidSampleError:
        return cell
    is_whole = isinstance(value, float) and cell.strip().lstrip("+-").isdecimal()
    return int(value) if is_whole else value


def _extremes(parts: Sequence[pd.DataFrame], most: int, *, largest: bool) -> pd.DataFrame:
    """The first of the different rows in order, with how often each is there; rows alike on a page have one `key`."""
    rows = pd.concat([part for part in parts if len(part)] or parts[1:], ignore_index=True)
    is_bare = rows["caption"].isna() & rows["image"].isna()
    images = rows["image"].map(image_identity)
    texts = rows["score"].astype(str) + "\n" + rows["caption"].astype(str) + "\n" + images
    rows["key"] = np.where(is_bare, rows["row"].astype(str), texts)
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
    scored = read_scored(data, **options)
    main = scored.scores[scored.by]
    same = [name for name in scored.scores if name != scored.by and scored.scores[name].equals(main)]
    scores = scored.scores.drop(columns=same)
    galleries: list[dict[str, Any]] = []
    unread: list[str] = []
    for title, rows in (("Best", scored.best), ("Worst", scored.worst)):
        cards = [_card(row, scored) for row in rows.itertuples()]
        if cards:
            galleries.append({"title": f"{title}, by {scored.by}", "cards": cards})
        unread += [card["figures"] for card in cards if _NO_PICTURE in card["figures"]]
    warnings = list(scored.notes())
    if unread:
        warnings.append(
            f"{len(unread):,} pictures are left out, as they could not be read; the first: "
            f"{unread[0].partition(_NO_PICTURE)[2]}. If the data were moved, name the folder that image paths start "
            "from with --image-root."
        )
    sources = scored.scored_by.items()
    lead = ", ".join(f"{metric} (checkpoint: {source or 'a Python object'})" for metric, source in sources)
    grids = [_scores_grid(scores)]
    if len(scored.errors):
        grids.append(_error_grid(scored))
    candidates = f" with {len(scores):,} candidates" if len(scores) != scored.rows else ""
    remarks = [f"{scored.rows:,} rows{candidates}."]
    remarks += [f"{name} is not shown: it is the same as {scored.by}." for name in same]
    html = page_html(
        "report",
        f"Scores of {scored.source.name}",
        {"command": command, "versions": versions()},
        grids,
        remarks,
        [("Distributions", {name: _histogram(name, scores[name].dropna()) for name in scores})],
        galleries,
        lead=[f"Scored by {lead}."] if lead else [],
        warnings=warnings,
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    write_text(target, html)
    return [*warnings, f"report on {scored.rows:,} rows -> {output}"]


def _scores_grid(scores: pd.DataFrame) -> Grid:
    rows = []
    for name, facts in scores.describe(percentiles=_QUANTILES).drop("std").items():
        count, *figures = facts
        rows.append((str(name), f"{int(count):,}", *(f"{figure:.3f}" for figure in figures)))
    quantiles = (f"{100 * quantile:g} %" for quantile in _QUANTILES)
    return Grid("Scores", ("", "captions", "mean", "min", *quantiles, "max"), tuple(rows))


def _error_grid(scored: ScoredSet) -> Grid:
    """The most frequent kinds of errors: messages that differ only in names and numbers are one kind."""
    kinds = scored.errors.groupby(scored.errors.map(lambda message: _VARIABLE.sub("…", message)), sort=False)
    rows = []
    for kind, messages in sorted(kinds, key=lambda group: -len(group[1]))[:_KINDS]:
        share = f"{100 * len(messages) / scored.rows:.2f}"
        first = f"row {messages.index[0]}: {messages.iloc[0]:.300}"
        rows.append((f"{kind:.300}", f"{len(messages):,}", share, first))
    title = "Errors: 1 kind" if len(kinds) == 1 else f"Errors: {len(kinds)} kinds"
    return Grid(title, ("", "rows", "% of all", "the first"), tuple(rows))


def _histogram(name: str, values: pd.Series) -> str:
    """Shares of the captions in 40 bins."""
    figure, axes = blank_figure(2.4, width=4.4)
    if len(values):
        shares = np.full(len(values), 100 / len(values))
        axes.hist(values, _bin_edges(values.to_numpy()), weights=shares, histtype="stepfilled", color=BEST)
    axes.grid(axis="y", color=SOFT, alpha=0.25, lw=0.6)
    axes.set_xlabel(name, parse_math=False)
    axes.set_ylabel("% of the captions")
    return page_svg(figure)


def _bin_edges(values: np.ndarray) -> np.ndarray:
    """The edges of the bins (41,), also around scores that are equal, or too near for floats to stand between them."""
    low, high = float(values.min()), float(values.max())
    edges = np.linspace(low, high, _BINS + 1)
    if (np.diff(edges) > 0).all():
        return edges
    margin = max(0.5, abs(low) / 1000)
    return np.linspace(low - margin, high + margin, _BINS + 1)


def _card(row: Any, scored: ScoredSet) -> dict[str, Any]:
    """A row on the page; a picture that cannot be read says so in its place."""
    figures = [f"{row.score:.3f}", f"row {row.row}"]
    if row.count > 1:
        figures.append(f"{row.count} rows alike")
    caption = "(no column of captions)" if scored.caption is None else row.caption
    return picture_card(row.image, caption, figures, root=scored.root)
