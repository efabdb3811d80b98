"""The report of a scored data set as one HTML page: distributions, best and worst with pictures, why scores lack."""

from __future__ import annotations

import base64
import io
import os
import re
from array import array
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reward.errors import DataError, ImageError, InvalidSampleError, OutputError
from reward.images import load_image
from reward.metaeval.report import BEST, SOFT, Grid, blank_figure, page_html, page_svg, versions
from reward.optional import require
from reward.samples import find_column, named, one_image
from reward.scoring.image_root import image_root as find_root
from reward.scoring.readers import open_source
from reward.scoring.schemas import schema_of
from reward.scoring.sources import BadRow, Source
from reward.scoring.summary import summary_beside
from reward.scoring.writers import check_output_name, write_text

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ScoredSet", "read_scored", "small_picture", "write_scored_report"]

_REWARDS = ("reward", "rewards")  # how columns of them end; the second is of lists
_VARIABLE = re.compile(r"'[^']*'|\"[^\"]*\"|\S*[/\\]\S*|[\d.,]*\d")  # what differs between errors of a kind
_KINDS = 20  # of errors that are shown
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_SIDE = 280  # pixels of a picture on the page


@dataclass
class ScoredSet:
    """What a report says of a scored data set. A caption is a row, or a candidate in the list of a row.

    Args:
        source: the file.
        scored_by: {metric: its source}, as far as the summary beside the file says.
        root: where relative paths of images start.
        by: column of the main score.
        caption, image, error: columns; None where there is none.
        rows: rows in all.
        values: {column: a number for each caption, NaN for null}, the main score first.
        errors: {kind: (rows, number of the first from 1, its message)}.
        best, worst: different captions with the highest and lowest main score, best and worst first: caption, image,
            score, row, and count of rows that are the same. None is among both.
        unread: why pictures of captions to be shown could not be read.
    """

    source: Source
    scored_by: dict[str, str | None]
    root: Path
    by: str
    caption: str | None
    image: str | None
    error: str | None
    rows: int = 0
    values: dict[str, array[float]] = field(default_factory=dict)
    errors: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    best: list[dict[str, Any]] = field(default_factory=list)
    worst: list[dict[str, Any]] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def finite(self, column: str) -> np.ndarray:
        """The numbers of a column that are there."""
        values = np.frombuffer(self.values[column], dtype=np.float64)
        return values[np.isfinite(values)]

    def notes(self) -> Iterator[str]:
        """What a reader must know beside the figures."""
        captions = len(self.values[self.by])
        lacking = captions - len(self.finite(self.by))
        if lacking:
            yield f"{lacking:,} of {captions:,} captions have no {self.by}"
        if self.caption is None:
            yield "No column of captions was found: name it with --candidate-column."
        if self.image is None:
            yield "No column of images was found, so that there are no pictures: name it with --image-column."
        if self.unread:
            yield (
                f"{len(self.unread):,} pictures are left out, as they could not be read; the first: {self.unread[0]}. "
                "If the data were moved, name the folder that image paths start from with --image-root."
            )


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
    if by is None:
        known = [name for name in schema.names if name.endswith(_REWARDS)]
        if not known:
            raise DataError(
                f"no column of {source.name} is named reward or ends with it; name the scores with --by. The columns "
                f"are: {named(schema.names)}."
            )
        by = next((name for name in _REWARDS if name in known), known[0])
    find_column("score", schema.names, by, option="--by")
    lists = _is_list(schema.field(by).type)
    if not _is_number(schema.field(by).type, lists):
        raise DataError(f"column {by!r} holds {schema.field(by).type}, no scores")
    scores = [by, *(each.name for each in schema if each.name != by and _is_score(each.type, lists))]

    def column(role: str, given: str | None, of: str) -> str | None:
        scored = (summary.get("columns") or {}).get(role)
        if given is None and scored in schema.names:
            return scored
        return find_column(of, schema.names, given, option=f"--{role}-column")

    caption = column("candidate", candidate_column, "candidates" if lists else "candidate")
    if caption and candidate_column is None and _is_list(schema.field(caption).type) != lists:
        caption = None  # --by names a score of the whole list
    prefix = by.removesuffix("s").removesuffix("reward")
    error = next((name for name in (prefix + "error", "error") if name in schema.names), None)
    scored_by, image = summary.get("checkpoints") or {}, column("image", image_column, "image")
    root = source.folder
    with suppress(DataError):  # the page says that the pictures are not there
        root = find_root(source, image, image_root, scored_from=summary.get("image_root"))
    found = ScoredSet(source, scored_by, root, by, caption, image, error)
    found.values = {name: array("d") for name in scores}
    wanted = [*scores, *(name for name in (caption, found.image, error) if name is not None)]
    for read in source.records():
        row = {name: None if isinstance(read, BadRow) else read.get(name) for name in wanted}
        found.rows += 1
        _add_error(found, row)
        _add_captions(found, row, lists, examples)
    if not len(found.finite(by)):
        reason = next(iter(found.errors.values()))[2] if found.errors else "the column is empty"
        raise DataError(f"no row of {source.name} has a score in {by!r}, so there is nothing to report: {reason}")
    both = [_identity(row) for row in found.best]
    found.worst = [row for row in found.worst if _identity(row) not in both]
    return found


def _is_list(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_score(kind: pa.DataType, lists: bool) -> bool:
    import pyarrow as pa

    return _is_list(kind) == lists and bool(pa.types.is_floating(kind.value_type if lists else kind))


def _is_number(kind: pa.DataType, lists: bool) -> bool:
    import pyarrow as pa

    kind = kind.value_type if lists else kind
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind))


def _add_error(found: ScoredSet, row: Mapping[str, Any]) -> None:
    message = None if found.error is None else row[found.error]
    if message is not None:
        kind = _VARIABLE.sub("…", str(message))
        count, first, told = found.errors.get(kind, (0, found.rows, str(message)))
        found.errors[kind] = (count + 1, first, told)


def _add_captions(found: ScoredSet, row: Mapping[str, Any], lists: bool, examples: int) -> None:
    """Adds the numbers of a row's captions; a row without a list of candidates counts as one, without scores."""
    count = max(1, len(row[found.by] or ())) if lists else 1
    for name, values in found.values.items():
        cells = (row[name] or [None] * count) if lists else [row[name]]
        if len(cells) != count:
            raise DataError(f"columns {found.by!r} and {name!r} of {found.source.name} hold lists of different lengths")
        values.extend(np.nan if cell is None else float(cell) for cell in cells)
    captions = row[found.caption] if found.caption else None
    for place, score in enumerate(found.values[found.by][-count:]):
        if np.isfinite(score) and examples:
            text = captions[place] if lists and captions else captions
            image = row[found.image] if found.image else None
            one = {"caption": text, "image": image, "score": score, "row": found.rows, "count": 1}
            _keep(found.best, one, -1, examples)
            _keep(found.worst, one, 1, examples)


def _keep(kept: list[dict[str, Any]], row: dict[str, Any], sign: int, most: int) -> None:
    """Keeps the first of the different rows in order; one that is not kept now cannot come back."""
    if len(kept) == most and sign * row["score"] > sign * kept[-1]["score"]:
        return
    same = next((one for one in kept if _identity(one) == _identity(row)), None)
    if same is not None:
        same["count"] += 1
        return
    kept.append(dict(row))
    kept.sort(key=lambda one: sign * one["score"])  # stable: of equal scores the first row is first
    del kept[most:]


def _identity(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Equal for rows that look alike on a page."""
    if row["caption"] is None and row["image"] is None:
        return (row["row"],)
    return row["score"], str(row["caption"]), str(row["image"])


def write_scored_report(
    data: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    command: str = "",
    overwrite: bool = False,
    **options: Any,
) -> ScoredSet:
    """Writes a page that needs no other file, with plots for light and dark screens.

    Args:
        data: what `capreward score`, `rerank` or `caption` wrote, or a folder of Parquet files.
        output: `.html` file.
        command: as it was typed, for the page.
        overwrite: replace an output that is there.
        options: further arguments of `read_scored`.

    Returns:
        The figures.

    Raises:
        MissingExtraError: matplotlib is not installed.
        DataError: the data cannot be read, or hold no scores.
        OutputError: the output is there already, or cannot be written.
    """
    target = Path(output)
    require("matplotlib", extra="report", purpose="a report with plots")
    check_output_name(target, ".html")
    if target.exists() and not overwrite:
        raise OutputError(f"{target} is there already; give another --output, or replace it with --overwrite")
    found = read_scored(data, **options)
    main = found.values[found.by].tobytes()
    shown = [name for name, values in found.values.items() if name == found.by or values.tobytes() != main]
    grids = [_scores_grid(found, shown)]
    if found.errors:
        grids.append(_error_grid(found))
    galleries = [
        {"title": f"{title}, by {found.by}", "cards": [_card(row, found) for row in rows]}
        for title, rows in (("Best", found.best), ("Worst", found.worst))
        if rows
    ]
    captions = len(found.values[found.by])
    sources = found.scored_by.items()
    lead = ", ".join(f"{metric} (checkpoint: {source or 'a Python object'})" for metric, source in sources)
    html = page_html(
        "report",
        f"Scores of {found.source.name}",
        {"command": command, "versions": versions()},
        grids,
        [
            f"{found.rows:,} rows" + (f" with {captions:,} candidates." if captions != found.rows else "."),
            *(f"{name} is not shown: it is the same as {found.by}." for name in found.values if name not in shown),
        ],
        [("Distributions", {name: _histogram(name, found) for name in shown})],
        galleries,
        lead=[f"Scored by {lead}."] if lead else [],
        warnings=list(found.notes()),
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    write_text(target, html)
    return found


def _scores_grid(found: ScoredSet, names: list[str]) -> Grid:
    rows = []
    for name in names:
        values = found.finite(name)
        numbers = [values.mean(), *np.quantile(values, (0, *_QUANTILES, 1))] if len(values) else [np.nan] * 8
        rows.append((name, f"{len(values):,}", *(f"{one:.3f}" for one in numbers)))
    ends = ("min", *(f"{100 * one:g} %" for one in _QUANTILES), "max")
    return Grid("Scores", ("", "captions", "mean", *ends), tuple(rows))


def _error_grid(found: ScoredSet) -> Grid:
    kinds = sorted(found.errors.items(), key=lambda item: -item[1][0])
    rows = [
        (f"{kind:.300}", f"{count:,}", f"{100 * count / found.rows:.2f}", f"row {row}: {message:.300}")
        for kind, (count, row, message) in kinds[:_KINDS]
    ]
    title = f"Errors: {len(kinds)} kind{'s' * (len(kinds) != 1)}"
    return Grid(title, ("", "rows", "% of all", "the first"), tuple(rows))


def _histogram(name: str, found: ScoredSet) -> str:
    """Shares of the captions in 40 bins."""
    figure, axes = blank_figure(2.4, width=4.4)
    values = found.finite(name)
    axes.hist(values, 40, weights=np.full(len(values), 100 / max(1, len(values))), histtype="stepfilled", color=BEST)
    axes.grid(axis="y", color=SOFT, alpha=0.25, lw=0.6)
    axes.set_xlabel(name, parse_math=False)
    axes.set_ylabel("% of the captions")
    return page_svg(figure)


def small_picture(image: Any, root: Path | None = None) -> str:
    """An image as an address that holds a small JPEG of it, for a page that needs no other file.

    Raises:
        ImageError, InvalidSampleError: it cannot be read, or there are several.
    """
    shown = load_image(one_image(image), root=root).copy()
    shown.thumbnail((_SIDE, _SIDE))
    buffer = io.BytesIO()
    shown.save(buffer, "JPEG", quality=85)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


def _card(row: Mapping[str, Any], found: ScoredSet) -> dict[str, Any]:
    """A row on the page; a picture that cannot be read says so in its place."""
    picture, figures = None, [f"{row['score']:.3f}", f"row {row['row']}"]
    if row["count"] > 1:
        figures.append(f"{row['count']} rows alike")
    if row["image"] is not None:
        try:
            picture = small_picture(row["image"], found.root)
        except (ImageError, InvalidSampleError) as error:
            figures.append(f"no picture: {error}")
            found.unread.append(str(error))
    caption = "(no column of captions)" if found.caption is None else row["caption"]
    return {"picture": picture, "caption": caption, "figures": " · ".join(figures)}
