"""Images of requests: base64, data URLs, paths below a folder."""

from __future__ import annotations

import os
import stat

from reward.data.image_files import base64_bytes, data_url_bytes
from reward.data.images import check_size, opened_image
from reward.errors import ImageError
from reward.service.schemas import Base64Image, Image, PathImage
from reward.service.settings import ServiceSettings


class ImageRefused(Exception):
    """The service does not read such an image at all, wherever it lies and whatever it holds."""


def read_image(image: Image, settings: ServiceSettings) -> bytes:
    """The encoded bytes of an image, whose header was checked.

    Args:
        image: a string is a data URL or base64.
        settings: image root, pixels and bytes that are allowed.

    Raises:
        ImageRefused: a path outside the root, or too many pixels.
        ImageError: missing or broken.
    """
    if isinstance(image, Base64Image):
        data = base64_bytes(image.base64)
    elif isinstance(image, PathImage):
        data = _file(image.path, settings)
    elif image[:5].lower() == "data:":
        data = data_url_bytes(image)
    else:
        try:
            data = base64_bytes(image)
        except ImageError as error:
            raise ImageError(f'{error}; a path is written as {{"path": "..."}}') from None
    try:
        with opened_image(data, "image") as opened:
            check_size(opened, settings.max_pixels, "image")
    except ImageError as error:
        if "too many pixels" in str(error):
            raise ImageRefused(str(error)) from None
        raise
    return data


def _file(text: str, settings: ServiceSettings) -> bytes:
    if settings.image_root is None:
        raise ImageRefused("images by path are off: start the service with --image-root FOLDER, or send the image")
    root = os.path.realpath(settings.image_root)
    try:
        path = os.path.realpath(os.path.join(root, text))  # with all links followed
        if not path.startswith(root + os.sep):
            raise ImageRefused(f"image path {text!r:.200} leads out of the image root")
        info = os.stat(path)
        if not stat.S_ISREG(info.st_mode) or info.st_size > settings.max_body:
            raise ImageRefused(f"image path {text!r:.200} is no file of at most {settings.max_body} bytes")
        with open(path, "rb") as file:
            return file.read(settings.max_body)
    except (OSError, ValueError) as error:  # ValueError: a null byte
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise ImageError(f"image path {text!r:.200} cannot be read: {reason}") from None
