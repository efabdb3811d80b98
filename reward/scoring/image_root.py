"""Where the relative image paths of a data file start: at its folder, at the working folder, or where the user says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reward.data.image_files import image_file
from reward.data.samples import one_image
from reward.errors import DataError, InvalidSampleError
from reward.scoring.sources import BadRow, Source


def image_root(
    source: Source,
    column: str | None,
    given: str | os.PathLike[str] | None = None,
    *,
    scored_from: str | os.PathLike[str] | None = None,
) -> Path:
    """The folder that relative image paths start from: where the first image that exists is found.

    Args:
        source: the data.
        column: holds the images; None where none are read.
        given: by the user, the only folder that is tried.
        scored_from: where the paths started when the data were scored, which is tried first.

    Raises:
        DataError: the images are files with relative paths, and not one is there; the message has the line to type.
    """
    others = [] if scored_from is None else [source.folder / scored_from]
    folders = [*others, source.folder, Path()] if given is None else [Path(given)]
    first = None
    for name in () if column is None else _names(source, column):
        if not isinstance(name, str) or os.path.isabs(name) or "://" in name or name.startswith("data:"):
            return folders[0]
        for folder in folders:
            if os.path.exists(image_file(folder / name)):
                return folder
        first = first or name
    if first is None:
        return folders[0]
    places = dict.fromkeys(os.path.abspath(folder) for folder in folders)
    guess = next(filter(None, (_place(folder, first) for folder in [*folders, source.folder, Path()])), "FOLDER")
    raise DataError(
        f"no image of {source.name} is there: {first!r} is not in {' nor in '.join(places)}. "
        f"Name the folder that the paths start from: --image-root {guess} (image_root=)"
    )


def _names(source: Source, column: str) -> Iterator[Any]:
    """What is in the image column: names of files, and images. A row without a readable image says so later."""
    for row in source.rows([column]):
        if isinstance(row, BadRow):
            continue
        try:
            cell: Any = one_image(row.get(column))
        except InvalidSampleError:
            continue
        if isinstance(cell, dict) and cell.get("bytes") is None:
            cell = cell.get("path")
        if cell is not None:
            yield cell


def _place(folder: Path, name: str) -> str | None:
    """This folder, or one in it, if the image is there."""
    if not folder.is_dir():
        return None
    inside = sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))
    return next((str(each) for each in [folder, *inside] if os.path.exists(image_file(each / name))), None)
