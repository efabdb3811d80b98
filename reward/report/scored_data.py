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


@dataclass
class ScoredData:
    """A scored data set. A caption is a row, or a candidate in the list of a row.

    Args:
        name: of the file or folder.
        checkpoints: {metric: its checkpoint}, as far as the summary beside the file says.
        root: where relative paths of images start.
        by: column of the main score.
        caption, image: columns; None where there is none.
        rows: rows in all.
        scores: a number for each caption and column of scores, NaN for null, the main score first.
        errors: messages, one a row that has one, with the number of the row from 1 as index.
        best, worst: different captions with the highest and lowest main score, best and worst first: score, caption,
            image, row, and count of rows that are the same. None is among both.
    """

    name: str
    checkpoints: Mapping[str, str | None]
    root: Path
    by: str
    caption: str | None
    image: str | None
    rows: int
    scores: pd.DataFrame
    errors: pd.Series
    best: pd.DataFrame
    worst: pd.DataFrame


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
    source, summary = open_source(data), summary_beside(data)
    columns = _find_columns(source, summary.get("columns") or {}, by, candidate_column, image_column)
    root = source.folder
    with suppress(DataError):  # the page says that the pictures are not there
        root = find_root(source, columns.image, image_root, scored_from=summary.get("image_root"))

    # Once through the rows: numbers are held as columns, texts and pictures only of the best and the worst so far.
    texts = [name for name in (columns.caption, columns.image, columns.error) if name is not None]
    names = list(dict.fromkeys([*columns.scores, *texts]))
    records = _read_records(source, names, columns)
    rows = 0
    scores: list[pd.DataFrame] = []
    errors = [pd.Series(dtype=str)]
    best = worst = pd.DataFrame()
    while batch := list(islice(records, _BATCH)):
        frame = pd.DataFrame(batch, columns=names, dtype=object)
        frame.index = pd.RangeIndex(rows + 1, rows + 1 + len(frame), name="row")
        rows += len(frame)
        if columns.error is not None:
            errors.append(frame[columns.error].replace("", None).dropna().astype(str))
        if columns.are_lists:
            lists = columns.scores if columns.caption is None else [*columns.scores, columns.caption]
            try:
                frame = frame.explode(lists)
            except ValueError:
                message = f"{columns.by!r} and other columns of {source.name} hold lists of different lengths"
                raise DataError(message) from None
        scores.append(frame[columns.scores].astype(float))
        candidates = {"score": scores[-1][columns.by], "caption": None, "image": None, "count": 1}
        if columns.caption is not None:
            candidates["caption"] = frame[columns.caption]
        if columns.image is not None:
            candidates["image"] = frame[columns.image]
        scored = pd.DataFrame(candidates).dropna(subset="score").reset_index()
        best = _extremes([best, scored], examples, largest=True)
        worst = _extremes([worst, scored], examples, largest=False)

    all_errors = pd.concat(errors)
    if all(numbers[columns.by].isna().all() for numbers in scores):
        reason = all_errors.iloc[0] if len(all_errors) else "the column is empty"
        raise DataError(
            f"no row of {source.name} has a score in {columns.by!r}, so there is nothing to report: {reason}"
        )
    return ScoredData(
        name=source.name,
        checkpoints=summary.get("checkpoints") or {},
        root=root,
        by=columns.by,
        caption=columns.caption,
        image=columns.image,
        rows=rows,
        scores=pd.concat(scores, ignore_index=True),
        errors=all_errors,
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
    if not re.search("int|float|double|null", types[by]):
        raise DataError(f"column {by!r} holds {types[by]}, no scores")

    # Whole numbers are ids and counts more often than scores.
    lists = {name for name, type_name in types.items() if type_name.startswith(("list", "large_list"))}
    are_lists = by in lists
    scores = [by]
    for name, type_name in types.items():
        if name != by and re.search("float|double", type_name) and (name in lists) == are_lists:
            scores.append(name)

    # What was scored is taken unless another column is named.
    if candidate is None and scored.get("candidate") in types:
        caption = scored["candidate"]
    else:
        role = "candidates" if are_lists else "candidate"
        caption = find_column(role, types, candidate, option="--candidate-column")
    if candidate is None and caption is not None and (caption in lists) != are_lists:
        caption = None  # --by names a score of the whole list
    if image is None and scored.get("image") in types:
        image = scored["image"]
    else:
        image = find_column("image", types, image, option="--image-column")
    prefix = by.removesuffix("s").removesuffix("reward")
    error = next((name for name in (f"{prefix}error", "error") if name in types), None)
    return _Columns(by, scores, are_lists, caption, image, error)


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
