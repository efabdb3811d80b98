"""Reads images (paths, bytes, files, PIL images, arrays, `datasets` dicts) as RGB, hashes and scales them; no torch."""

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
from reward.data.image_files import encoded_bytes
from reward.errors import ImageError

if TYPE_CHECKING:
    from PIL import Image

    from reward.data.samples import ImageLike

THREADS = min(8, os.cpu_count() or 1)  # that decode and scale images at a time
# Some of Pillow's other decoders start programs (EPS runs Ghostscript) or guess the format.
_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF")
_MAX_PIXELS = 64_000_000
_EXIF_ORIENTATION = 0x0112
_MOST_COMPARED = 8  # images with which another of the same look is compared
_MOST_STRETCH = 500  # largest ratio of an image's sides; scaled to 224 pixels, such an image takes 75 MB


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
    prepared: dict[int, Any] = field(default_factory=dict, compare=False)


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
    data, name = encoded_bytes(image, root, max_pixels)
    with opened_image(BytesIO(data), name) as opened:
        return _rgb(opened, max_pixels, name)


def encoded_image(image: ImageLike, *, root: str | os.PathLike[str] | None = None) -> bytes:
    """An image as the bytes of a file, without loss: encoded images as they are, all others as PNG.

    Args:
        image, root: as for `load_image`.

    Example:
        >>> from PIL import Image
        >>> encoded_image(Image.new("RGB", (2, 2)))[1:4]
        b'PNG'
    """
    from PIL import Image

    image = _single(image)
    if not isinstance(image, Image.Image):
        return encoded_bytes(image, root, _MAX_PIXELS)[0]
    file = BytesIO()
    load_image(image).save(file, "PNG", compress_level=1)
    return file.getvalue()


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
        digest.update(encoded_bytes(image, root, _MAX_PIXELS)[0])
    return digest.hexdigest()


def keyed_image(
    image: ImageLike, known: Callable[[str], bool], *, root: str | os.PathLike[str] | None = None
) -> KeyedImage:
    """Reads an image, and decodes it unless its key is known.

    Args:
        image, root: as for `load_image`.
        known: says of a key whether the image's pixels are not needed.

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
    data, name = encoded_bytes(image, root, _MAX_PIXELS)
    key = image_key(data)
    if known(key):
        return KeyedImage(key, data)
    with opened_image(BytesIO(data), name) as opened:
        return KeyedImage(key, _rgb(opened, _MAX_PIXELS, name))


def in_threads(work: Callable[[Any], Any], images: list[Any]) -> list[Any]:
    """What a function gives for each image; it may raise nothing but what all shall end with."""
    if len(images) < 2 or all(isinstance(image, KeyedImage) and image.prepared for image in images):
        return [work(image) for image in images]
    with ThreadPoolExecutor(min(len(images), THREADS), thread_name_prefix="prepare") as pool:
        return list(pool.map(work, images))


def image_names(images: Sequence[ImageLike], *, by_content: bool = False) -> list[str | ImageError]:
    """A name for each image, which equal ones share, or why it cannot be read.

    Trainers hand over a copy of an image for each of its captions. To compare the pixels of two takes a twentieth of
    the time of hashing one. So decoded RGB images get names that say nothing outside of this call, others their key.

    Args:
        images: of any form.
        by_content: whether all are named by their key, which outlives the call.

    Example:
        >>> from PIL import Image
        >>> red, blue = Image.new("RGB", (2, 2), "red"), Image.new("RGB", (2, 2), "blue")
        >>> image_names([red, blue, red.copy()])
        ['0', '1', '0']
    """
    from PIL import ImageChops

    names: list[str | ImageError] = []
    seen: dict[Any, list[tuple[str, Image.Image]]] = {}  # by what a first look shows
    for place, found in enumerate(in_threads(_key if by_content else _pixels_or_key, list(images))):
        if isinstance(found, (str, ImageError)):
            names.append(found)
            continue
        alike = seen.setdefault((found.size, found.resize((16, 16), 0).tobytes()), [])
        equal = (name for name, other in alike if ImageChops.difference(found, other).getbbox() is None)
        name = next(equal, None)
        if name is None and len(alike) < _MOST_COMPARED:
            alike.append((name := str(place), found))
        names.append(name or image_key(found))  # one of many that look alike, such as plots of lines
    return names


def _pixels_or_key(image: ImageLike) -> Image.Image | str | ImageError:
    """A decoded RGB image as it is, the key of any other."""
    from PIL import Image

    if not isinstance(image, Image.Image):
        return _key(image)
    try:
        pixels = load_image(image)
    except ImageError as error:
        return error
    return pixels if pixels is image else image_key(pixels)


def _key(image: ImageLike) -> str | ImageError:
    try:
        return image_key(image)
    except ImageError as error:
        return error


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
    return image_of_array(image)


@contextmanager
def opened_image(file: Any, name: str) -> Iterator[Image.Image]:
    """An encoded image of which only the header has been decoded."""
    from PIL import Image, PngImagePlugin

    # Pillow refuses a PNG for a compressed text of more than 1 MiB beside the pixels, such as a workflow or a history.
    # All texts of a file together still have its limit of 64 MiB.
    PngImagePlugin.MAX_TEXT_CHUNK = max(PngImagePlugin.MAX_TEXT_CHUNK, PngImagePlugin.MAX_TEXT_MEMORY)
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


def check_size(image: Image.Image, max_pixels: int, name: str) -> None:
    """Raises ImageError if an opened image, of which nothing need be decoded, has no pixels or too many."""
    width, height = image.size
    if width * height == 0:
        raise ImageError(f"{name} has no pixels: its size is {width} x {height}")
    if width * height > max_pixels:
        raise ImageError(f"{name} has too many pixels: {width} x {height} is over the limit of {max_pixels}")


def _rgb(image: Image.Image, max_pixels: int, name: str) -> Image.Image:
    """Decodes an opened PIL image as 8-bit RGB."""
    check_size(image, max_pixels, name)
    try:
        image.load()
        return _flattened(_upright(image))
    except ImageError:
        raise
    except Exception as error:  # broken bytes make Pillow's decoders raise nearly any exception
        raise ImageError(f"{name} cannot be decoded: {error}") from error


def _upright(image: Image.Image) -> Image.Image:
    """The pixels turned by the EXIF orientation, and by nothing else of the EXIF data, whatever state it is in."""
    from PIL import Image

    turn = Image.Transpose
    turns: list[Any] = [None, None, turn.FLIP_LEFT_RIGHT, turn.ROTATE_180, turn.FLIP_TOP_BOTTOM]  # by the orientation
    turns += [turn.TRANSPOSE, turn.ROTATE_270, turn.TRANSVERSE, turn.ROTATE_90]
    try:
        orientation: Any = image.getexif().get(_EXIF_ORIENTATION)
    except Exception:  # broken EXIF data make Pillow raise nearly any exception, and say nothing of the pixels
        return image
    if orientation not in range(2, len(turns)):
        return image
    image = image.transpose(turns[int(orientation)])
    for key in ("exif", "Raw profile type exif", "XML:com.adobe.xmp", "xmp"):  # or the next reader turns it again
        image.info.pop(key, None)
    return image


def _flattened(image: Image.Image) -> Image.Image:
    """Any mode to RGB, with transparency over white."""
    from PIL import Image

    if image.mode == "F":
        raise ImageError("an image of floats has no agreed range; convert it to 8 bits first")
    if image.mode.startswith("I"):  # 16-bit grey, which Pillow also opens as 32-bit integers
        grey = np.clip(np.asarray(image).astype(np.int64), 0, 65535)
        image = Image.fromarray(((grey * 255 + 32767) // 65535).astype(np.uint8))
    if image.has_transparency_data:
        coloured = image.convert("RGBA")
        page = Image.new("RGBA", coloured.size, "white")
        return Image.alpha_composite(page, coloured).convert("RGB")
    if image.mode == "RGB":
        return image
    return image.convert("RGB")


@dataclass(frozen=True)
class Scaling:
    """Scales RGB images to a square: their sides independently, or the shorter side, and then cuts out the middle.

    Args:
        size: pixels of a side.
        crops: whether the shorter side is scaled, as torchvision's `Resize` and `CenterCrop` do.
        filter: of Pillow, in small letters.

    Example:
        >>> from PIL import Image
        >>> Scaling(20)(Image.new("RGB", (40, 30), "white")).shape
        (3, 20, 20)
    """

    size: int
    crops: bool = False
    filter: str = "bicubic"

    def __call__(self, image: Image.Image) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Levels (3, size, size), uint8."""
        from PIL import Image

        wanted = (self.size, self.size)
        if self.crops:
            refuse_thin(image)
            width, height = image.size
            longer = int(self.size * max(width, height) / min(width, height))
            wanted = (self.size, longer) if width <= height else (longer, self.size)
        if image.size != wanted:
            image = image.resize(wanted, Image.Resampling[self.filter.upper()])
        if wanted != (self.size, self.size):
            left, top = (round((side - self.size) / 2) for side in wanted)
            image = image.crop((left, top, left + self.size, top + self.size))
        return np.array(image, dtype=np.uint8).transpose(2, 0, 1)


def refuse_thin(image: Image.Image) -> None:
    """Refuses an image that is too long and thin to be scaled by its shorter side."""
    if max(image.size) / min(image.size) > _MOST_STRETCH:
        raise ImageError(
            f"image of {image.width} x {image.height} pixels is too long and thin: its sides may differ by a "
            f"factor of {_MOST_STRETCH} at most; crop it"
        )
