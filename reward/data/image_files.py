"""The bytes of an encoded image, and the file that it is named by where data leave out its ending."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from reward.errors import ImageError

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".JPG", ".JPEG", ".PNG")
_OF_COCO = ("", "COCO_val2014_", "COCO_train2014_", "COCO_test2014_", "COCO_test2015_")
_MAX_BYTES_A_PIXEL = 16  # four channels of 32 bits, not compressed
# "s3://bucket/a.png"; a pathlib.Path makes one slash of two. A single letter is a drive of Windows.
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+:/|data:", re.IGNORECASE)


def file_stamp(facts: os.stat_result) -> str:
    """Text that changes when a file is edited or replaced, also by one of equal size and time of modification.

    The time of the last change of its entry and its number on the disk cannot be set by a copy.
    """
    return f"{facts.st_size:x}.{facts.st_mtime_ns:x}.{facts.st_ctime_ns:x}.{facts.st_ino:x}"


def image_file(path: str | os.PathLike[str]) -> str:
    """The path itself if a file is there, else the file that it means, else the path.

    The ending may be left out, and a path may be written as on Windows. CLIPScore's and CapArena's captions name images
    `image1` and `test_00731`; in COCO's results `391895` is 000000391895.jpg or COCO_val2014_000000391895.jpg.

    Example:
        >>> image_file("absent/391895")
        'absent/391895'
    """
    path = os.fsdecode(path)
    folder, name = os.path.split(path)
    if not name or os.path.exists(path):
        return path
    if "\\" in name and ".." not in name:  # as Windows writes paths; never out of the folder
        path = os.path.join(folder, *filter(None, name.split("\\")))
        folder, name = os.path.split(path)
    if name.lower().endswith(IMAGE_ENDINGS):
        return path
    names = [name, *(f"{before}{int(name):012d}" for before in _OF_COCO)] if name.isdecimal() else [name]
    files = (os.path.join(folder, each + ending) for each in names for ending in IMAGE_ENDINGS)
    return next(filter(os.path.isfile, files), path)


def encoded_bytes(image: Any, root: str | os.PathLike[str] | None, max_pixels: int) -> tuple[bytes, str]:
    """The encoded bytes of an image that is not a PIL image, and a name for messages."""
    if isinstance(image, dict):
        for key in ("bytes", "path"):
            if image.get(key) is not None:
                return encoded_bytes(image[key], root, max_pixels)
        raise ImageError(f"image dict needs 'bytes' or 'path', got keys {sorted(map(str, image))} without a value")
    if isinstance(image, (bytes, bytearray, memoryview)):
        data, name = bytes(image), "image bytes"
    elif isinstance(image, (str, os.PathLike)):
        path = image_file(os.path.abspath(Path(root or "") / os.fsdecode(image)))
        name = f"image file {path!r:.300}"
        data = _file_bytes(os.fsdecode(image), path, name, max_pixels)
    elif hasattr(image, "read"):
        name = f"image in {type(image).__name__}"
        data = _stream_bytes(image, name)
    else:
        raise ImageError(
            "image must be a path, bytes, a binary file, a PIL image, an array of pixels or a datasets dict, "
            f"got {type(image).__name__}"
        )
    if not data:
        raise ImageError(f"{name} is empty")
    return data, name


def _file_bytes(given: str, path: str, name: str, max_pixels: int) -> bytes:
    try:
        if not os.path.isfile(path):  # absent, a folder, or a pipe, which may block when it is opened
            if _ADDRESS.match(given):
                raise ImageError(
                    f"image {given!r:.120} is an address and nothing is downloaded here: download the file first, and "
                    "give its path or its bytes"
                )
            raise ImageError(f"{name} is not a regular file" if os.path.exists(path) else f"{name} does not exist")
        if (size := os.path.getsize(path)) > (limit := max(_MAX_BYTES_A_PIXEL * max_pixels, 2**26)):
            raise ImageError(f"{name} has {size} bytes, over the limit of {limit}, which is 16 for each of max_pixels")
        return Path(path).read_bytes()
    except OSError as error:
        raise ImageError(f"{name} cannot be read: {error}") from error


def _stream_bytes(stream: Any, name: str) -> bytes:
    """Reads a file from its beginning, and restores its position."""
    try:
        position = stream.tell()
        stream.seek(0)
        try:
            data = stream.read()
        finally:
            stream.seek(position)
    except (AttributeError, OSError, ValueError) as error:  # a pipe, a closed file, an object without seek
        raise ImageError(f"{name} cannot be read: {error}; give its bytes") from error
    if not isinstance(data, bytes):
        raise ImageError(f"{name} gives {type(data).__name__}, not bytes; open it with 'rb'")
    return data
