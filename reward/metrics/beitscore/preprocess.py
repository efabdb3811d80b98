"""Pictures to BEiT-3's pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from PIL import Image

    from reward.metrics.beitscore.config import BeitScoreConfig

__all__ = ["preprocess"]


def preprocess(image: Image.Image, config: BeitScoreConfig) -> torch.Tensor:
    """Pixels (3, S, S), float32: scaled to the square of `config.image_size`, bicubic, and normalised.

    Args:
        image: RGB, of any size; the sides are scaled independently, nothing is cropped.
        config: size, mean and std.

    Example:
        >>> from PIL import Image
        >>> from reward.metrics.beitscore.config import BeitScoreConfig
        >>> preprocess(Image.new("RGB", (30, 20), "white"), BeitScoreConfig(image_size=32)).unique()
        tensor([1.])
    """
    from PIL import Image

    if image.size != (config.image_size, config.image_size):
        image = image.resize((config.image_size, config.image_size), Image.Resampling.BICUBIC)
    pixels = torch.from_numpy(np.array(image, dtype=np.uint8)).permute(2, 0, 1).float() / 255
    mean, std = (torch.tensor(values)[:, None, None] for values in (config.image_mean, config.image_std))
    return (pixels - mean) / std
