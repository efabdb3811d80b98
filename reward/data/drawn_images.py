"""Images with a box, as data sets of regions have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reward.data.images import load_image
from reward.errors import ImageError


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
