"""From an RGB image to the numbers that a network reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["normalized_pixels", "stacked_on"]


def normalized_pixels(image: Image.Image, mean: Sequence[float], std: Sequence[float]) -> torch.Tensor:
    """Pixels (3, H, W), float32, of an RGB image: (value / 255 - mean) / std of each channel.

    A channel has 256 values, so each pixel is looked up. PyTorch's arithmetic gives the same numbers, but every thread
    that prepares images would divide it among threads of its own, which on a machine with many cores takes far longer
    than the work.

    Example:
        >>> from PIL import Image
        >>> normalized_pixels(Image.new("RGB", (30, 20), "white"), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)).unique()
        tensor([1.])
    """
    values = np.asarray(image, dtype=np.uint8)
    pixels = np.empty((3, *values.shape[:2]), dtype=np.float32)
    for channel, table in enumerate(_tables(tuple(mean), tuple(std))):
        np.take(table, values[..., channel], out=pixels[channel], mode="clip")  # with `out`, the default copies
    return torch.from_numpy(pixels)


def stacked_on(device: torch.device, images: Sequence[Any]) -> Any:
    """Images (N, 3, H, W) on a device, of N images (3, H, W) on the CPU; of N dicts of tensors, one dict.

    They are joined there. Joining them on the CPU first took 33 ms for four images, beside an H200 that then needed 4
    ms for all of CLIPScore.
    """
    if isinstance(images[0], Mapping):
        return {name: stacked_on(device, [image[name] for image in images]) for name in images[0]}
    return torch.stack([image.to(device) for image in images])


@lru_cache(maxsize=64)
def _tables(mean: tuple[float, ...], std: tuple[float, ...]) -> np.ndarray:
    values = torch.arange(256, dtype=torch.float32)[:, None] / 255
    tables: np.ndarray = ((values - torch.tensor(mean)) / torch.tensor(std)).T.contiguous().numpy()
    return tables
