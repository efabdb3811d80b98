"""Pixels that a network reads: equal to torchvision's and to PyTorch's arithmetic, bit by bit."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision import transforms
from torchvision.transforms import functional

from reward.backbones.clip import normalized
from reward.images import Scaling


@settings(max_examples=40, deadline=None)
@given(
    width=st.integers(1, 40),
    height=st.integers(1, 40),
    size=st.integers(1, 30),
    crops=st.booleans(),
    mean=st.tuples(*[st.floats(0, 1)] * 3),
    std=st.tuples(*[st.floats(0.1, 1)] * 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_pixels_are_those_of_torchvision(
    width: int, height: int, size: int, crops: bool, mean: tuple[float, ...], std: tuple[float, ...], seed: int
) -> None:
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    image = Image.fromarray(values)
    mode = transforms.InterpolationMode.BICUBIC
    steps = [transforms.Resize(size if crops else (size, size), mode), transforms.CenterCrop(size)]
    scaled = transforms.Compose(steps)(image)
    expected = functional.normalize(functional.to_tensor(scaled), list(mean), list(std))
    found = normalized(torch.as_tensor(Scaling(size, crops)(image)), mean, std)
    assert found.dtype == torch.float32
    assert found.is_contiguous()
    assert torch.equal(found, expected)
