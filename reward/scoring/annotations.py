"""Joins captions with a file of annotations, which has the names of their images, their references, or both."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from reward.data.column_names import column_names
from reward.data.samples import find_column, one_image, read_references
from reward.errors import DataError, InvalidSampleError
from reward.scoring.sources import BadRow, DerivedSource, Source, path_in

# COCO names images by number: 391895 in its annotations is COCO_val2014_000000391895.jpg.
_ZEROS = re.compile(r"^(COCO_\w+_)?0+(?=\d)")
_Names = tuple[str, ...]  # of an image: its number, if it has one, its path from the root of the disk, and as written


def with_annotations(reader: Source, annotations: Source) -> Source:
    """The data with `file_name` and `references` of the annotations, as far as they have no such columns.

    Images are joined by `image_id` or path; by their bare names, without folder and ending, only where one image on
    either side has that name.

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
    data_names: dict[_Names, None] = {}
    for row in reader.rows(keys):
        if not isinstance(row, BadRow):
            data_names[_names(keys, reader.folder, row)] = None
    join = _Join(facts, data_names)
    if not any(map(join.facts, data_names)):
        first = next(iter(facts), ("none",))
        raise DataError(
            f"no image of {reader.name} is in {annotations.name}, which has {first[-1]!r}; the images are read from "
            f"the column {keys[0]!r}"
        )
    columns = {*chain.from_iterable(facts.values())}
    adds = [name for name in ("file_name", "references") if name in columns and name not in reader.columns]
    how = f"annotations {annotations.fingerprint()}"
    return DerivedSource(reader, how, adds, keys, partial(_facts_of_row, join, keys, reader.folder))


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


class _Join:
    """Finds what the annotations say of an image.

    Args:
        annotated: {names of an image: what is said of it}.
        in_data: the names of each image of the data.
    """

    def __init__(self, annotated: Mapping[_Names, dict[str, Any]], in_data: Iterable[_Names]) -> None:
        self._by_name: dict[str, dict[str, Any]] = {}
        for name, names in _names_of_one(annotated, iter).items():
            self._by_name[name] = annotated[names]
        self._by_bare_name: dict[str, dict[str, Any]] = {}
        # photos/1.jpg and drawings/1.jpg are two images, whichever of them is annotated.
        bare_names = _names_of_one(in_data, _bare_names)
        for name, names in _names_of_one(annotated, _bare_names).items():
            if name in bare_names:
                self._by_bare_name[name] = annotated[names]

    def facts(self, names: _Names) -> dict[str, Any]:
        for name in names:
            if name in self._by_name:
                return self._by_name[name]
        for name in _bare_names(names):
            if name in self._by_bare_name:
                return self._by_bare_name[name]
        return {}


def _facts_of_row(join: _Join, keys: Sequence[str], folder: Path, row: Mapping[str, Any]) -> dict[str, Any]:
    return join.facts(_names(keys, folder, row))


def _names(keys: Sequence[str], folder: Path, row: Mapping[str, Any]) -> _Names:
    """What the image of a row is called; the first name tells images apart."""
    names: dict[str, None] = {}
    for key in keys:
        path = None
        with suppress(InvalidSampleError):
            path = path_in(one_image(row.get(key)))
        if path is None:
            continue
        path = unicodedata.normalize("NFC", os.path.normpath(path.replace("\\", "/")))  # Windows writes photos\1.png
        if key not in ("image_id", "id"):
            names[os.path.abspath(folder / path)] = None
        names[path] = None
    return tuple(names)


def _bare_names(names: _Names) -> Iterator[str]:
    """Names without folder and ending, and COCO's as a number."""
    for name in names:
        stem = os.path.splitext(os.path.basename(name))[0]
        yield stem
        yield _ZEROS.sub("", stem)


def _names_of_one(images: Iterable[_Names], names_in: Callable[[_Names], Iterable[str]]) -> dict[str, _Names]:
    """{name: the image}, of the names that only one image has."""
    owners: dict[str, dict[str, _Names]] = {}
    for names in images:
        for name in names_in(names):
            owners.setdefault(name, {})[names[0]] = names
    return {name: next(iter(images.values())) for name, images in owners.items() if len(images) == 1}
