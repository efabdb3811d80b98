"""Arrays of pixels, of numpy, torch and others, as PIL images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from reward.errors import ImageError

if TYPE_CHECKING:
    from PIL import Image

_CHANNELS = (1, 3, 4)  # grey, RGB, RGB with transparency


def image_of_array(array: Any) -> Image.Image:
    """An array of pixels as a PIL image; see `reward.data.images.load_image` for shapes and ranges."""
    from PIL import Image

    try:
        if hasattr(array, "detach"):  # a torch tensor: perhaps with gradients, on another device, or in bfloat16
            array = array.detach().cpu()
            if array.is_floating_point():
                array = array.float()
        pixels = np.asarray(array)
    except Exception as error:  # for example tensors on the device "meta"
        raise ImageError(f"image of type {type(array).__name__} cannot be read as an array: {error}") from error
    name = f"image array of shape {pixels.shape} and type {pixels.dtype}"
    pixels = _levels(_channels_last(pixels, name), name)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    return Image.fromarray(np.ascontiguousarray(pixels))


def _channels_last(pixels: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """The pixels as (H, W) or (H, W, C)."""
    if pixels.ndim > 3:
        raise ImageError(f"{name} is a batch: give one image of it, such as batch[0]")
    if pixels.size == 0:
        raise ImageError(f"{name} has no pixels")
    if pixels.ndim == 2:
        return pixels
    is_first = pixels.ndim == 3 and pixels.shape[0] in _CHANNELS
    is_last = pixels.ndim == 3 and pixels.shape[2] in _CHANNELS
    if is_first and is_last:
        raise ImageError(f"{name} could have its channels first or last: give a PIL image, Image.fromarray(array)")
    if is_first:
        return np.moveaxis(pixels, 0, 2)
    if is_last:
        return pixels
    raise ImageError(f"{name} is not an image: its shape must be (H, W), (H, W, 3) or (3, H, W)")


def _levels(pixels: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """The pixels as uint8; floats in [0, 1] are rounded to levels of 0 to 255."""
    if pixels.dtype == np.uint8:
        return pixels
    if not np.issubdtype(pixels.dtype, np.floating):
        raise ImageError(f"{name} is not an image: its type must be uint8, or float with values in [0, 1]")
    levels = np.rint(pixels.astype(np.float32) * 255)
    if not (levels.min() >= 0 and levels.max() <= 255):  # so that NaN is refused, too
        raise ImageError(
            f"{name} has values from {pixels.min():.4g} to {pixels.max():.4g}: floats must lie in [0, 1]. Undo a "
            "normalisation of pixels, or give levels of 0 to 255 as uint8"
        )
    return levels.astype(np.uint8)
