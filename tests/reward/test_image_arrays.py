"""load_image and image_key on numpy arrays and torch tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from reward.errors import ImageError
from reward.images import image_key, load_image


@pytest.fixture
def photo() -> Image.Image:
    """Every pixel of its own colour, so that a wrong turn or channel order shows."""
    rows, columns = np.mgrid[0:6, 0:9]
    return Image.fromarray(np.stack([rows * 40, columns * 25, rows + columns], axis=-1).astype(np.uint8))


def pixel_arrays(photo: Image.Image) -> dict[str, Any]:
    """One RGB image as every array that callers hand over."""
    pixels = np.array(photo)
    chw = torch.from_numpy(pixels).permute(2, 0, 1)
    return {
        "numpy HWC": pixels,
        "numpy CHW": pixels.transpose(2, 0, 1),
        "numpy float32": pixels.astype(np.float32) / 255,
        "numpy float64 CHW": pixels.transpose(2, 0, 1) / 255,
        "numpy float16": (pixels / 255).astype(np.float16),
        "tensor CHW": chw,
        "tensor HWC": torch.from_numpy(pixels),
        "tensor float with gradients": (chw / 255).requires_grad_(),
        "list": [photo],
        "tuple": (pixels,),
    }


def test_arrays_and_tensors_are_images(photo: Image.Image) -> None:
    for name, form in pixel_arrays(photo).items():
        assert load_image(form).mode == "RGB", name
        assert load_image(form).tobytes() == photo.tobytes(), name
        assert image_key(form) == image_key(photo), name
    assert load_image(torch.full((3, 4, 5), 0.5, dtype=torch.bfloat16)).getpixel((4, 3)) == (128, 128, 128)


def test_arrays_of_one_or_four_channels() -> None:
    grey = np.array([[0, 77, 255, 5, 6], [1, 2, 3, 4, 5]], dtype=np.uint8)
    for form in (grey, grey[None], grey[:, :, None], grey / 255, torch.from_numpy(grey)):
        image = load_image(form)
        assert (image.size, image.getpixel((1, 0)), image.getpixel((0, 1))) == ((5, 2), (77,) * 3, (1,) * 3)
    clear = np.zeros((4, 2, 5), dtype=np.uint8)  # transparent black
    assert load_image(clear).getpixel((4, 1)) == (255, 255, 255)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((1, 3, 8, 8), np.uint8), r"of shape \(1, 3, 8, 8\) and type uint8 is a batch: give one image"),
        (np.zeros((3, 8, 3), np.uint8), "could have its channels first or last"),
        (np.zeros((8, 8, 2), np.uint8), "is not an image: its shape must be"),
        (np.zeros(8, np.uint8), "is not an image: its shape must be"),
        (np.zeros((0, 8, 3), np.uint8), "has no pixels"),
        (np.zeros((8, 8, 3), np.int64), "type int64 is not an image: its type must be uint8"),
        (np.zeros((8, 8), bool), "type bool is not an image: its type must be uint8"),
        (np.array([[None, None]]), "type object is not an image"),
        (np.full((8, 8, 3), 255.0), "values from 255 to 255: floats must lie in"),
        (torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(0)), "Undo a normalisation of pixels"),
        (np.full((8, 8, 3), np.nan), "values from nan to nan"),
        (torch.zeros(3, 8, 8, device="meta"), "cannot be read as an array"),
    ],
)
def test_arrays_that_may_be_something_else_are_refused(array: Any, message: str) -> None:
    for read in (load_image, image_key):
        with pytest.raises(ImageError, match=message):
            read(array)
