"""Asks the replicas of a reward service: retries, deadlines, and no requests to those that are down."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from reward.errors import ConfigError, ServiceError
from reward.http_client import LimitedReplies, UnusableReply, backoff, http_library, printable, retry_after

__all__ = ["Refused", "Replicas", "Unreachable", "checked_urls"]

logger = logging.getLogger(__name__)

_AGAIN = (408, 425, 429)  # and all from 500 on
_FIRST_REST, _LONGEST_REST = 0.5, 30.0  # seconds for which a replica that failed is left alone
_LONGEST_WAIT = 60.0  # a replica may ask for a longer rest than ours, but not for an hour


class Refused(Exception):
    """The service will never answer this request, but may answer others."""


class Unreachable(Exception):
    """No replica answered in time."""


def checked_urls(text: str) -> tuple[list[str], str | None]:
    """Addresses of replicas, separated by commas, and the metric behind `#`, if it is named there.

    Raises:
        ConfigError: not an address, or one with a password or a query.

    Example:
        >>> checked_urls("http://a:8123,http://b:8123/#vela")
        (['http://a:8123', 'http://b:8123'], 'vela')
    """
    addresses, _, metric = text.partition("#")
    urls = [url.strip().rstrip("/") for url in addresses.split(",")]
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"a reward service is named by its address, such as http://127.0.0.1:8123, got {url!r}")
        if parts.username or parts.password or parts.query:
            raise ConfigError("the address of a service must hold no user, password or query; set CAPREWARD_TOKEN")
    return urls, metric or None


@dataclass
class _Replica:
    """A server, and for how long it is left alone (on the clock of `time.monotonic`) after failures in a row."""

    url: str
    failures: int = 0
    rests_until: float = 0.0
    is_tried: bool = False  # after a rest, one request at a time until one succeeds

    @property
    def is_open(self) -> bool:
        return self.failures == 0 or (time.monotonic() >= self.rests_until and not self.is_tried)

    def failed(self, least: float) -> None:
        self.failures += 1
        rest = max(least, backoff(self.failures - 1, first=_FIRST_REST, longest=_LONGEST_REST))
        self.rests_until = time.monotonic() + rest


class Replicas:
    """Servers that serve the same metric. Use it in one event loop.

    Args:
        urls: addresses.
        token: bearer token, or None.
        timeout: seconds for one try.
        patience: seconds until a request that no replica has answered is given up, once it is its turn. While no
            replica has answered for that long, further requests are given up after one try at each.
        concurrency: most requests at a time.
    """

    def __init__(
        self, urls: list[str], token: str | None, *, timeout: float, patience: float, concurrency: int
    ) -> None:
        httpx = http_library()

        class Client(LimitedReplies, httpx.AsyncClient):  # type: ignore[name-defined]
            pass

        self._errors = (httpx.HTTPError, asyncio.TimeoutError, OSError)
        self._token, self._timeout, self._patience = token, timeout, patience
        # Proxies of the environment are for the way out; a service is named by its own address.
        self._client = Client(
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=timeout,
            verify=httpx.create_ssl_context(),  # also reads SSL_CERT_FILE and SSL_CERT_DIR
            trust_env=False,
            limits=httpx.Limits(
                max_connections=concurrency,
                max_keepalive_connections=concurrency,
                keepalive_expiry=4.0,  # the service ends a connection after 5 idle seconds
            ),
        )
        self._free = asyncio.Semaphore(concurrency)
        self._replicas = [_Replica(url) for url in urls]
        self._down_since: float | None = None

    async def close(self) -> None:
        await self._client.aclose()

    async def get_all(self, path: str) -> dict[str, Any]:
        """{url: what it answers} of all replicas that answer; at least one.

        Raises:
            Refused, Unreachable: no replica answers.
        """
        replies: dict[str, Any] = {}
        deadline = time.monotonic() + self._patience
        problem: Exception | None = None
        for replica in self._replicas:
            only = self._ask([replica], "GET", path, None, deadline if not replies else time.monotonic() + 1.0)
            try:
                replies[replica.url] = await only
            except (Unreachable, Refused) as error:
                problem = error
        if not replies and problem is not None:
            raise problem
        return replies

    async def post(self, path: str, make_body: Callable[[], bytes], *, key: str = "") -> Any:
        """The answer of a replica; requests of equal `key` go to the same one as long as it answers.

        The body is made, in a thread, when its turn comes. Only from then on does the wait try our patience: the wait
        behind requests of our own says nothing about the service.

        Raises:
            Refused: the service does not take the request.
            ServiceError: it does not know the path or the token.
            Unreachable: there is no answer in time.

        What `make_body` raises is raised, too.
        """
        start = sum(key.encode()) % len(self._replicas)
        order = self._replicas[start:] + self._replicas[:start]
        async with self._free:
            body = await asyncio.to_thread(make_body)
            return await self._ask(order, "POST", path, body, time.monotonic() + self._patience)

    async def _ask(self, order: list[_Replica], method: str, path: str, body: bytes | None, deadline: float) -> Any:
        problem = "no try was made"
        tries = 0
        while True:
            now = time.monotonic()
            is_down = self._down_since is not None and now - self._down_since > self._patience
            if now >= deadline or (is_down and tries >= len(order)):
                raise Unreachable(f"no answer in {tries} tries, last: {problem}")
            replica = next((each for each in order if each.is_open), None)
            if replica is None:
                rest = min(each.rests_until for each in order) - now
                if is_down:
                    raise Unreachable("the service has not answered for long, and is left alone for a moment")
                await asyncio.sleep(max(0.02, min(rest, deadline - now, 1.0)))
                continue
            tries += 1
            answer, problem = await self._try(replica, method, path, body, deadline)
            if answer is not None:
                return answer
            if tries == 1:
                left = deadline - time.monotonic()
                logger.warning("%s does not answer (%s); trying again for up to %.0f s.", replica.url, problem, left)
            logger.info("%s: %s", replica.url, problem)

    async def _try(
        self, replica: _Replica, method: str, path: str, body: bytes | None, deadline: float
    ) -> tuple[Any, str]:
        """The answer, or None and what went wrong."""
        least, replica.is_tried = 0.0, replica.failures > 0
        headers = {"Content-Type": "application/json"} if body is not None else {}
        try:
            seconds = max(0.1, min(self._timeout, deadline - time.monotonic()))
            sending = self._client.request(method, replica.url + path, content=body, headers=headers)
            response = await asyncio.wait_for(sending, seconds)  # the client's limit is for each part of a reply
            if response.status_code == 200:
                answer = response.json()
                replica.failures, self._down_since = 0, None
                return answer, ""
            problem = f"status {response.status_code}: {printable(response.text, self._token)}"
            least = min(retry_after(response.headers), _LONGEST_WAIT)
            status = response.status_code
        except UnusableReply as error:
            raise Refused(str(error)) from None
        except (*self._errors, ValueError, RecursionError) as error:  # the last two: broken JSON
            problem, status = printable(f"{type(error).__name__}: {error}", self._token), 0
        finally:
            replica.is_tried = False
        if status in (401, 403):
            raise ServiceError(f"{replica.url} refuses the token ({problem}); set CAPREWARD_TOKEN to the service's own")
        if status in (301, 302, 307, 308, 404, 405):
            raise ServiceError(f"{replica.url}{path} is not what a reward service of this version has ({problem})")
        if 0 < status < 500 and status not in _AGAIN:
            raise Refused(problem)
        if status in (429, 503):  # it is alive, and only full
            self._down_since = None
        elif self._down_since is None:
            self._down_since = time.monotonic()
        replica.failed(least)
        return None, problem
