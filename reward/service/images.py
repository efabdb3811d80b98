"""Images of requests: base64, data URLs, paths below a folder."""

from __future__ import annotations

import asyncio
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from reward.errors import ImageError
from reward.images import image_size
from reward.rewards.chats import base64_bytes, data_url_bytes
from reward.service.schemas import Base64Image, Image, PathImage, UrlImage
from reward.service.settings import ServiceSettings

__all__ = ["ImageReader", "ImageRefused"]


_ENCODED = ("/9j/", "iVBORw0KGgo", "UklGR", "R0lGOD")  # how JPEG, PNG, WebP and GIF begin in base64
_LONGEST_PATH = 100  # characters that a path may have that begins like these


class ImageRefused(Exception):
    """The service does not read such an image at all, wherever it lies and whatever it holds."""


class ImageReader:
    """Reads the images that requests name, within the limits.

    Args:
        settings: image root, pixels and bytes that are allowed.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        self._root = None if settings.image_root is None else Path(os.path.realpath(settings.image_root))
        # Not the event loop's own: what else waits there must not wait for a slow disk.
        self._threads = ThreadPoolExecutor(16, thread_name_prefix="image")

    async def read(self, image: Image) -> bytes:
        """The encoded bytes of an image, whose header was checked.

        Args:
            image: a string is a data URL, base64, or else a path.

        Raises:
            ImageRefused: a path outside the root, a URL that holds no data, or too many pixels.
            ImageError: missing or broken.
        """
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._read, image)

    def _read(self, image: Image) -> bytes:
        if isinstance(image, Base64Image):
            data = base64_bytes(image.base64)
        elif isinstance(image, PathImage):
            data = self._file(image.path)
        else:
            text = image.url if isinstance(image, UrlImage) else image
            if text[:5].lower() == "data:":
                data = data_url_bytes(text)
            elif text.startswith(_ENCODED) and len(text) > _LONGEST_PATH:
                data = base64_bytes(text)
            elif isinstance(image, UrlImage):
                raise ImageRefused(f"the url of an image must be a data URL, got {text!r:.60}")
            else:
                data = self._file(text)
        try:
            image_size(data, max_pixels=self._settings.max_pixels)
        except ImageError as error:
            if "too many pixels" in str(error):
                raise ImageRefused(str(error)) from None
            raise
        return data

    def _file(self, text: str) -> bytes:
        if self._root is None:
            raise ImageRefused("images by path are off: start the service with --image-root FOLDER, or send the image")
        try:
            path = os.path.realpath(self._root / text)  # with all links followed
            if not path.startswith(str(self._root) + os.sep):
                raise ImageRefused(f"image path {text!r:.200} leads out of the image root")
            # nothing may block: a pipe would
            number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(number, "rb") as file:
                info = os.fstat(number)
                if not stat.S_ISREG(info.st_mode) or info.st_size > self._settings.max_body:
                    raise ImageRefused(
                        f"image path {text!r:.200} is no file of at most {self._settings.max_body} bytes"
                    )
                return file.read(self._settings.max_body)
        except (OSError, ValueError) as error:  # ValueError: a null byte
            reason = error.strerror if isinstance(error, OSError) else "not a path"
            raise ImageError(f"image path {text!r:.200} cannot be read: {reason}") from None
