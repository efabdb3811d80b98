"""Images as text: base64, and `data:` URLs."""

from __future__ import annotations

import base64
from urllib.parse import unquote_to_bytes

from reward.errors import ImageError

BASE64_IMAGES = ("/9j/", "iVBORw0KGgo", "R0lGOD", "UklGR")  # how JPEG, PNG, GIF and WebP begin in base64


def data_url_bytes(url: str) -> bytes:
    """The bytes that a data URL holds, in base64 or percent-encoded.

    Example:
        >>> data_url_bytes("data:image/png;base64,aGk=")
        b'hi'
    """
    head, comma, data = url.partition(",")
    if not comma:
        raise ImageError("the image's data URL has no comma")
    return base64_bytes(data) if head.lower().endswith(";base64") else unquote_to_bytes(data)


def base64_bytes(text: str) -> bytes:
    """The bytes that a text in base64 holds."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise ImageError(f"the image is not base64: {error}") from None
