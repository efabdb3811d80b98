"""A connection whose replies cannot grow without end."""

from __future__ import annotations

from typing import Any

import openai

from reward.judges.chat import UnusableReply

__all__ = ["LARGEST_REPLY", "LimitedClient"]

LARGEST_REPLY = 32_000_000  # bytes; 4,096 tokens with 20 alternatives each are about 6 million


class LimitedClient(openai.DefaultAsyncHttpxClient):
    """The OpenAI client's own connection, which gives up on a reply larger than `LARGEST_REPLY`, unpacked."""

    async def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
        """Sends a request and reads the whole reply.

        Raises:
            UnusableReply: the reply is too large.
        """
        response = await super().send(request, stream=True, **options)
        if stream:
            return response
        parts, size = [], 0
        try:
            async for part in response.aiter_bytes():
                parts.append(part)
                size += len(part)
                if size > LARGEST_REPLY:
                    raise UnusableReply(f"the server's reply is larger than {LARGEST_REPLY // 10**6} MB")
        finally:
            await response.aclose()
        packed = ("content-encoding", "content-length", "transfer-encoding")  # no longer true of what was read
        headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in packed]
        return type(response)(response.status_code, headers=headers, content=b"".join(parts), request=response.request)
