"""Encoded images of tests."""

from __future__ import annotations

from io import BytesIO

from PIL import Image


def png(picture: Image.Image | str | tuple[int, int, int], size: tuple[int, int] = (8, 8)) -> bytes:
    """A PNG of an image, or of one colour."""
    image = picture if isinstance(picture, Image.Image) else Image.new("RGB", size, picture)
    buffer = BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()
