"""Encoded images of tests."""

from io import BytesIO

from PIL import Image


def png(picture, size=(8, 8)):
    """A PNG of an image, or of one colour."""
    image = picture if isinstance(picture, Image.Image) else Image.new("RGB", size, picture)
    buffer = BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()
