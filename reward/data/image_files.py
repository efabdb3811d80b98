"""Encoded images: the file that a path means, and the bytes of files, streams and texts."""

from __future__ import annotations

import base64
import os
import re
import unicodedata
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from reward.errors import ImageError

# {format that is read: endings of its files}. Some of Pillow's other decoders start programs (EPS runs Ghostscript) or
# guess the format.
FORMATS = {
    "JPEG": (".jpg", ".jpeg", ".jpe", ".jfif"),
    "PNG": (".png", ".apng"),
    "GIF": (".gif",),
    "WEBP": (".webp",),
    "BMP": (".bmp", ".dib"),
    "TIFF": (".tif", ".tiff"),
    "PPM": (".ppm", ".pgm", ".pbm", ".pnm", ".pfm"),
    "JPEG2000": (".jp2", ".j2k", ".jpc", ".jpf", ".jpx", ".j2c"),
    "AVIF": (".avif", ".avifs"),
}
IMAGE_ENDINGS = frozenset().union(*FORMATS.values())
BASE64_IMAGES = ("/9j/", "iVBORw0KGgo", "R0lGOD", "UklGR")  # how JPEG, PNG, GIF and WebP begin in base64
_COCO_PREFIXES = ("", "COCO_val2014_", "COCO_train2014_", "COCO_test2014_", "COCO_test2015_")
_MAX_BYTES_A_PIXEL = 16  # four channels of 32 bits, not compressed
# "s3://bucket/a.png"; a pathlib.Path makes one slash of two. A single letter is a drive of Windows.
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+:/|data:", re.IGNORECASE)


def file_stamp(facts: os.stat_result) -> str:
    """Text that changes when a file is edited or replaced, also by one of equal size and time of modification."""
    # A copy cannot set the time at which the file's entry changed last, nor its number on the disk.
    return f"{facts.st_size:x}.{facts.st_mtime_ns:x}.{facts.st_ctime_ns:x}.{facts.st_ino:x}"


def is_image_name(name: str | os.PathLike[str]) -> bool:
    """Whether a name ends as pictures do that can be read, in whatever case."""
    return os.path.splitext(os.fsdecode(name))[1].lower() in IMAGE_ENDINGS


def image_file(path: str | os.PathLike[str]) -> str:
    """The file that a path means: the path itself if a file is there, or, composed, if none or several could be meant.

    The ending may be left out, as in CLIPScore's `image1`, letters with accents may be composed otherwise, and the path
    may be written as on Windows. In COCO's results `391895` is 000000391895.jpg or COCO_val2014_000000391895.jpg.

    Example:
        >>> image_file("absent/391895")
        'absent/391895'
    """
    path = os.fsdecode(path)
    if os.path.isfile(path):
        return path
    files = files_meant(path)
    if len(files) == 1:
        return files[0]
    return unicodedata.normalize("NFC", path)


def files_meant(path: str) -> list[str]:
    """The files that a path at which there is none could mean, see `image_file`."""
    folder, name = os.path.split(path)
    if "\\" in name and ".." not in name:  # as Windows writes paths; never out of the folder
        path = os.path.join(folder, *name.split("\\"))
        folder, name = os.path.split(path)
    # First the same name with its accents composed otherwise: macOS and some archives write é as two characters, while
    # most data have it as one.
    files = list(filter(os.path.isfile, _stored_paths(path)))
    folders = _stored_paths(folder)
    if files or not name or len(folders) != 1 or is_image_name(name):
        return files
    # Then pictures of that name with an ending, among them those that COCO numbers.
    stems = {unicodedata.normalize("NFC", name): None}
    if name.isdecimal() and len(name) <= 12:
        for prefix in _COCO_PREFIXES:
            stems[f"{prefix}{int(name):012d}"] = None
    pictures = _names_in(folders[0]).pictures
    for stem in stems:
        for picture in pictures.get(stem, ()):
            files.append(os.path.join(folders[0], picture))
    return files


def _stored_paths(path: str) -> list[str]:
    """The paths on the disk that are equal to this one, but for how letters with accents are composed."""
    if not path or os.path.exists(path):
        return [path]
    folder, name = os.path.split(path)
    if not name or path.isascii():
        return []
    paths = []
    for parent in _stored_paths(folder):
        stored_names = [name]
        if not name.isascii():
            stored_names = _names_in(parent).composed.get(unicodedata.normalize("NFC", name), [])
        for stored_name in stored_names:
            paths.append(os.path.join(parent, stored_name))
    return list(filter(os.path.exists, paths))


class _FolderNames(NamedTuple):
    composed: dict[str, list[str]]  # {name with composed letters: names}, of names that are not ASCII
    pictures: dict[str, list[str]]  # {stem with composed letters: names of pictures}


def _names_in(folder: str) -> _FolderNames:
    try:
        return _listed(folder, os.stat(folder or ".").st_mtime_ns)
    except OSError:
        return _FolderNames({}, {})


# Rows that lack an ending ask one by one, and a folder may hold many pictures. `modified`, the folder's time of
# modification, is for the cache alone: a folder that has changed is listed again.
@lru_cache(maxsize=16)
def _listed(folder: str, modified: int) -> _FolderNames:
    names = _FolderNames({}, {})
    for name in sorted(os.listdir(folder or ".")):
        if name.startswith("._"):  # a Mac's notes about a file
            continue
        composed = unicodedata.normalize("NFC", name)
        if not name.isascii():
            names.composed.setdefault(composed, []).append(name)
        if is_image_name(name):
            names.pictures.setdefault(os.path.splitext(composed)[0], []).append(name)
    return names


def encoded_bytes(image: Any, root: str | os.PathLike[str] | None, max_pixels: int) -> tuple[bytes, str]:
    """The encoded bytes of an image that is not a PIL image, and a name for messages.

    Args:
        image: a path, bytes, a data URL, a binary file, or a dict of `datasets` with bytes or path.
        root: folder in which relative paths start; None is the working folder.
        max_pixels: bounds the size of a file, by 16 bytes a pixel.

    Raises:
        ImageError: it is none of these, or there is nothing that can be read.
    """
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
            files = files_meant(path)
            if len(files) > 1:
                fault = f"is not one picture: write {' or '.join(map(os.path.basename, files))}"
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
    """The bytes that a data URL holds, in base64 or percent-encoded."""
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
