"""What the clients of servers share: the HTTP library, a limit on replies, waits between tries, safe messages."""

from __future__ import annotations

import base64
import math
import random
import re
from collections.abc import Mapping
from time import monotonic
from typing import Any

_SHORTEST_FORM = 8  # characters of a secret in base64 that are looked for
LARGEST_REPLY = 32_000_000  # bytes; 4,096 tokens with 20 alternatives each are about 6 million


class UnusableReply(Exception):
    """A complete reply with impossible values. Asking again would give the same reply."""


class GarbledReply(Exception):
    """A reply with status 200 that holds no answer: cut off, or sent by something between us and the server."""


def http_library() -> Any:
    """`httpx`, which huggingface_hub, a dependency of ours, brings: under the name `httpx2` since its release 2."""
    try:
        import httpx2 as httpx
    except ImportError:
        import httpx  # type: ignore[import-not-found, no-redef, unused-ignore]
    return httpx


def whole_reply(response: Any, seconds: float) -> Any:
    """A streamed response of `httpx`, read to its end and unpacked."""
    deadline = monotonic() + seconds
    content = bytearray()
    try:
        for part in response.iter_bytes():
            content += part
            if len(content) > LARGEST_REPLY:
                raise UnusableReply(f"the server's reply is larger than {LARGEST_REPLY // 10**6} MB")
            if monotonic() > deadline:
                raise GarbledReply(f"no answer within {seconds:g} s")
    finally:
        response.close()
    headers = response.headers.copy()
    for name in ("content-encoding", "content-length", "transfer-encoding"):  # no longer true of what was read
        headers.pop(name, None)
    return type(response)(response.status_code, headers=headers, content=bytes(content), request=response.request)


def backoff(attempt: int, *, first: float = 0.5, longest: float = 60.0) -> float:
    """Seconds until the next try: doubled with each, up to the longest, and at random, so that clients spread out.

    Example:
        >>> 2.0 <= backoff(3, first=0.5) <= 4.0
        True
    """
    return min(longest, first * 2 ** min(attempt, 30)) * random.uniform(0.5, 1.0)


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds that a server asks to wait, in either form of the header; 0 if it does not say.

    Example:
        >>> retry_after({"retry-after": "3"}), retry_after({})
        (3.0, 0.0)
    """
    from email.utils import mktime_tz, parsedate_tz
    from time import time

    value = headers.get("retry-after", "")
    seconds = 0.0
    try:
        seconds = float(value)
    except ValueError:
        date = parsedate_tz(value)
        if date is not None:
            seconds = mktime_tz(date) - time()
    if not math.isfinite(seconds):
        return 0.0
    return max(0.0, seconds)


def printable(text: str, secret: str | None = None) -> str:
    """What a server said, in one line of at most 300 characters that cannot steer a terminal, without the secret.

    Example:
        >>> printable("no\\x1b[2J such\\nkey: abc", secret="abc")
        'no [2J such key: ***'
    """
    if secret:
        forms = [secret, *_encoded_forms(secret)]
        text = re.sub("|".join(map(re.escape, forms)), "***", text, flags=re.IGNORECASE)
    for character in set(text):
        if not character.isprintable():
            text = text.replace(character, " ")
    return " ".join(text.split())[:300]


def _encoded_forms(secret: str) -> list[str]:
    """A secret as base64 has it inside another text, in both alphabets; characters that it shares are left out.

    Where it begins in a group of three bytes decides how it is written: as in the header `Bearer KEY`, for one.

    Example:
        >>> _encoded_forms("secret key")[:3]
        ['c2VjcmV0IGtle', 'NlY3JldCBrZX', 'zZWNyZXQga2V5']
    """
    forms = []
    for offset in range(3):
        encoded = base64.b64encode(b"\0" * offset + secret.encode()).decode().rstrip("=")
        first = -(-offset * 8 // 6)
        last = (offset + len(secret.encode())) * 8 // 6
        if last - first >= _SHORTEST_FORM:
            forms.append(encoded[first:last])
    return forms + [form.replace("+", "-").replace("/", "_") for form in forms]
