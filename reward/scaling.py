"""Pictures as the levels that a network reads: scaled, without torch, so that a process needs no more than this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from reward.errors import ImageError

if TYPE_CHECKING:
    from PIL import Image

_MOST_STRETCH = 500  # largest ratio of an image's sides; scaled to 224 pixels, such an image takes 75 MB


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
        """Levels (3, size, size), uint8.

        Raises:
            ImageError: the image is so long and thin that its shorter side cannot be scaled.
        """
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
    """Refuses an image that is too long and thin to be scaled by its shorter side.

    Raises:
        ImageError: it is; the message names its size.
    """
    if max(image.size) / min(image.size) > _MOST_STRETCH:
        raise ImageError(
            f"image of {image.width} x {image.height} pixels is too long and thin: its sides may differ by a "
            f"factor of {_MOST_STRETCH} at most; crop it"
        )
