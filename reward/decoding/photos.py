"""Which images are captioned: those of a folder, or of a data file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reward.data.image_files import file_stamp, image_file, is_image_name
from reward.data.samples import find_column, one_image, read_references
from reward.errors import ConfigError, DataError, InvalidSampleError
from reward.scoring.readers import open_source
from reward.scoring.sources import BadRow
from reward.scoring.sources import image_root as find_root


@dataclass(frozen=True)
class ImageRow:
    """An image to be captioned.

    Args:
        path: of the image file.
        references: reference captions for the metric, may be empty.
        problem: why it cannot be captioned; None if it can.
    """

    path: Path
    references: tuple[str, ...] = ()
    problem: str | None = None

    @property
    def key(self) -> str:
        """Tells whether stored candidates belong to this file."""
        try:
            return f"{os.path.abspath(self.path)} {file_stamp(self.path.stat())}"
        except OSError:
            return os.path.abspath(self.path)


def read_images(
    images: str | os.PathLike[str],
    *,
    image_column: str | None = None,
    references_column: str | None = None,
    image_root: str | os.PathLike[str] | None = None,
    split: str | None = None,
) -> list[ImageRow]:
    """The images of a folder and the folders in it, in the order of their names; one image file; or those of a file.

    Args:
        images: folder, image file, or a data file with a column of paths, see `open_source`.
        image_column, references_column, image_root, split: of a data file, as for `score_dataset`.

    Raises:
        DataError: nothing there, no image among the files, or a data file that holds the images themselves.
        ConfigError: an option of data files with a folder.
    """
    path = Path(images)
    if path.is_dir() or is_image_name(path):
        settings = {
            "image-column": image_column,
            "references-column": references_column,
            "image-root": image_root,
            "split": split,
        }
        for name, value in settings.items():
            if value is not None:
                raise ConfigError(f"--{name} ({name.replace('-', '_')}=) is for a data file, and {path} is none")
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file() and not file.name.startswith("."))
        rows = [_row(file) for file in files if is_image_name(file)]
        if not rows:
            kinds = ", ".join(sorted({file.suffix or file.name for file in files})[:5]) or "no files"
            raise DataError(f"folder {path} holds no images (.jpg, .png, .webp, ...), but {kinds}")
        return rows
    if not path.exists():
        raise DataError(f"there is no folder or file {path}")
    if is_image_name(path):
        return [_row(path)]
    reader = open_source(path, split=split)
    image = find_column("image", reader.columns, image_column, option="--image-column", needed_by="captioning")
    assert image is not None
    references = find_column("references", reader.columns, references_column, option="--references-column")
    root = find_root(reader, image, image_root)
    columns = [image] if references is None else [image, references]
    return [_read_row(row, image, references, root, path) for row in reader.rows(columns)]


def _read_row(row: Any, image: str, references_column: str | None, root: Path, data: Path) -> ImageRow:
    """The image of a row of a data file."""
    if isinstance(row, BadRow):
        return ImageRow(root, problem=row.message)
    try:
        cell = one_image(row.get(image))
        references = read_references(row.get(references_column))
    except InvalidSampleError as error:  # a fault of this row
        return ImageRow(root, problem=str(error))
    if isinstance(cell, dict) and cell.get("bytes") is None:
        cell = cell.get("path")
    if cell is None:
        return ImageRow(root, problem=f"the row has no image in column {image!r}")
    if not isinstance(cell, str):
        raise DataError(f"{data} holds the images themselves: save them as files, and name the folder instead")
    return _row(Path(image_file(root / cell)), references)


def _row(path: Path, references: tuple[str, ...] = ()) -> ImageRow:
    """The row of an image file. What is written are names in UTF-8, so another is a fault of its row."""
    try:
        os.path.abspath(path).encode()
    except UnicodeEncodeError:
        return ImageRow(path, problem=f"the name of the image file is not UTF-8: {str(path)!r}; rename it")
    return ImageRow(path, references)
