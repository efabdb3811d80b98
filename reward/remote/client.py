"""Asks the replicas of a reward service: retries, deadlines, and no requests to those that are down."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from reward.errors import ConfigError, ServiceError
from reward.http_client import (
    GarbledReply,
    UnusableReply,
    backoff,
    http_library,
    printable,
    retry_after,
    whole_reply,
)

logger = logging.getLogger(__name__)

_AGAIN = (408, 425, 429)  # and all from 500 on
_FIRST_REST = 0.5  # seconds for which a replica that failed is left alone: doubled each time
_LONGEST_REST = 30.0  # seconds, at most
_LONGEST_WAIT = 60.0  # a replica may ask for a longer rest than ours, but not for an hour
_CONNECTING = 10.0  # seconds for a connection, at most
_SILENCE = 5.0  # seconds without an answer until a warning
_REMINDER = 60.0  # seconds from one warning to the next
_MOST_DEATHS = 3  # of services in the middle of a request, until it is given up


class RequestRefused(Exception):
    """The service will never answer this request, but may answer others."""


class Unreachable(Exception):
    """No replica answered in time."""


class _Failed(Exception):
    """A try without an answer; after a rest, another may have one."""

    def __init__(self, problem: str, least_rest: float = 0.0, is_death: bool = False) -> None:
        super().__init__(problem)
        self.least_rest, self.is_death = least_rest, is_death


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


def checked_key(key: Any, name: str) -> str:
    """The key of a service, which no message shows.

    Raises:
        ConfigError: it is no text that can stand in a header.
    """
    is_text = isinstance(key, str) and key.isascii() and key.isprintable() and key.strip() == key != ""
    if not is_text:
        raise ConfigError(f"{name} must be a text of ASCII letters, digits and signs, without blanks around it")
    return key


@dataclass
class _Replica:
    """A server, and for how long it is left alone (on the clock of `time.monotonic`) after failures in a row."""

    url: str
    failures: int = 0
    rests_until: float = 0.0
    warns_at: float = 0.0
    is_tried: bool = False  # after a rest, one request at a time until one succeeds

    @property
    def is_open(self) -> bool:
        return self.failures == 0 or (time.monotonic() >= self.rests_until and not self.is_tried)


class Replicas:
    """Servers that serve the same metric; they may be asked by several threads at a time.

    A request that ends a service takes with it whatever else is scored there. So one whose connection broke is sent
    again by itself, to a service that is well; after three that died of it, it is given up.

    Args:
        urls: addresses.
        token: bearer token, or None.
        timeout: seconds for one try.
        patience: seconds until a request that no replica has answered is given up, once it is its turn. While no
            replica has answered for that long, further requests are given up after one try at each.
    """

    def __init__(self, urls: list[str], token: str | None, *, timeout: float, patience: float) -> None:
        httpx = http_library()
        self._errors = (httpx.HTTPError, GarbledReply, OSError)
        self._breaks = (httpx.ReadError, httpx.RemoteProtocolError)
        self._token = token
        self._timeout = timeout
        self._patience = patience
        # Proxies of the environment are for the way out; a service is named by its own address.
        self._client = httpx.Client(
            headers={"Authorization": f"Bearer {token}"} if token else {},
            verify=httpx.create_ssl_context(),  # also reads SSL_CERT_FILE and SSL_CERT_DIR
            trust_env=False,
            limits=httpx.Limits(keepalive_expiry=4.0),  # the service ends a connection after 5 idle seconds
        )
        self._replicas = [_Replica(url) for url in urls]
        self._alone = threading.Lock()  # held by a request that is sent by itself
        self._choosing = threading.Lock()
        self._down_since: float | None = None

    def get_all(self, path: str) -> dict[str, Any]:
        """{url: what it answers} of all replicas that answer; at least one.

        Raises:
            Unreachable: no replica answers in time.
        """
        replies: dict[str, Any] = {}
        problem = ""
        deadline = time.monotonic() + self._patience
        for attempt in itertools.count():
            for replica in self._replicas:
                try:
                    replies[replica.url] = self._send(replica, "GET", path, None, deadline)
                except (_Failed, RequestRefused) as error:
                    problem = str(error)
            seconds_left = deadline - time.monotonic()
            if replies or seconds_left <= 0:
                break
            time.sleep(min(seconds_left, backoff(attempt, first=_FIRST_REST, longest=5.0)))
        if not replies:
            raise Unreachable(problem)
        return replies

    def post(self, path: str, body: bytes, ended: threading.Event, *, key: str = "") -> Any:
        """The answer of a replica; requests of equal `key` go to the same one as long as it answers.

        Raises:
            RequestRefused: the service does not take the request, or three died of it.
            ServiceError: it does not know the path or the token.
            Unreachable: there is no answer in time, or before the caller's work has ended.
        """
        # Captions of one image that wait at the same replica are scored together.
        start = sum(key.encode()) % len(self._replicas)
        order = self._replicas[start:] + self._replicas[:start]
        deadline = time.monotonic() + self._patience
        tries = deaths = 0
        problem = "no try was made"
        while True:
            replica = self._free(order, deadline, ended, tries, problem)
            tries += 1
            try:
                if deaths == 0:
                    return self._send(replica, "POST", path, body, deadline)
                # It may have ended a service, and all that was scored there: it goes by itself, to one that is well.
                with self._alone:
                    self._send(replica, "GET", "/health", None, deadline)
                    return self._send(replica, "POST", path, body, deadline)
            except _Failed as failure:
                problem = str(failure)
                deaths += failure.is_death
            if deaths == _MOST_DEATHS:
                raise RequestRefused(f"{deaths} services died, one after another, while they scored this request")

    def _free(
        self, order: list[_Replica], deadline: float, ended: threading.Event, tries: int, problem: str
    ) -> _Replica:
        """The first replica that may be asked, waited for."""
        while True:
            now = time.monotonic()
            is_down = self._down_since is not None and now - self._down_since > self._patience
            if now >= deadline or ended.is_set() or (is_down and tries >= len(order)):
                raise Unreachable(f"no answer in {tries} tries, last: {problem}")
            # A replica that failed is tried by one request at a time, so threads choose in turn.
            with self._choosing:
                for replica in order:
                    if replica.is_open:
                        replica.is_tried = replica.failures > 0
                        return replica
            if is_down:
                raise Unreachable("the service has not answered for long, and is left alone for a moment")
            rest = min(replica.rests_until for replica in order) - now
            ended.wait(max(0.02, min(rest, deadline - now, 1.0)))

    def _send(self, replica: _Replica, method: str, path: str, body: bytes | None, deadline: float) -> Any:
        """The answer of a replica to one try."""
        start = time.monotonic()
        try:
            answer = self._exchange(replica.url + path, method, body, deadline)
        except _Failed as failure:
            now = time.monotonic()
            if self._down_since is None:
                self._down_since = now
            if replica.failures == 0:
                replica.warns_at = start + _SILENCE
            if now >= replica.warns_at:
                replica.warns_at = now + _REMINDER
                seconds = deadline - now
                logger.warning("%s does not answer (%s); trying for another %.0f s", replica.url, failure, seconds)
            replica.failures += 1
            rest = backoff(replica.failures - 1, first=_FIRST_REST, longest=_LONGEST_REST)
            replica.rests_until = now + max(failure.least_rest, rest)
            raise
        finally:
            replica.is_tried = False
        replica.failures, self._down_since = 0, None
        return answer

    def _exchange(self, url: str, method: str, body: bytes | None, deadline: float) -> Any:
        """The answer to one request, or the exception that says whether another try may help."""
        headers = {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        seconds = max(0.1, min(self._timeout, deadline - time.monotonic()))
        # A machine that drops what it is sent would otherwise be waited for as long as a slow answer.
        timeout = (min(seconds, _CONNECTING), seconds, seconds, seconds)  # to connect, read, write and get a turn
        try:
            with self._client.stream(method, url, content=body, headers=headers, timeout=timeout) as response:
                reply = whole_reply(response, seconds)
            if reply.status_code == 200:
                return reply.json()
        except UnusableReply as error:
            raise RequestRefused(str(error)) from None
        except (*self._errors, ValueError, RecursionError) as error:  # the last two: broken JSON
            is_death = method == "POST" and isinstance(error, self._breaks)
            raise _Failed(printable(f"{type(error).__name__}: {error}", self._token), is_death=is_death) from None
        status = reply.status_code
        problem = f"status {status}: {printable(reply.text, self._token)}"
        if status in (401, 403):
            raise ServiceError(
                f"{url} refuses the token ({problem}); give the service's own, as api_key= or in CAPREWARD_TOKEN"
            )
        if status in (301, 302, 307, 308, 404, 405):
            raise ServiceError(
                f"{url} is not what a reward service of this version has ({problem}); the address of a judge's server "
                "is written ADDRESS/v1#MODEL"
            )
        if status < 500 and status not in _AGAIN:
            raise RequestRefused(problem)
        if status in (429, 503):  # it is alive, and only full
            self._down_since = time.monotonic()
        raise _Failed(problem, min(retry_after(reply.headers), _LONGEST_WAIT))
