"""Which images are captioned: those of a folder, or of a data file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reward.data.image_files import file_stamp, image_file, is_image_name
from reward.data.samples import find_column, one_image, read_references
from reward.errors import ConfigError, DataError, InvalidSampleError
from reward.scoring.image_root import image_root as find_root
from reward.scoring.readers import open_source
from reward.scoring.sources import BadRow


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
        given = {"image-column": image_column, "references-column": references_column, "image-root": image_root}
        for name, value in {**given, "split": split}.items():
            if value is not None:
                raise ConfigError(f"--{name} ({name.replace('-', '_')}=) is for a data file, and {path} is none")
    if path.is_dir():
        files = sorted(each for each in path.rglob("*") if each.is_file() and not each.name.startswith("."))
        found = [_row(each) for each in files if is_image_name(each)]
        if not found:
            kinds = ", ".join(sorted({each.suffix or each.name for each in files})[:5]) or "no files"
            raise DataError(f"folder {path} holds no images (.jpg, .png, .webp, ...), but {kinds}")
        return found
    if not path.exists():
        raise DataError(f"there is no folder or file {path}")
    if is_image_name(path):
        return [_row(path)]
    source = open_source(path, split=split)
    image = find_column("image", source.columns, image_column, option="--image-column", needed_by="captioning")
    assert image is not None
    known = find_column("references", source.columns, references_column, option="--references-column")
    root = find_root(source, image, image_root)
    rows = source.rows([name for name in (image, known) if name is not None])
    return [_read_row(row, image, known, root, path) for row in rows]


def _read_row(row: Any, image: str, known: str | None, root: Path, data: Path) -> ImageRow:
    """The image of a row of a data file."""
    if isinstance(row, BadRow):
        return ImageRow(root, problem=row.message)
    try:
        cell, references = one_image(row.get(image)), read_references(row.get(known) if known else None)
    except InvalidSampleError as error:  # a fault of this row
        return ImageRow(root, problem=str(error))
    cell = cell.get("path") if isinstance(cell, dict) and cell.get("bytes") is None else cell
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
