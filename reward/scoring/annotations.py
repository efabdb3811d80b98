"""Joins captions with a file of annotations, which has the names of their images, their references, or both."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from reward.data.column_names import column_names
from reward.data.samples import find_column, one_image, read_references
from reward.errors import DataError, InvalidSampleError
from reward.scoring.sources import BadRow, DerivedSource, Source, path_in

_Names = tuple[str, ...]  # of an image: its number, if it has one, its path from the root of the disk, and as written


def with_annotations(reader: Source, annotations: Source) -> Source:
    """The data with `file_name` and `references` of the annotations, as far as they have no such columns.

    Images are joined by `image_id` or path, as it is written or from the folder of its file.

    Args:
        reader: captions with `image_id` or the path of their image, such as COCO's results.
        annotations: rows of images with references or captions by people, and perhaps `image_id` and `file_name`, such
            as captions_val2014.json, or CLIPScore's `{image: [references]}`. Several rows of an image are one list.

    Raises:
        DataError: no image is named, or not one of the data is among the annotations.
    """
    keys = [name for name in ("image_id", *column_names("image")) if name in reader.columns]
    if not keys:
        raise DataError(f"{reader.name} has no column image_id or image, by which it could be joined: {reader.columns}")
    facts = _facts_of_images(annotations)
    find = partial(_facts_of_row, _facts_by_name(facts), keys, reader.folder)
    if not any(find(row) for row in reader.rows(keys) if not isinstance(row, BadRow)):
        first = next(iter(facts), ("none",))
        raise DataError(
            f"no image of {reader.name} is in {annotations.name}, which has {first[-1]!r}: both need the same "
            f"image_id or the same path. The images are read from the column {keys[0]!r}"
        )
    columns = {*chain.from_iterable(facts.values())}
    adds = [name for name in ("file_name", "references") if name in columns and name not in reader.columns]
    how = f"annotations {annotations.fingerprint()}"
    return DerivedSource(reader, how, adds, keys, find)


def _facts_of_images(annotations: Source) -> dict[_Names, dict[str, Any]]:
    """{names of an image: its file_name, and a list of references}."""
    columns = annotations.columns
    image = find_column("image", columns, option="--annotations", needed_by="a file of annotations")
    texts = find_column("references", columns, option="--annotations")
    texts = texts or find_column("candidate", columns, option="--annotations")
    keys = [str(image)]
    if "image_id" in columns:
        keys.insert(0, "image_id")
    elif texts is None and "id" in columns:  # of an image, where the rows are images and no captions
        keys.insert(0, "id")
    facts: dict[_Names, dict[str, Any]] = {}
    first_names: dict[str, _Names] = {}
    for row in annotations.rows(columns):
        if isinstance(row, BadRow):
            continue
        names = _names(keys, annotations.folder, row)
        if not names:
            continue
        names = first_names.setdefault(names[0], names)
        values = facts.setdefault(names, {})
        if image == "file_name":
            values["file_name"] = row.get(image)
        if texts is not None:
            values.setdefault("references", []).extend(read_references(row.get(texts)))
    return facts


def _facts_by_name(facts: Mapping[_Names, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """{name: what is said of its image}, of the names that only one image has."""
    by_name: dict[str, dict[str, Any]] = {}
    ambiguous: set[str] = set()
    for names, values in facts.items():
        for name in names:
            if by_name.setdefault(name, values) is not values:
                ambiguous.add(name)
    for name in ambiguous:
        del by_name[name]
    return by_name


def _facts_of_row(
    by_name: Mapping[str, dict[str, Any]], keys: Sequence[str], folder: Path, row: Mapping[str, Any]
) -> dict[str, Any]:
    for name in _names(keys, folder, row):
        if name in by_name:
            return by_name[name]
    return {}


def _names(keys: Sequence[str], folder: Path, row: Mapping[str, Any]) -> _Names:
    """What the image of a row is called; the first name tells images apart."""
    names: dict[str, None] = {}
    for key in keys:
        path = None
        with suppress(InvalidSampleError):
            path = path_in(one_image(row.get(key)))
        if path is None:
            continue
        path = unicodedata.normalize("NFC", os.path.normpath(path))
        if key not in ("image_id", "id"):
            names[os.path.abspath(folder / path)] = None
        names[path] = None
    return tuple(names)
