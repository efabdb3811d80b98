"""Reads a scored data set for its report: all numbers, and the captions with the highest and the lowest score."""

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
from reward.errors import DataError, InvalidSampleError
from reward.scoring.readers import open_source
from reward.scoring.schemas import infer_schema, schema_of
from reward.scoring.sources import BadRow, Source, image_identity
from reward.scoring.sources import image_root as find_root
from reward.scoring.summary import summary_beside

_REWARDS = ("reward", "rewards")  # how columns of them end; the second is of lists
_BATCH = 1000  # rows that are held at a time with their pictures, but for their numbers


@dataclass(frozen=True)
class Columns:
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

    @property
    def unit(self) -> str:
        """What a score is of."""
        return "candidates" if self.are_lists else "rows"

    @property
    def texts(self) -> list[str]:
        """The columns that hold no scores."""
        return [name for name in (self.caption, self.image, self.error) if name is not None]


@dataclass
class ScoredData:
    """A scored data set. A caption is a row, or a candidate in the list of a row.

    Args:
        name: of the file or folder.
        columns: that were read.
        checkpoints: {metric: its checkpoint}, as far as the summary beside the file says.
        root: where relative paths of images start.
        rows: rows in all.
        scores: a number for each caption and column of scores, NaN for null, the main score first.
        errors: messages, one a row that has one, with the number of the row from 1 as index.
        best, worst: different captions with the highest and lowest main score, best and worst first: score, caption,
            image, row, and count of rows that are the same. None is among both.
    """

    name: str
    columns: Columns
    checkpoints: Mapping[str, str | None]
    root: Path
    rows: int
    scores: pd.DataFrame
    errors: pd.Series
    best: pd.DataFrame
    worst: pd.DataFrame


def read_scored(
    data: str | os.PathLike[str],
    *,
    by: str | None = None,
    candidate_column: str | None = None,
    image_column: str | None = None,
    image_root: str | os.PathLike[str] | None = None,
    examples: int = 6,
) -> ScoredData:
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
    reader, summary = open_source(data), summary_beside(data)
    columns = _find_columns(reader, summary.get("columns") or {}, by, candidate_column, image_column)
    root = reader.folder
    with suppress(DataError):  # the page says that the pictures are not there
        root = find_root(reader, columns.image, image_root, scored_from=summary.get("image_root"))

    # Once through the rows: numbers are held as columns, texts and pictures only of the best and the worst so far.
    rows = 0
    scores: list[pd.DataFrame] = []
    errors = [pd.Series(dtype=str)]
    best = worst = pd.DataFrame()
    for frame in _frames(reader, columns):
        rows += len(frame)
        if columns.error is not None:
            messages = frame[columns.error].dropna().astype(str)
            errors.append(messages[messages != ""])
        if columns.are_lists:
            frame = _one_row_a_caption(frame, columns, reader.name)
        scores.append(frame[columns.scores].astype(float))
        captions = pd.DataFrame({"score": scores[-1][columns.by], "caption": None, "image": None, "count": 1})
        if columns.caption is not None:
            captions["caption"] = frame[columns.caption]
        if columns.image is not None:
            captions["image"] = frame[columns.image]
        captions = captions.dropna(subset="score").reset_index()
        best = _extremes([best, captions], examples, largest=True)
        worst = _extremes([worst, captions], examples, largest=False)

    all_errors = pd.concat(errors)
    if all(numbers[columns.by].isna().all() for numbers in scores):
        reason = all_errors.iloc[0] if len(all_errors) else "the column is empty"
        raise DataError(
            f"no row of {reader.name} has a score in {columns.by!r}, so there is nothing to report: {reason}"
        )
    return ScoredData(
        name=reader.name,
        columns=columns,
        checkpoints=summary.get("checkpoints") or {},
        root=root,
        rows=rows,
        scores=pd.concat(scores, ignore_index=True),
        errors=all_errors,
        best=best,
        worst=worst[~worst["key"].isin(best["key"])],
    )


def _find_columns(
    reader: Source, scored: Mapping[str, str | None], by: str | None, candidate: str | None, image: str | None
) -> Columns:
    """The columns to report; `scored` are {role: column} of the run that made the scores."""
    types = _column_types(reader)
    rewards = [name for name in types if name.endswith(_REWARDS)]
    if by is not None:
        find_column("score", types, by, option="--by")
    elif rewards:
        by = next((name for name in _REWARDS if name in rewards), rewards[0])
    else:
        raise DataError(
            f"no column of {reader.name} is named reward or ends with it; name the scores with --by. The columns "
            f"are: {join_names([*types])}."
        )
    if not re.search("int|float|double|null", types[by]):
        cells = enumerate((row.get(by) for row in _records(reader, [by], texts=())), start=1)
        odd_cells = ((number, cell) for number, cell in cells if type(cell) not in (int, float, type(None)))
        for number, cell in odd_cells:
            raise DataError(f"row {number}: column {by!r} must hold scores, got {cell!r:.80}")

    # Whole numbers are ids and counts more often than scores.
    lists = {name for name, type_name in types.items() if type_name.startswith(("list", "large_list"))}
    are_lists = by in lists
    scores = [by]
    for name, type_name in types.items():
        if name != by and re.search("float|double", type_name) and (name in lists) == are_lists:
            scores.append(name)

    # What was scored is taken unless another column is named.
    was_scored = {role: name for role, name in scored.items() if name in types}
    role = "candidates" if are_lists else "candidate"
    caption = find_column(role, types, candidate or was_scored.get("candidate"), option="--candidate-column")
    if candidate is None and caption is not None and (caption in lists) != are_lists:
        caption = None  # --by names a score of the whole list
    image = find_column("image", types, image or was_scored.get("image"), option="--image-column")
    # `score --prefix a_` writes a_reward and a_error.
    prefix = by.removesuffix("s").removesuffix("reward")
    error = next((name for name in (f"{prefix}error", "error") if name in types), None)
    return Columns(by, scores, are_lists, caption, image, error)


def _column_types(reader: Source) -> dict[str, str]:
    """{column: its Arrow type}; in tables of text, where cells have none, of what all cells of the column write."""
    if reader.is_csv:
        values = _records(reader, reader.columns, texts=())
        schema = infer_schema(iter(lambda: list(islice(values, _BATCH)), []))
    else:
        schema = schema_of(reader)
    return {name: str(schema.field(name).type) for name in schema.names}


def _frames(reader: Source, columns: Columns) -> Iterator[pd.DataFrame]:
    """The rows in batches, numbered from 1."""
    names = list(dict.fromkeys([*columns.scores, *columns.texts]))
    texts = [name for name in columns.texts if name != columns.caption or not columns.are_lists]
    records = _records(reader, names, texts)
    first = 1
    while batch := list(islice(records, _BATCH)):
        numbers = pd.RangeIndex(first, first + len(batch), name="row")
        first += len(batch)
        yield pd.DataFrame(batch, numbers, names, dtype=object)


def _records(reader: Source, names: Sequence[str], texts: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The rows with these columns; a row that cannot be read is empty.

    In tables of text, cells become the numbers and lists that they write, but for columns of `texts`.
    """
    for row in reader.rows(names):
        if isinstance(row, BadRow):
            yield {}
        elif reader.is_csv:
            yield {name: cell if name in texts else _value(cell) for name, cell in row.items()}
        else:
            yield row


def _value(cell: str) -> Any:
    """The number or the list that a cell of a table of text writes; None for nothing, else the text."""
    try:
        value: Any = parse_list(cell) if cell.startswith("[") else read_number(cell)
    except InvalidSampleError:
        return cell
    # As in JSON, 3 is a whole number, and so a count or an id, and 3.0 may be a score.
    is_whole = isinstance(value, float) and cell.strip().lstrip("+-").isdecimal()
    return int(value) if is_whole else value


def _one_row_a_caption(frame: pd.DataFrame, columns: Columns, name: str) -> pd.DataFrame:
    """The frame with a row for each item of its lists."""
    lists = list(columns.scores)
    if columns.caption is not None:
        lists.append(columns.caption)
    try:
        return frame.explode(lists)
    except ValueError:
        message = f"{columns.by!r} and other columns of {name} hold lists of different lengths"
        raise DataError(message) from None


def _extremes(parts: Sequence[pd.DataFrame], most: int, *, largest: bool) -> pd.DataFrame:
    """The first of the different rows in order, with how often each is there; rows alike on a page have one `key`."""
    # Columns of an empty frame have types of their own, which pandas warns of when it joins them.
    rows = pd.concat([part for part in parts if len(part)] or parts[1:], ignore_index=True)
    # Rows with neither a caption nor a picture look alike where their scores are equal, and yet are no copies.
    is_bare = rows["caption"].isna() & rows["image"].isna()
    images = rows["image"].map(image_identity)
    texts = rows["score"].astype(str) + "\n" + rows["caption"].astype(str) + "\n" + images
    rows["key"] = np.where(is_bare, rows["row"].astype(str), texts)
    rows["count"] = rows.groupby("key")["count"].transform("sum")
    rows = rows.drop_duplicates("key")
    return rows.sort_values("score", ascending=not largest, kind="stable").head(most)
