"""Where the relative image paths of a data file start: at its folder, at the working folder, or where the user says."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reward.data.image_files import files_meant
from reward.data.samples import one_image
from reward.errors import DataError, InvalidSampleError
from reward.scoring.columns import path_in
from reward.scoring.sources import BadRow, Source


def image_root(
    source: Source,
    column: str | None,
    given: str | os.PathLike[str] | None = None,
    *,
    scored_from: str | os.PathLike[str] | None = None,
) -> Path:
    """The folder that relative image paths start from: one for all rows.

    It is the folder of the data, and the working folder only if not one image is in the first; a warning says so.

    Args:
        source: the data.
        column: holds the images; None where none are read.
        given: by the user, the only folder that is tried.
        scored_from: where the paths started when the data were scored, which is tried first.

    Raises:
        DataError: the images are files with relative paths and not one is there, or all are addresses; the message has
            the line to type.
    """
    folders = [source.folder] if given is None else [Path(given)]
    if given is None and scored_from is not None:
        folders.insert(0, source.folder / scored_from)
    if column is None:
        return folders[0]
    working_folder = Path()
    is_here = False  # whether the first image that is missing elsewhere, or a later one, is in the working folder
    missing: str | None = None
    address: str | None = None
    for image in _images(source, column):
        path = path_in(image)
        # The first row that needs no folder ends the search, which would read all rows, and their images with them.
        if path is None or os.path.isabs(path):
            return folders[0]
        if "://" in path:  # a fault of its row, unless all rows have one
            address = address or path
            continue
        for folder in folders:
            if _is_there(folder, path):
                return folder
        missing = missing or path
        is_here = is_here or _is_there(working_folder, path)
    if missing is None and address is None:
        return folders[0]
    if missing is None:
        raise DataError(
            f"the images of {source.name} are at addresses such as {address!r:.120}, and nothing is downloaded: "
            f"download them, write their paths into the column {column!r}, and name their folder with --image-root "
            "FOLDER (image_root=)"
        )
    if is_here and given is None:
        warnings.warn(
            f"no image of {source.name} is in {os.path.abspath(source.folder)}: paths start at the working folder, "
            f"{os.path.abspath(working_folder)}, as --image-root . (image_root=) says",
            stacklevel=2,
        )
        return working_folder
    if given is None:
        folders.append(working_folder)
    tried = dict.fromkeys(os.path.abspath(folder) for folder in folders)
    raise DataError(
        f"no image of {source.name} is there: {missing!r} is not in {' nor in '.join(tried)}. Name the folder that the "
        f"paths start from: --image-root FOLDER (image_root=)"
    )


def _images(source: Source, column: str) -> Iterator[Any]:
    """What is in the image column: names of files, and images. A row without a readable image says so later."""
    for row in source.rows([column]):
        if isinstance(row, BadRow):
            continue
        try:
            image = one_image(row.get(column))
        except InvalidSampleError:
            continue
        if image is not None:
            yield image


def _is_there(folder: Path, path: str) -> bool:
    file = os.path.join(folder, path)
    return os.path.exists(file) or bool(files_meant(file))
