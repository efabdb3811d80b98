"""Images with a red box around the object that a text is about."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reward.errors import ImageError
from reward.images import load_image

if TYPE_CHECKING:
    import numpy as np

__all__ = ["BoxedImage"]

_WIDTH = 150  # the line is a 150th of the shorter side, and 2 pixels at least


@dataclass(frozen=True, eq=False)
class BoxedImage:
    """An image with a box that is drawn in red when it is read; may be given wherever an image may.

    Args:
        image: as for `load_image`.
        box: [x, y, width, height] in pixels from the upper left corner, as in COCO and RefCOCO.
        root: where a relative path starts.

    Raises:
        ImageError: when it is read: the image cannot be read, or the box is not of this form or not inside the image.

    Example:
        >>> from PIL import Image
        >>> drawn = load_image(BoxedImage(Image.new("RGB", (40, 30)), [10, 5, 20, 20]))
        >>> drawn.getpixel((10, 5)), drawn.getpixel((20, 15))
        ((255, 0, 0), (0, 0, 0))
    """

    image: Any
    box: Any
    root: str | os.PathLike[str] | None = None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The pixels (H, W, 3)."""
        import numpy as np
        from PIL import ImageDraw

        picture = load_image(self.image, root=self.root).copy()
        try:
            x, y, width, height = map(float, self.box)
            inside = min(x, y) >= -1 and x + width <= picture.width + 1 and y + height <= picture.height + 1
        except (TypeError, ValueError):
            inside = width = height = False
        if not (inside and width > 0 and height > 0):
            raise ImageError(
                f"the box {self.box!r:.60} must be [x, y, width, height] in pixels, inside the image of "
                f"{picture.width} x {picture.height}"
            )
        line = max(2, min(picture.size) // _WIDTH)
        x, y, right, bottom = (
            max(x, 0),
            max(y, 0),
            min(x + width, picture.width) - 1,
            min(y + height, picture.height) - 1,
        )
        ImageDraw.Draw(picture).rectangle((x, y, max(x, right), max(y, bottom)), outline=(255, 0, 0), width=line)
        return np.asarray(picture)
