"""Captions of one's own as the items of a benchmark: any data that `capreward score` reads."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from reward.data.cells import missing_to_none, parse_list, read_number
from reward.data.image_files import image_file
from reward.data.samples import find_column, one_image, read_references
from reward.errors import DataError, InvalidSampleError
from reward.metaeval.benchmarks.items import RATINGS, Benchmark, BenchmarkSpec
from reward.scoring.readers import open_source
from reward.scoring.sources import BadRow, Source, image_identity
from reward.scoring.sources import image_root as find_root
from reward.scoring.summary import summary_beside


def load_captions(
    data: Any,
    *,
    candidate_column: str | None = None,
    split: str | None = None,
    annotations: str | os.PathLike[str] | None = None,
    **columns: Any,
) -> Benchmark:
    """Reads captions without ratings, whose other numbers are score columns.

    Args:
        data: see `reward.scoring.readers.open_source`. Image paths of a file that was scored start where they did then.
        candidate_column, split: see `score_dataset`.
        annotations: file with the names of the images, their references, or both, see `open_source`.
        columns: image_column, references_column and image_root, see `score_dataset`.

    Raises:
        DataError: a column is missing, or a row cannot be read.
    """
    reader = open_source(data, split=split, annotations=annotations)
    columns["scored_from"] = summary_beside(data).get("image_root")
    items = []
    for _, item in read_items(reader, candidate_column=candidate_column, **columns):
        items.append({**item, "ratings": {}})
    spec = BenchmarkSpec(reader.name, reader.name, RATINGS, "tau-c", cider_documents="image", checked="own")
    return Benchmark.of(spec, items)


def read_items(
    reader: Source,
    *,
    captions: Sequence[str] = (),
    judgments: Sequence[str] = (),
    candidate_column: str | None = None,
    image_column: str | None = None,
    references_column: str | None = None,
    image_root: str | Path | None = None,
    scored_from: str | None = None,
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each row as it is, and as an item without its judgment; the other numbers of a row are score columns.

    Args:
        reader: the data.
        captions: the two columns of captions of pairs; empty for one caption a row.
        judgments: columns that are no scores.
        candidate_column, image_column, references_column, image_root: see `score_dataset`.
        scored_from: where image paths started when the data were scored, from its folder.

    Raises:
        DataError: there are no captions, or a row cannot be read.
    """
    names = reader.columns
    if not captions:
        option = "--candidate-column"
        captions = [str(find_column("candidate", names, candidate_column, option=option, needed_by="scoring"))]
    image = find_column("image", names, image_column, option="--image-column")
    references = find_column("references", names, references_column, option="--references-column")
    question = find_column("question", names, option="--question-column")
    further = {}  # what only some metrics read
    for role in ("rubric", "questions"):
        column = find_column(role, names, option=f"--{role}-column")
        if column is not None:
            further[role] = column
    root = Path(image_root or reader.folder)
    with suppress(DataError):  # not one image is there, which matters to some metrics only, and they say so
        root = find_root(reader, image, image_root, scored_from=scored_from)
    scores: list[str] = []
    if len(captions) == 1:
        scores = [name for name in names if name not in {*captions, *judgments, image, references, question}]
    for number, cells in enumerate(reader.rows(names), start=1):
        where = f"{reader.name}, row {number}"
        if isinstance(cells, BadRow):
            raise DataError(f"{where}: {cells.message}")
        row = {name: missing_to_none(cell) for name, cell in cells.items()}
        try:
            picture = one_image(row.get(image)) if image else None
            item = {
                "captions": tuple(_text(row.get(name)) or "" for name in captions),
                "images": (_with_root(picture, root),),
                "references": read_references(row.get(references)) if references else (),
                "image_id": where if picture is None else image_identity(picture, root),
                "category": "",
                "question": _text(row.get(question)) if question else None,
                "cells": {role: parse_list(row.get(column)) for role, column in further.items()},
                "columns": {name: (_score(row.get(name)),) for name in scores},
            }
        except InvalidSampleError as error:
            raise DataError(f"{where}: {error}") from None
        yield row, item


def _text(cell: Any) -> str | None:
    """A text that holds more than blanks; None for any other cell."""
    return cell if isinstance(cell, str) and cell.strip() else None


def _with_root(image: Any, root: Path) -> Any:
    if isinstance(image, dict) and image.get("path"):
        return {**image, "path": root / image["path"]}
    return str(image_file(root / image)) if isinstance(image, str) else image


def _score(cell: Any) -> float:
    """A cell as a number, also where it is written as text; NaN for anything else."""
    number = None
    with suppress(InvalidSampleError):
        number = read_number(cell)
    if number is None:
        return math.nan
    return number
