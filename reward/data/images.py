"""Reads images (paths, bytes, files, PIL images, arrays, `datasets` dicts) as RGB, and hashes them; no torch."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from reward.data.image_arrays import image_of_array
from reward.data.image_files import FORMATS, encoded_bytes
from reward.errors import ImageError

if TYPE_CHECKING:
    from PIL import Image

    from reward.data.samples import ImageLike

THREADS = min(8, os.cpu_count() or 1)  # threads that decode and scale images
_MAX_PIXELS = 64_000_000
_EXIF_ORIENTATION = 0x0112
_TURNS = {  # EXIF orientation: the member of Pillow's `Transpose` that turns the image upright
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
# Entries of Pillow's `info` that hold the orientation, too.
_ORIENTATION_ENTRIES = ("exif", "Raw profile type exif", "XML:com.adobe.xmp", "xmp")
_PLAIN_MODES = ("1", "L", "P", "RGB", "CMYK", "YCbCr")  # that Pillow's convert("RGB") reads as `load_image` does
_LONGEST_TEXT = 2**20  # bytes of a text beside the pixels of a PNG; Pillow itself refuses longer ones
_MOST_COMPARED = 8  # images of the same look with which the pixels of another are compared


@dataclass(frozen=True)
class KeyedImage:
    """An image with its content hash, for callers that have hashed it already; it may be given wherever an image may.

    Args:
        key: what `image_key` gives for the image as it came.
        image: the image, encoded or decoded; None if all that will score it find it in `prepared`.
        prepared: {id of a scorer: what its `preprocess` gave}, so that it need not do this again.
    """

    key: str
    image: Any
    prepared: dict[int, Any] = field(default_factory=dict, compare=False)


def load_image(
    image: ImageLike, *, root: str | os.PathLike[str] | None = None, max_pixels: int = _MAX_PIXELS
) -> Image.Image:
    """Reads an image as 8-bit RGB, as a viewer would show it on a white page.

    The EXIF orientation is applied, an animation gives its first frame, transparency is laid over white, CMYK and
    palettes are converted, and 16-bit grey is scaled to 8 bits (Pillow alone would clip it to white). The input
    is not changed, and a file object keeps its position. An image that is already plain RGB is returned itself.

    Args:
        image: one of these, or a list or tuple that holds one of them:

            - path, encoded bytes, or seekable binary file. A file has at most 16 bytes for each of `max_pixels`
              pixels, at least 64 MiB;
            - PIL image;
            - undecoded dict of a `datasets.Image` column (`{"bytes": ..., "path": ...}`; bytes are preferred);
            - numpy array, torch tensor, or other array of shape (H, W), (H, W, C) or (C, H, W) with C of 1 (grey), 3
              (RGB) or 4 (RGB and transparency), as uint8, or as floats in [0, 1], which are rounded to 256 levels.
              Small images such as (3, 8, 3), where both ends could be the channels, are refused.
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
    content, name = _read(image, root, max_pixels)
    return _rgb(content, max_pixels, name)


def encoded_image(image: ImageLike, *, root: str | os.PathLike[str] | None = None) -> bytes:
    """The bytes of an image file, without loss: an encoded image stays as it is, any other becomes a PNG.

    Args:
        image, root: as for `load_image`.

    Example:
        >>> from PIL import Image
        >>> encoded_image(Image.new("RGB", (2, 2)))[1:4]
        b'PNG'
    """
    content, name = _read(image, root, _MAX_PIXELS)
    if isinstance(content, bytes):
        return content
    file = BytesIO()
    _rgb(content, _MAX_PIXELS, name).save(file, "PNG", compress_level=1)
    return file.getvalue()


def plain_image(image: Any) -> Any:
    """An image in which every reader sees what `load_image` gives: itself if it is one, else a PNG of that picture.

    The processor of a policy reads with Pillow, which refuses long texts in a PNG, and whose `convert("RGB")` makes
    16-bit grey white and transparency black, and with `datasets`, which fails on EXIF data that cannot be written back.
    So all data for trainers pass through here. Only the header is read of an image that stays.

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
    file: Any = image
    if isinstance(image, dict):
        file = image.get("path") if image.get("bytes") is None else image["bytes"]
    is_path = isinstance(file, (str, os.PathLike)) and os.path.isfile(file)
    if not isinstance(file, bytes) and not is_path:
        return image
    try:
        with opened_image(file, "image") as opened:
            if _is_plain(opened):
                return image
        return {"bytes": encoded_image(load_image(file)), "path": None}
    except ImageError:
        return image


def image_key(image: ImageLike, *, root: str | os.PathLike[str] | None = None) -> str:
    """Content hash of an image: equal content has an equal key, in whatever object it comes.

    Encoded images (path, bytes, file, dict) are hashed without decoding, so a path and the bytes of its file share a
    key. PIL images and arrays are hashed by their size and the RGB pixels that `load_image` gives. An encoded image and
    its decoded PIL image have different keys.

    Args:
        image, root: as for `load_image`.

    Returns:
        64 hexadecimal digits (SHA-256).

    Example:
        >>> from PIL import Image
        >>> red, blue = Image.new("RGB", (2, 2), "red"), Image.new("RGB", (2, 2), "blue")
        >>> image_key(red) == image_key(red.copy()), image_key(red) == image_key(blue)
        (True, False)
    """
    if isinstance(image, KeyedImage):
        return image.key
    content, name = _read(image, root, _MAX_PIXELS)
    if isinstance(content, bytes):
        digest = hashlib.sha256(b"encoded ")
        digest.update(content)
    else:
        pixels = _rgb(content, _MAX_PIXELS, name)
        digest = hashlib.sha256(f"pixels {pixels.width}x{pixels.height} ".encode())
        digest.update(pixels.tobytes())
    return digest.hexdigest()


def keyed_image(
    image: ImageLike, is_known: Callable[[str], bool], *, root: str | os.PathLike[str] | None = None
) -> KeyedImage:
    """Reads and hashes an image, and decodes it only if its pixels are needed.

    Args:
        image, root: as for `load_image`.
        is_known: called with the key; True if the features of the image are at hand, so that it stays encoded.

    Example:
        >>> from PIL import Image
        >>> data = encoded_image(Image.new("RGB", (2, 2)))
        >>> keyed_image(data, lambda key: True).image == data, keyed_image(data, lambda key: False).image.size
        (True, (2, 2))
    """
    content, name = _read(image, root, _MAX_PIXELS)
    key = image_key(content)
    if isinstance(content, bytes) and is_known(key):
        return KeyedImage(key, content)
    return KeyedImage(key, _rgb(content, _MAX_PIXELS, name))


def in_threads(work: Callable[[Any], Any], images: list[Any]) -> list[Any]:
    """Calls a function with each image, in several threads, and gives the results in order."""
    if len(images) == 1 or all(isinstance(image, KeyedImage) and image.prepared for image in images):
        return [work(image) for image in images]
    with ThreadPoolExecutor(min(len(images), THREADS), thread_name_prefix="prepare") as pool:
        return list(pool.map(work, images))


def image_names(images: Sequence[ImageLike], *, by_content: bool = False) -> list[str | ImageError]:
    """A name for each image, which equal images share, or the reason why it cannot be read.

    Trainers hand over a copy of an image for each of its captions. To compare the pixels of two takes a twentieth of
    the time of hashing one. So a decoded RGB image is compared with those before it, and its name says nothing outside
    of this call; any other image is named by its key.

    Args:
        images: of any form.
        by_content: whether all are named by their key, which outlives the call.

    Example:
        >>> from PIL import Image
        >>> red, blue = Image.new("RGB", (2, 2), "red"), Image.new("RGB", (2, 2), "blue")
        >>> image_names([red, blue, red.copy()])
        ['0', '1', '0']
    """
    from PIL import Image, ImageChops

    def read(image: ImageLike) -> Image.Image | str | ImageError:
        try:
            if by_content or not isinstance(image, Image.Image):
                return image_key(image)
            pixels = load_image(image)
            return image if pixels is image else image_key(pixels)
        except ImageError as error:
            return error

    names: list[str | ImageError] = []
    seen: dict[Any, list[tuple[str, Image.Image]]] = {}  # images with their names, by size and a few pixels
    for number, result in enumerate(in_threads(read, list(images))):
        if isinstance(result, (str, ImageError)):
            names.append(result)
            continue
        look = (result.size, result.resize((16, 16), 0).tobytes())
        alike = seen.setdefault(look, [])
        name = None
        for other_name, other in alike:
            if ImageChops.difference(result, other).getbbox() is None:
                name = other_name
                break
        if name is None and len(alike) < _MOST_COMPARED:
            name = str(number)
            alike.append((name, result))
        # One of many images that look alike, such as plots of lines, is hashed after all.
        names.append(name or image_key(result))
    return names


@contextmanager
def opened_image(image: Any, name: str) -> Iterator[Image.Image]:
    """Context with the PIL image of a path or of encoded bytes, of which only the header has been decoded.

    Every error of Pillow inside the context becomes an ImageError, which calls the image by `name`; a PIL image comes
    through for that alone.
    """
    from PIL import Image, PngImagePlugin

    # Pillow refuses a PNG for a compressed text of more than 1 MiB beside the pixels, such as a workflow or a history.
    # All texts of a file together still have its limit of 64 MiB.
    PngImagePlugin.MAX_TEXT_CHUNK = max(PngImagePlugin.MAX_TEXT_CHUNK, PngImagePlugin.MAX_TEXT_MEMORY)
    try:
        if isinstance(image, Image.Image):
            yield image
            return
        file = BytesIO(image) if isinstance(image, bytes) else image
        with Image.open(file, formats=list(FORMATS)) as opened:
            yield opened
    except Image.UnidentifiedImageError:
        raise ImageError(f"{name} is not an image of a supported format ({', '.join(FORMATS)})") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ImageError(f"{name} has too many pixels: {error}") from None
    except ImageError:
        raise
    except Exception as error:  # broken headers or pixels make Pillow's decoders raise nearly any exception
        raise ImageError(f"{name} cannot be decoded: {error}") from error


def check_size(image: Image.Image, max_pixels: int, name: str) -> None:
    """Raises ImageError if an opened image, of which nothing need be decoded, has no pixels or too many."""
    width, height = image.size
    if width * height == 0:
        raise ImageError(f"{name} has no pixels: its size is {width} x {height}")
    if width * height > max_pixels:
        raise ImageError(f"{name} has too many pixels: {width} x {height} is over the limit of {max_pixels}")


def _read(image: Any, root: str | os.PathLike[str] | None, max_pixels: int) -> tuple[Image.Image | bytes, str]:
    """A PIL image, or an array as one, or the encoded bytes of anything else; and a name for messages."""
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
    # numpy's own strings and bytes have __array__ as well
    is_array = hasattr(type(image), "__array__") and not isinstance(image, (Image.Image, str, bytes))
    if is_array:
        image = image_of_array(image)
    if isinstance(image, Image.Image):
        return image, f"PIL image of mode {image.mode}"
    return encoded_bytes(image, root, max_pixels)


def _rgb(content: Image.Image | bytes, max_pixels: int, name: str) -> Image.Image:
    """Decodes a PIL image or encoded bytes as 8-bit RGB, upright, with transparency over white."""
    from PIL import Image

    with opened_image(content, name) as image:
        check_size(image, max_pixels, name)
        if image.mode == "F":
            raise ImageError("an image of floats has no agreed range; convert it to 8 bits first")
        image.load()
        image = _upright(image)
        if image.mode.startswith("I"):  # 16-bit grey, which Pillow also opens as 32-bit integers
            grey = np.clip(np.asarray(image).astype(np.int64), 0, 65535)
            image = Image.fromarray(((grey * 255 + 32767) // 65535).astype(np.uint8))
        if image.has_transparency_data:
            coloured = image.convert("RGBA")
            page = Image.new("RGBA", coloured.size, "white")
            image = Image.alpha_composite(page, coloured)
        return image if image.mode == "RGB" else image.convert("RGB")


def _upright(image: Image.Image) -> Image.Image:
    """The pixels turned by the EXIF orientation; the rest of the EXIF data is neither used nor written back."""
    from PIL import Image

    try:
        orientation: Any = image.getexif().get(_EXIF_ORIENTATION)
        turn = _TURNS.get(orientation)
    except Exception:  # broken EXIF data make Pillow raise nearly any exception, and say nothing of the pixels
        return image
    if turn is None:
        return image
    image = image.transpose(Image.Transpose[turn])
    # Without this, the next reader would turn the image again.
    for entry in _ORIENTATION_ENTRIES:
        image.info.pop(entry, None)
    return image


def _is_plain(image: Image.Image) -> bool:
    """Whether every reader sees in an opened image what `load_image` gives."""
    if image.mode not in _PLAIN_MODES or image.has_transparency_data:
        return False
    if any(isinstance(text, str) and len(text) > _LONGEST_TEXT for text in image.info.values()):
        return False
    try:
        exif = image.getexif()
        if exif.get(_EXIF_ORIENTATION, 1) != 1:
            exif.tobytes()  # as readers do that turn the image, Pillow's own function among them
    except Exception:  # broken EXIF data make Pillow raise nearly any exception
        return False
    return True
