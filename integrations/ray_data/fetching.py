"""Reads images whose path is an address (`s3://`, `https://`) through fsspec."""

from __future__ import annotations

import os
import posixpath
from typing import Any

from integrations.ray_data.stores import explained, is_down
from reward.errors import DataError, ImageError
from reward.scoring.readers import is_address

LARGEST_IMAGE = 2**30  # bytes


def fetched(image: Any, root: str | os.PathLike[str]) -> Any:
    """The bytes at the address of an image; what has no address is given back.

    Args:
        image: a cell of an image column.
        root: where relative paths start, perhaps an address.

    Raises:
        ImageError: there is no such image.
        DataError: an object store does not answer, which is no fault of the image.
    """
    path = image.get("path") if isinstance(image, dict) and image.get("bytes") is None else image
    if not isinstance(path, str):
        return image
    address = path if is_address(path) or not os.fspath(root) else posixpath.join(os.fspath(root), path)
    return _content(address) if is_address(address) else image


def _content(address: str) -> bytes:
    import fsspec

    try:
        with fsspec.open(address, "rb") as file:
            data: bytes = file.read(LARGEST_IMAGE + 1)
    except Exception as error:  # each file system of fsspec raises errors of its own library
        if is_down(error) and not address.startswith(("http:", "https:")):
            raise DataError(f"image {address!r:.300} cannot be read: {explained(error)}") from error
        raise ImageError(f"image {address!r:.300} cannot be read: {type(error).__name__}: {error}"[:500]) from error
    if len(data) > LARGEST_IMAGE:
        raise ImageError(f"image {address!r:.300} has more than {LARGEST_IMAGE} bytes")
    return data
