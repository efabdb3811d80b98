"""Every way an image arrives (path, bytes, file, PIL image, `datasets` dict) to one RGB image, and its content hash."""

from __future__ import annotations

import hashlib
import os
import stat
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reward.errors import ImageError

if TYPE_CHECKING:
    from PIL import Image

    from reward.samples import ImageLike

__all__ = ["image_key", "load_image"]

# Photographs and drawings only: some of Pillow's other decoders start programs (EPS runs Ghostscript) or guess.
_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF")
_EXIF_ORIENTATION = 0x0112


def load_image(
    image: ImageLike, *, root: str | os.PathLike[str] | None = None, max_pixels: int = 64_000_000
) -> Image.Image:
    """Reads an image as 8-bit RGB, the way a viewer would show it on white paper.

    The EXIF orientation is applied, an animation gives its first frame, transparency is laid over white, CMYK and
    palettes are converted, and 16-bit grey is scaled to 8 bits (Pillow alone would clip it to white). The input
    is left as it was: a file object keeps its position, a PIL image its pixels. An image that is already plain RGB is
    given back itself, not copied.

    Args:
        image: path, encoded bytes, seekable binary file, PIL image, or the undecoded dict of a `datasets.Image`
            column (`{"bytes": ..., "path": ...}`; bytes are used where there are any).
        root: folder that relative paths start from; None is the current folder.
        max_pixels: width times height that is still decoded. The header is checked before any pixel is decoded.

    Returns:
        PIL image of mode RGB.

    Raises:
        ImageError: missing or unreadable file, broken or unknown bytes, too many pixels, or an unsupported type.

    Example:
        >>> from PIL import Image
        >>> load_image(Image.new("L", (4, 3), 255)).getpixel((0, 0))
        (255, 255, 255)
    """
    from PIL import Image

    if isinstance(image, Image.Image):
        return _rgb(image, max_pixels, f"PIL image of mode {image.mode}")
    data, name = _encoded_bytes(image, root)
    try:
        with Image.open(BytesIO(data), formats=_FORMATS) as opened:
            return _rgb(opened, max_pixels, name)
    except Image.UnidentifiedImageError:
        raise ImageError(f"{name} is not an image of a supported format ({', '.join(_FORMATS)})") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ImageError(f"{name} has too many pixels: {error}") from None
    except ImageError:
        raise
    except Exception as error:  # broken headers make Pillow's decoders raise nearly any exception
        raise ImageError(f"{name} cannot be decoded: {error}") from error


def image_key(image: ImageLike, *, root: str | os.PathLike[str] | None = None) -> str:
    """Content hash of an image: equal content gives an equal key, whatever object carries it.

    Encoded images (path, bytes, file, dict) are hashed as they are, without decoding, so that a path and the bytes
    of its file share a key. PIL images are hashed by their size and the RGB pixels that `load_image` gives, so that
    equal pixels share a key. An encoded image and its decoded PIL image have different keys.

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

    if isinstance(image, Image.Image):
        pixels = load_image(image)
        digest = hashlib.sha256(f"pixels {pixels.width}x{pixels.height} ".encode())
        digest.update(pixels.tobytes())
    else:
        digest = hashlib.sha256(b"encoded ")
        digest.update(_encoded_bytes(image, root)[0])
    return digest.hexdigest()


def _encoded_bytes(image: Any, root: str | os.PathLike[str] | None) -> tuple[bytes, str]:
    """The encoded bytes of an image that is not a PIL image, and a name for messages."""
    if isinstance(image, dict):
        if image.get("bytes") is not None:
            return _encoded_bytes(image["bytes"], root)
        if image.get("path") is not None:
            return _encoded_bytes(image["path"], root)
        raise ImageError(f"image dict needs 'bytes' or 'path', got keys {sorted(map(str, image))} without a value")
    if isinstance(image, (bytes, bytearray, memoryview)):
        data, name = bytes(image), "image bytes"
    elif isinstance(image, (str, os.PathLike)):
        if os.fsdecode(image).startswith(("http://", "https://")):
            raise ImageError(f"image {image!r} is a web address; nothing is downloaded here, give a file or its bytes")
        path = os.path.abspath(Path(root or "") / os.fsdecode(image))
        data, name = _file_bytes(path), f"image file {path!r:.300}"
    elif hasattr(image, "read"):
        data, name = _stream_bytes(image), f"image in {type(image).__name__}"
    else:
        raise ImageError(
            f"image must be a path, bytes, a binary file, a PIL image or a datasets dict, got {type(image).__name__}"
        )
    if not data:
        raise ImageError(f"{name} is empty")
    return data, name


def _file_bytes(path: str) -> bytes:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a folder; a pipe or a device could be read for ever
            raise ImageError(f"image path {path!r} is not a regular file")
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise ImageError(f"image file {path!r} does not exist") from None
    except (OSError, ValueError) as error:
        if isinstance(error, ImageError):
            raise
        raise ImageError(f"image file {path!r:.300} cannot be read: {error}") from error  # ValueError: a null byte


def _stream_bytes(stream: Any) -> bytes:
    """Reads a file from its beginning, and puts it back where it stood."""
    try:
        position = stream.tell()
        stream.seek(0)
        data = stream.read()
        stream.seek(position)
    except (AttributeError, OSError, ValueError) as error:  # a pipe, a closed file, an object without seek
        raise ImageError(f"image in {type(stream).__name__} cannot be read: {error}; give its bytes") from error
    if not isinstance(data, bytes):
        raise ImageError(f"image in {type(stream).__name__} gives {type(data).__name__}, not bytes; open it with 'rb'")
    return data


def _rgb(image: Image.Image, max_pixels: int, name: str) -> Image.Image:
    """An opened, perhaps not yet decoded, PIL image as 8-bit RGB."""
    from PIL import ImageOps

    width, height = image.size
    if width * height == 0:
        raise ImageError(f"{name} has no pixels: its size is {width} x {height}")
    if width * height > max_pixels:
        raise ImageError(f"{name} has too many pixels: {width} x {height} is over the limit of {max_pixels}")
    try:
        image.load()
        if image.getexif().get(_EXIF_ORIENTATION, 1) != 1:
            image = ImageOps.exif_transpose(image)
        return _flattened(image)
    except ImageError:
        raise
    except Exception as error:  # broken bytes make Pillow's decoders raise nearly any exception
        raise ImageError(f"{name} cannot be decoded: {error}") from error


def _flattened(image: Image.Image) -> Image.Image:
    """Any mode to RGB, with transparency over white."""
    from PIL import Image

    if image.mode == "F":
        raise ImageError("an image of floats has no agreed range; convert it to 8 bits first")
    if image.mode.startswith("I"):  # 16-bit grey, which Pillow also opens as 32-bit integers
        import numpy as np

        grey = np.clip(np.asarray(image).astype(np.int64), 0, 65535)
        image = Image.fromarray(((grey * 255 + 32767) // 65535).astype(np.uint8))
    if image.has_transparency_data:
        coloured = image.convert("RGBA")
        page = Image.new("RGBA", coloured.size, "white")
        return Image.alpha_composite(page, coloured).convert("RGB")
    if image.mode == "RGB":
        return image
    return image.convert("RGB")
