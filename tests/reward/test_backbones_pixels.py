"""Pixels that a network reads: equal to PyTorch's arithmetic, bit by bit, and joined where the network is."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import functional

from reward.backbones.clip import normalized_pixels


@given(
    width=st.integers(1, 40),
    height=st.integers(1, 40),
    mean=st.tuples(*[st.floats(0, 1)] * 3),
    std=st.tuples(*[st.floats(0.1, 1)] * 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_pixels_are_those_of_torchvision(
    width: int, height: int, mean: tuple[float, ...], std: tuple[float, ...], seed: int
) -> None:
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    image = Image.fromarray(values)
    expected = functional.normalize(functional.to_tensor(image), list(mean), list(std))
    found = normalized_pixels(image, mean, std)
    assert found.dtype == torch.float32
    assert found.is_contiguous()
    assert torch.equal(found, expected)
