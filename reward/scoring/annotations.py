"""Joins captions with a file of annotations, which has the names of their images, their references, or both."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from reward.data.samples import column_names, find_column, one_image, read_references
from reward.errors import DataError, InvalidSampleError
from reward.scoring.derived_source import DerivedSource
from reward.scoring.sources import BadRow, Source

_ZEROS = re.compile(r"^(COCO_\w+_)?0+(?=\d)")


def with_annotations(source: Source, annotations: Source) -> Source:
    """The data with `file_name` and `references` of the annotations, as far as they have no such columns.

    Args:
        source: captions with `image_id` or the name of their image, such as COCO's results.
        annotations: rows of images with references or captions by people, and perhaps `image_id` and `file_name`, such
            as captions_val2014.json, or CLIPScore's `{image: [references]}`. Several rows of an image are one list.

    Raises:
        DataError: no image is named, or not one of the data is among the annotations.
    """
    known = _by_image(annotations)
    names = [name for name in ("image_id", *column_names("image")) if name in source.columns]
    if not names:
        raise DataError(f"{source.name} has no column image_id or image, by which it could be joined: {source.columns}")
    found = {name for each in known.values() for name in each}
    adds = [name for name in ("file_name", "references") if name in found and name not in source.columns]
    how = f"annotations {annotations.fingerprint()}"
    joined = DerivedSource(source, how, adds, names, partial(_of_row, known, names))
    if adds and not any(isinstance(row, dict) and any(row[name] for name in adds) for row in joined.rows(adds)):
        raise DataError(
            f"no image of {source.name} is in {annotations.name}, which has {next(iter(known), 'none')!r}; the "
            f"images are read from the column {names[0]!r}"
        )
    return joined


def _by_image(annotations: Source) -> dict[str, dict[str, Any]]:
    """{what an image may be called: its file_name, and a list of references}; empty for a name that two share."""
    columns = annotations.columns
    image = find_column("image", columns, option="--annotations", needed_by="a file of annotations")
    texts = find_column("references", columns, option="--annotations")
    texts = texts or find_column("candidate", columns, option="--annotations")
    number = "image_id" if "image_id" in columns else "id" if texts is None and "id" in columns else image
    images: dict[str, tuple[list[str], dict[str, Any]]] = {}
    for row in annotations.rows(columns):
        names = [] if isinstance(row, BadRow) else _names([number, image], row)
        if not names or isinstance(row, BadRow):
            continue
        _, one = images.setdefault(names[0], (names, {}))
        if image == "file_name":
            one["file_name"] = row.get(image)
        if texts is not None:
            one.setdefault("references", []).extend(read_references(row.get(texts)))
    short: dict[str, dict[str, Any]] = {}
    for names, one in images.values():
        for name in _short(names):
            short[name] = one if short.get(name, one) is one else {}
    whole = {name: one for names, one in images.values() for name in names}
    return whole | short | whole


def _of_row(known: Mapping[str, Mapping[str, Any]], columns: Sequence[str], row: Mapping[str, Any]) -> Any:
    names = _names(columns, row)
    return next((known[name] for name in (*names, *_short(names)) if name in known), {})


def _names(columns: Sequence[str | None], row: Mapping[str, Any]) -> list[str]:
    names = []
    for column in columns:
        with suppress(InvalidSampleError):
            names.append(one_image(row.get(str(column))))
    return [name for name in names if isinstance(name, str)]


def _short(names: Sequence[str]) -> list[str]:
    """Names without folder and ending, and COCO's as a number."""
    stems = [os.path.splitext(os.path.basename(name))[0] for name in names]
    return [*stems, *(_ZEROS.sub("", stem) for stem in stems)]
