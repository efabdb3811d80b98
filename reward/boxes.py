"""Images with a red box around the object that a text is about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reward.errors import ImageError
from reward.images import load_image

__all__ = ["BoxedImage"]


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
            x = y = width = height = 0.0
        right, bottom = x + width, y + height
        inside = -1 <= x < right <= picture.width + 1 and -1 <= y < bottom <= picture.height + 1
        if not inside:  # a tolerance of one pixel for fractions; a box of two corners is mostly outside
            size = f"{picture.width} x {picture.height} pixels"
            raise ImageError(f"the box {self.box!r:.60} must be [x, y, width, height], inside the image of {size}")
        corners = (max(x, 0), max(y, 0)), (min(right, picture.width) - 1, min(bottom, picture.height) - 1)
        line = max(2, min(picture.size) // 150)
        ImageDraw.Draw(picture).rectangle((*corners[0], *map(max, *corners)), outline=(255, 0, 0), width=line)
        return np.asarray(picture)
