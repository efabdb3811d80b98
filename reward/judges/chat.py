"""One question as a chat completion of an OpenAI-compatible server: what is sent, and how a reply is read."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any

from reward.images import load_image
from reward.judges.base import Answer, Question

if TYPE_CHECKING:
    from reward.samples import ImageLike

__all__ = ["GarbledReply", "chat_messages", "data_url", "read_reply", "request_key", "retry_after"]

_PNG_PIXELS = 1_000_000


class GarbledReply(Exception):
    """A reply with status 200 that holds no answer: cut off on the way, or from something in between."""


def data_url(image: ImageLike) -> str:
    """An image as text: PNG, or JPEG of quality 95 where it has more than a million pixels.

    Raises:
        ImageError: it cannot be read.

    Example:
        >>> from PIL import Image
        >>> data_url(Image.new("RGB", (2, 2)))[:30]
        'data:image/png;base64,iVBORw0K'
    """
    picture = load_image(image)
    small = picture.width * picture.height <= _PNG_PIXELS
    encoded = BytesIO()
    if small:
        picture.save(encoded, "PNG")
    else:
        picture.save(encoded, "JPEG", quality=95)
    return f"data:image/{'png' if small else 'jpeg'};base64,{base64.b64encode(encoded.getvalue()).decode()}"


def chat_messages(question: Question, url: str | None) -> list[dict[str, Any]]:
    """The conversation as the API wants it, with the image before the first text of the user."""
    messages: list[dict[str, Any]] = []
    for role, text in question.turns():
        if role == "user" and url is not None:
            image = {"type": "image_url", "image_url": {"url": url}}
            messages.append({"role": role, "content": [image, {"type": "text", "text": text}]})
            url = None
        else:
            messages.append({"role": role, "content": text})
    return messages


def request_key(question: Question, image_key: str | None, settings: Mapping[str, Any]) -> str:
    """Hash of everything that decides the answer: texts, image, model and settings; nothing else goes in."""
    content = {"turns": question.turns(), "image": image_key, **settings}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_reply(completion: Any, *, top: int) -> Answer:
    """The answer in a completion.

    Args:
        completion: what the client returned.
        top: number of alternatives asked for; 0 reads none.

    Raises:
        GarbledReply: it holds no choice, as when half of it is missing.
    """
    try:
        choice = completion.choices[0]
        text = choice.message.content or getattr(choice.message, "refusal", None) or ""
        listed = (choice.logprobs.content or []) if top and choice.logprobs else []
        return Answer(
            text=text,
            tokens=tuple(position.token for position in listed),
            logprobs=tuple(
                {other.token: float(other.logprob) for other in position.top_logprobs} for position in listed
            ),
            truncated=choice.finish_reason == "length",
        )
    except (AttributeError, IndexError, TypeError) as error:  # the client checks no types: it passes on what came
        raise GarbledReply(f"the server's reply is not a chat completion ({error})") from None


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds that a server asks to wait, in either form of the header; 0 if it does not say.

    Example:
        >>> retry_after({"retry-after": "3"}), retry_after({})
        (3.0, 0.0)
    """
    from email.utils import mktime_tz, parsedate_tz
    from time import time

    said = headers.get("retry-after", "")
    try:
        seconds = float(said)
    except ValueError:
        date = parsedate_tz(said)
        seconds = mktime_tz(date) - time() if date else 0.0
    return max(0.0, seconds) if seconds < float("inf") else 0.0
