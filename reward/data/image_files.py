"""Encoded images: the file that a path means, and the bytes of files, streams and texts."""

from __future__ import annotations

import base64
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

from reward.errors import ImageError

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".JPG", ".JPEG", ".PNG")
BASE64_IMAGES = ("/9j/", "iVBORw0KGgo", "R0lGOD", "UklGR")  # how JPEG, PNG, GIF and WebP begin in base64
_COCO_PREFIXES = ("", "COCO_val2014_", "COCO_train2014_", "COCO_test2014_", "COCO_test2015_")
_MAX_BYTES_A_PIXEL = 16  # four channels of 32 bits, not compressed
# "s3://bucket/a.png"; a pathlib.Path makes one slash of two. A single letter is a drive of Windows.
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+:/|data:", re.IGNORECASE)


def file_stamp(facts: os.stat_result) -> str:
    """Text that changes when a file is edited or replaced, also by one of equal size and time of modification."""
    # A copy cannot set the time at which the file's entry changed last, nor its number on the disk.
    return f"{facts.st_size:x}.{facts.st_mtime_ns:x}.{facts.st_ctime_ns:x}.{facts.st_ino:x}"


def image_file(path: str | os.PathLike[str]) -> str:
    """The file that a path means: the path itself if a file is there or none is found.

    The ending may be left out, as in CLIPScore's `image1`, and a path may be written as on Windows. In COCO's results
    `391895` is 000000391895.jpg or COCO_val2014_000000391895.jpg.

    Example:
        >>> image_file("absent/391895")
        'absent/391895'
    """
    path = os.fsdecode(path)
    folder, name = os.path.split(path)
    if not name or os.path.exists(path):
        return path
    if "\\" in name and ".." not in name:  # as Windows writes paths; never out of the folder
        parts = [part for part in name.split("\\") if part]
        path = os.path.join(folder, *parts)
        folder, name = os.path.split(path)
    if name.lower().endswith(IMAGE_ENDINGS):
        return path
    stems = [name]
    if name.isdecimal():
        stems += [f"{prefix}{int(name):012d}" for prefix in _COCO_PREFIXES]
    for stem in stems:
        for ending in IMAGE_ENDINGS:
            file = os.path.join(folder, stem + ending)
            if os.path.isfile(file):
                return file
    return path


def encoded_bytes(image: Any, root: str | os.PathLike[str] | None, max_pixels: int) -> tuple[bytes, str]:
    """The encoded bytes of an image that is not a PIL image, and a name for messages; see `images.load_image`."""
    if isinstance(image, dict):
        for key in ("bytes", "path"):
            if image.get(key) is not None:
                return encoded_bytes(image[key], root, max_pixels)
        raise ImageError(f"image dict needs 'bytes' or 'path', got keys {sorted(map(str, image))} without a value")
    if isinstance(image, (bytes, bytearray, memoryview)):
        name = "image bytes"
        data = bytes(image)
    elif isinstance(image, str) and image.startswith("data:"):
        name = "the image's data URL"
        data = data_url_bytes(image)
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


def _file_bytes(text: str, path: str, name: str, max_pixels: int) -> bytes:
    """Reads the file of a path, which came as `text`."""
    # Data name what they like: an address, a file larger than any image, a pipe that blocks when it is opened.
    limit = max(_MAX_BYTES_A_PIXEL * max_pixels, 2**26)
    try:
        if not os.path.isfile(path):
            if _ADDRESS.match(text):
                raise ImageError(
                    f"image {text!r:.120} is an address and nothing is downloaded here: download the file first, and "
                    "give its path or its bytes"
                )
            fault = "is not a regular file" if os.path.exists(path) else "does not exist"
            raise ImageError(f"{name} {fault}")
        size = os.path.getsize(path)
        if size > limit:
            raise ImageError(f"{name} has {size} bytes, over the limit of {limit}, which is 16 for each of max_pixels")
        return Path(path).read_bytes()
    except OSError as error:
        raise ImageError(f"{name} cannot be read: {error}") from error


def _stream_bytes(stream: Any, name: str) -> bytes:
    """Reads a file object from its beginning, and restores its position."""
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


def data_url_bytes(url: str) -> bytes:
    """The bytes that a data URL holds, in base64 or percent-encoded.

    Example:
        >>> data_url_bytes("data:image/png;base64,aGk=")
        b'hi'
    """
    head, comma, data = url.partition(",")
    if not comma:
        raise ImageError("the image's data URL has no comma")
    if head.lower().endswith(";base64"):
        return base64_bytes(data)
    return unquote_to_bytes(data)


def base64_bytes(text: str) -> bytes:
    """The bytes that a text in base64 holds."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise ImageError(f"the image is not base64: {error}") from None
