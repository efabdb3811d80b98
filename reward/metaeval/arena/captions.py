"""Reads the captions of a model, one an image, in the forms that `capreward score` reads."""

from __future__ import annotations

import os

from reward.errors import DataError, InvalidSampleError
from reward.json_files import check_text
from reward.samples import find_column, one_image
from reward.scoring.readers import open_source
from reward.scoring.sources import BadRow

__all__ = ["read_captions"]


def read_captions(path: str | os.PathLike[str]) -> dict[str, str]:
    """Reads the captions of one model: {image: caption} as JSON, or rows with an image and a caption.

    Raises:
        DataError: unreadable, empty, an image named twice, or a caption that is no text.
    """
    source = open_source(path)
    image, caption = (
        find_column(role, source.columns, option="--candidate-column", needed_by=str(path))
        for role in ("image", "candidate")
    )
    captions: dict[str, str] = {}
    for number, row in enumerate(source.rows([str(image), str(caption)]), start=1):
        if isinstance(row, BadRow):
            raise DataError(f"{path}: {row.message}")
        try:
            name = one_image(row.get(str(image)))
        except InvalidSampleError as error:
            raise DataError(f"{path}: row {number}: {error}") from None
        check_text(name, f"{path}: the image of row {number}", blank=False)
        check_text(row.get(str(caption)), f"{path}: the caption of {name!r}", blank=True)
        if name in captions:
            raise DataError(f"{path}: {name!r} is there twice; which one is meant?")
        captions[name] = row[str(caption)]
    return captions
