"""Reads images (paths, bytes, files, PIL images, arrays, `datasets` dicts) as RGB, and hashes them."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reward.errors import ImageError
from reward.image_files import image_file
from reward.rgb import exif_is_sound, flattened, from_array, upright

if TYPE_CHECKING:
    from PIL import Image

    from reward.samples import ImageLike

THREADS = min(8, os.cpu_count() or 1)  # that decode and scale images at a time
# Some of Pillow's other decoders start programs (EPS runs Ghostscript) or guess the format.
_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF")
_PLAIN_MODES = ("1", "L", "P", "RGB", "CMYK", "YCbCr")  # that Pillow's convert("RGB") reads as `load_image` does
_MAX_PIXELS = 64_000_000
_MAX_BYTES_A_PIXEL = 16  # four channels of 32 bits, not compressed
# "s3://bucket/a.png"; a pathlib.Path makes one slash of two. A single letter is a drive of Windows.
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+:/|data:", re.IGNORECASE)


@dataclass(frozen=True)
class KeyedImage:
    """An image whose content hash is known; it may be given wherever an image may.

    Args:
        key: what `image_key` gives for the image as it came.
        image: the image, encoded or decoded; None if all that will score it find it prepared.
        prepared: {id of a scorer: what its `preprocess` gave}, so that it need not do this again.
    """

    key: str
    image: Any
    prepared: Mapping[int, Any] = field(default_factory=dict, compare=False)


def load_image(
    image: ImageLike, *, root: str | os.PathLike[str] | None = None, max_pixels: int = _MAX_PIXELS
) -> Image.Image:
    """Reads an image as 8-bit RGB, as a viewer would show it on a white page.

    The EXIF orientation is applied, an animation gives its first frame, transparency is laid over white, CMYK and
    palettes are converted, and 16-bit grey is scaled to 8 bits (Pillow alone would clip it to white). The input
    is not changed, and a file object keeps its position. An image that is already plain RGB is returned itself, not
    copied.

    Args:
        image: one of these, or a list or tuple that holds one of them:

            - path, encoded bytes, or seekable binary file. A file has at most 16 bytes for each of `max_pixels`
              pixels, at least 64 MiB;
            - PIL image;
            - undecoded dict of a `datasets.Image` column (`{"bytes": ..., "path": ...}`; bytes are preferred);
            - numpy array, torch tensor, or other array of shape (H, W), (H, W, C) or (C, H, W) with C of 1 (grey), 3
              (RGB) or 4 (RGB and transparency), as uint8, or as floats in [0, 1], which are rounded to 256 levels.
              Batches, other integer types, other ranges (such as the normalised pixels of an image processor), and
              small images such as (3, 8, 3), where both ends could be the channels, are refused.
        root: folder that relative paths start from; None is the current folder.
        max_pixels: largest width times height. The header is checked before any pixel is decoded.

    Returns:
        PIL image of mode RGB.

    Raises:
        ImageError: a missing or unreadable file, a web address (nothing is downloaded), broken or unknown bytes, too
            many pixels, several images, or an unsupported type, shape or range.

    Example:
        >>> from PIL import Image
        >>> load_image(Image.new("L", (4, 3), 255)).getpixel((0, 0))
        (255, 255, 255)
    """
    from PIL import Image

    image = _single(image)
    if isinstance(image, Image.Image):
        return _rgb(image, max_pixels, f"PIL image of mode {image.mode}")
    data, name = _encoded_bytes(image, root, max_pixels)
    with _opened(BytesIO(data), name) as opened:
        return _rgb(opened, max_pixels, name)


def encoded_image(image: ImageLike, *, root: str | os.PathLike[str] | None = None) -> bytes:
    """An image as the bytes of a file, without loss: encoded images as they are, all others as PNG.

    Args:
        image, root: as for `load_image`.

    Raises:
        ImageError: the image cannot be read. Encoded bytes are not decoded here.

    Example:
        >>> from PIL import Image
        >>> encoded_image(Image.new("RGB", (2, 2)))[1:4]
        b'PNG'
    """
    from PIL import Image

    image = _single(image)
    if not isinstance(image, Image.Image):
        return _encoded_bytes(image, root, _MAX_PIXELS)[0]
    file = BytesIO()
    load_image(image).save(file, "PNG", compress_level=1)
    return file.getvalue()


def plain_image(image: Any) -> Any:
    """The image itself if every reader sees in it what `load_image` gives, else that picture, as the bytes of a PNG.

    The processor of a policy reads with Pillow's `convert("RGB")`, which makes 16-bit grey white and transparency
    black, and with `datasets`, which fails on EXIF data that cannot be written back. So all data for trainers pass
    through here. Only the header is read of an image that stays.

    Args:
        image: path, encoded bytes or undecoded dict of a `datasets.Image` column.

    Returns:
        `image`, or `{"bytes": a PNG of mode RGB, "path": None}`. An image that cannot be read is returned as it is.

    Example:
        >>> from PIL import Image
        >>> data = encoded_image(Image.new("RGB", (2, 2)))
        >>> plain_image(data) is data
        True
    """
    held = image.get("path") if isinstance(image, dict) and image.get("bytes") is None else image
    held = held.get("bytes") if isinstance(held, dict) else held
    if not isinstance(held, bytes) and not (isinstance(held, (str, os.PathLike)) and os.path.isfile(held)):
        return image
    try:
        with _opened(BytesIO(held) if isinstance(held, bytes) else held, "image") as opened:
            if opened.mode in _PLAIN_MODES and not opened.has_transparency_data and exif_is_sound(opened):
                return image
        return {"bytes": encoded_image(load_image(held)), "path": None}
    except ImageError:
        return image


def image_size(data: bytes, *, max_pixels: int = _MAX_PIXELS) -> tuple[int, int]:
    """Width and height of an encoded image, of which only the header is read.

    Raises:
        ImageError: unknown bytes, or more than `max_pixels` pixels.

    Example:
        >>> from PIL import Image
        >>> image_size(encoded_image(Image.new("RGB", (4, 3))))
        (4, 3)
    """
    with _opened(BytesIO(data), "image") as opened:
        _check_size(opened, max_pixels, "image")
        return opened.size


def image_key(image: ImageLike, *, root: str | os.PathLike[str] | None = None) -> str:
    """Content hash of an image: equal content has an equal key, in whatever object it comes.

    Encoded images (path, bytes, file, dict) are hashed without decoding, so a path and the bytes of its file share a
    key. PIL images and arrays are hashed by their size and the RGB pixels that `load_image` gives,
    so that equal pixels share a key. An encoded image and its decoded PIL image have different keys.

    Args:
        image: as for `load_image`.
        root: as for `load_image`.

    Returns:
        64 hexadecimal digits (SHA-256).

    Raises:
        ImageError: the image cannot be read.

    Example:
        >>> from PIL import Image
        >>> red, blue = Image.new("RGB", (2, 2), "red"), Image.new("RGB", (2, 2), "blue")
        >>> image_key(red) == image_key(red.copy()), image_key(red) == image_key(blue)
        (True, False)
    """
    from PIL import Image

    if isinstance(image, KeyedImage):
        return image.key
    image = _single(image)
    if isinstance(image, Image.Image):
        pixels = load_image(image)
        digest = hashlib.sha256(f"pixels {pixels.width}x{pixels.height} ".encode())
        digest.update(pixels.tobytes())
    else:
        digest = hashlib.sha256(b"encoded ")
        digest.update(_encoded_bytes(image, root, _MAX_PIXELS)[0])
    return digest.hexdigest()


def keyed_image(
    image: ImageLike, known: Callable[[str], bool], *, root: str | os.PathLike[str] | None = None
) -> KeyedImage:
    """Reads an image, and decodes it unless its key is known.

    Args:
        image, root: as for `load_image`.
        known: says of a key whether the image's pixels are not needed.

    Raises:
        ImageError: the image cannot be read.

    Example:
        >>> from PIL import Image
        >>> data = encoded_image(Image.new("RGB", (2, 2)))
        >>> keyed_image(data, lambda key: True).image == data, keyed_image(data, lambda key: False).image.size
        (True, (2, 2))
    """
    from PIL import Image

    image = _single(image)
    if isinstance(image, Image.Image):
        return KeyedImage(image_key(image), load_image(image))
    data, name = _encoded_bytes(image, root, _MAX_PIXELS)
    key = image_key(data)
    if known(key):
        return KeyedImage(key, data)
    with _opened(BytesIO(data), name) as opened:
        return KeyedImage(key, _rgb(opened, _MAX_PIXELS, name))


def _single(image: Any) -> Any:
    """The image in a list of one, an array as a PIL image, anything else as it is."""
    from PIL import Image

    if isinstance(image, (list, tuple)):
        if len(image) != 1:
            raise ImageError(
                f"expected one image, got a {type(image).__name__} of {len(image)}: give the image that the caption "
                "describes (rows of pixels as a numpy array of uint8)"
            )
        image = image[0]
    if isinstance(image, KeyedImage):
        image = image.image
    # strings and bytes of numpy are arrays as well
    if isinstance(image, (Image.Image, str, bytes)) or not hasattr(type(image), "__array__"):
        return image
    return from_array(image)


def _encoded_bytes(image: Any, root: str | os.PathLike[str] | None, max_pixels: int) -> tuple[bytes, str]:
    """The encoded bytes of an image that is not a PIL image, and a name for messages."""
    if isinstance(image, dict):
        for key in ("bytes", "path"):
            if image.get(key) is not None:
                return _encoded_bytes(image[key], root, max_pixels)
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
                raise ImageError(_address_message(given))
            raise ImageError(f"{name} is not a regular file" if os.path.exists(path) else f"{name} does not exist")
        if (size := os.path.getsize(path)) > (limit := max(_MAX_BYTES_A_PIXEL * max_pixels, 2**26)):
            raise ImageError(f"{name} has {size} bytes, over the limit of {limit}, which is 16 for each of max_pixels")
        return Path(path).read_bytes()
    except OSError as error:
        raise ImageError(f"{name} cannot be read: {error}") from error


def _address_message(address: str) -> str:
    ways = {
        "file": "give the path alone, without 'file://'",
        "data": "give the bytes, base64.b64decode of what follows the comma",
    }
    way = ways.get(address.partition(":")[0].lower(), "download the file first, and give its path or its bytes")
    return f"image {address!r:.120} is an address and nothing is downloaded here: {way}"


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


@contextmanager
def _opened(file: Any, name: str) -> Iterator[Image.Image]:
    """An encoded image of which only the header has been decoded."""
    from PIL import Image

    try:
        with Image.open(file, formats=_FORMATS) as opened:
            yield opened
    except Image.UnidentifiedImageError:
        raise ImageError(f"{name} is not an image of a supported format ({', '.join(_FORMATS)})") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ImageError(f"{name} has too many pixels: {error}") from None
    except ImageError:
        raise
    except Exception as error:  # broken headers make Pillow's decoders raise nearly any exception
        raise ImageError(f"{name} cannot be decoded: {error}") from error


def _check_size(image: Image.Image, max_pixels: int, name: str) -> None:
    width, height = image.size
    if width * height == 0:
        raise ImageError(f"{name} has no pixels: its size is {width} x {height}")
    if width * height > max_pixels:
        raise ImageError(f"{name} has too many pixels: {width} x {height} is over the limit of {max_pixels}")


def _rgb(image: Image.Image, max_pixels: int, name: str) -> Image.Image:
    """Decodes an opened PIL image as 8-bit RGB."""
    _check_size(image, max_pixels, name)
    try:
        image.load()
        return flattened(upright(image))
    except ImageError:
        raise
    except Exception as error:  # broken bytes make Pillow's decoders raise nearly any exception
        raise ImageError(f"{name} cannot be decoded: {error}") from error
