"""Pads images to squares, so that a model which crops the middle out of an image sees all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reward.images import load_image

if TYPE_CHECKING:
    from PIL.Image import Image

    from reward.samples import ImageLike

__all__ = ["pad_to_square"]

_MEAN = (122, 116, 104)  # CLIP's mean colour, which is 0 after its normalisation; LLaVA pads with it


def pad_to_square(image: ImageLike) -> Image:
    """An image in the middle of a square of CLIP's mean colour, with equal borders on the two longer sides.

    Source: the setting `image_aspect_ratio="pad"` of LLaVA-1.5, which FLEUR's authors use.

    Raises:
        ImageError: it cannot be read.

    Example:
        >>> from PIL import Image
        >>> square = pad_to_square(Image.new("RGB", (6, 2)))
        >>> square.size, square.getpixel((0, 1)), square.getpixel((0, 2))
        ((6, 6), (122, 116, 104), (0, 0, 0))
    """
    from PIL import Image

    picture = load_image(image)
    side = max(picture.size)
    square = Image.new("RGB", (side, side), _MEAN)
    square.paste(picture, ((side - picture.width) // 2, (side - picture.height) // 2))
    return square
