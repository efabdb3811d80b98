from __future__ import annotations
import base64
from typing import Any
from reward.service.schemas import Base64Image

async def read_image(image: Any) -> bytes | None:
    if image is None:
        return None
    if isinstance(image, Base64Image):
        return base64.b64decode(image.base64)
    assert image.startswith("data:")
    return base64.b64decode(image.partition(",")[2])
