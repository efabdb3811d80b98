"""Images that are drawn anew: with a box, or so that every reader sees the same picture."""

from __future__ import annotations

import os
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

from reward.data.image_files import opened_image
from reward.data.images import encoded_image, load_image
from reward.errors import ImageError

if TYPE_CHECKING:
    from PIL import Image

_PLAIN_MODES = ("1", "L", "P", "RGB", "CMYK", "YCbCr")  # that Pillow's convert("RGB") reads as `load_image` does
_EXIF_ORIENTATION = 0x0112
_LONGEST_TEXT = 2**20  # bytes of a text beside the pixels of a PNG; Pillow itself refuses longer ones


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
        >>> from reward.data.images import encoded_image
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
        with opened_image(file if is_path else BytesIO(file), "image") as opened:
            has_plain_pixels = opened.mode in _PLAIN_MODES and not opened.has_transparency_data
            has_long_text = any(isinstance(text, str) and len(text) > _LONGEST_TEXT for text in opened.info.values())
            if has_plain_pixels and not has_long_text and _exif_is_sound(opened):
                return image
        return {"bytes": encoded_image(load_image(file)), "path": None}
    except ImageError:
        return image


def _exif_is_sound(image: Image.Image) -> bool:
    """Whether readers that write the EXIF data back when they turn an image, as Pillow's own function does, succeed."""
    try:
        exif = image.getexif()
        if exif.get(_EXIF_ORIENTATION, 1) != 1:
            exif.tobytes()
    except Exception:  # broken EXIF data make Pillow raise nearly any exception
        return False
    return True


@dataclass(frozen=True, eq=False)
class BoxedImage:
    """An image with a box that is drawn in red when it is read; may be given wherever an image may.

    Args:
        image, root: as for `load_image`.
        box: [x, y, width, height] in pixels, as in COCO and RefCOCO; another, or one outside, raises ImageError.

    Example:
        >>> from PIL import Image
        >>> drawn = load_image(BoxedImage(Image.new("RGB", (40, 30)), [10, 5, 20, 20]))
        >>> drawn.getpixel((10, 5)), drawn.getpixel((20, 15))
        ((255, 0, 0), (0, 0, 0))
    """

    image: Any
    box: Any
    root: Any = None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """The pixels (H, W, 3)."""
        import numpy as np
        from PIL import ImageDraw

        picture = load_image(self.image, root=self.root).copy()
        try:
            x, y, width, height = map(float, self.box)
        except (TypeError, ValueError):
            x = y = width = height = 0.0  # refused below, with the same message
        right, bottom = x + width, y + height
        # With a tolerance of one pixel for fractions. A box that is written as two corners is mostly outside.
        is_inside = -1 <= x < right <= picture.width + 1 and -1 <= y < bottom <= picture.height + 1
        if not is_inside:
            size = f"{picture.width} x {picture.height} pixels"
            raise ImageError(f"the box {self.box!r:.60} must be [x, y, width, height], inside the image of {size}")
        left, top = max(x, 0), max(y, 0)
        # Pillow counts the last column and row in; a box narrower than a pixel still has one.
        right = max(left, min(right, picture.width) - 1)
        bottom = max(top, min(bottom, picture.height) - 1)
        line = max(2, min(picture.size) // 150)
        ImageDraw.Draw(picture).rectangle((left, top, right, bottom), outline=(255, 0, 0), width=line)
        return np.asarray(picture)
