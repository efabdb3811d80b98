"""Fetches images from hosts that are allowed, and never from a private address, also behind a redirect or a name."""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
import time
from collections.abc import Callable, Collection
from urllib.parse import urljoin, urlsplit

__all__ = ["fetch", "public_address"]

_MOST_REDIRECTS = 3
_SECONDS = 15.0

Connect = Callable[[str, int, float], socket.socket]
Resolve = Callable[[str, int], list[str]]


def _resolve(host: str, port: int) -> list[str]:
    return [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def _connect(address: str, port: int, seconds: float) -> socket.socket:
    return socket.create_connection((address, port), seconds)


def public_address(host: str, port: int, resolve: Resolve = _resolve) -> str:
    """An address of a host, all of whose addresses are public.

    Raises:
        PermissionError: one of them is private, on this machine, or otherwise not of the public network.
        OSError: the host is not known.

    Example:
        >>> public_address("intranet", 80, lambda host, port: ["10.0.0.7"])
        Traceback (most recent call last):
            ...
        PermissionError: the host 'intranet' is at 10.0.0.7, which is no public address
    """
    addresses = resolve(host, port)
    for address in addresses:
        parsed = ipaddress.ip_address(address.partition("%")[0])
        inner = getattr(parsed, "ipv4_mapped", None) or getattr(parsed, "sixtofour", None) or parsed
        if not inner.is_global or inner.is_multicast:
            raise PermissionError(f"the host {host!r} is at {address}, which is no public address")
    if not addresses:
        raise OSError(f"the host {host!r} has no address")
    return addresses[0]


class _Connection(http.client.HTTPConnection):
    """A connection to the address that was checked, whatever the name stands for a moment later."""

    def __init__(self, scheme: str, host: str, port: int, address: str, seconds: float, connect: Connect) -> None:
        super().__init__(host, port, timeout=seconds)
        self._scheme, self._address, self._open = scheme, address, connect

    def connect(self) -> None:
        self.sock = self._open(self._address, self.port, self.timeout or _SECONDS)
        if self._scheme == "https":
            self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=self.host)


def fetch(
    url: str,
    hosts: Collection[str],
    *,
    most_bytes: int,
    seconds: float = _SECONDS,
    resolve: Resolve = _resolve,
    connect: Connect = _connect,
) -> bytes:
    """The body behind an address.

    Args:
        url: http or https.
        hosts: names of hosts that are allowed, also after a redirect; none that is not here is asked for its address.
        most_bytes: a longer body is refused.
        seconds: for all of it.
        resolve, connect: how names become addresses and addresses connections.

    Raises:
        PermissionError: a host, port or scheme that is not allowed, or an address that is not public.
        OSError: it cannot be fetched, is too long, or takes too long.
    """
    end = time.monotonic() + seconds
    for _ in range(_MOST_REDIRECTS + 1):
        scheme, host, port, path = _allowed(url, hosts)
        address = public_address(host, port, resolve)
        connection = _Connection(scheme, host, port, address, max(0.1, end - time.monotonic()), connect)
        try:
            connection.request("GET", path, headers={"User-Agent": "capreward", "Accept": "image/*"})
            reply = connection.getresponse()
            if reply.status in (301, 302, 303, 307, 308):
                url = urljoin(url, reply.getheader("Location") or "")
                continue
            if reply.status != 200:
                raise OSError(f"the host answers with status {reply.status}")
            return _body(reply, connection, most_bytes, end)
        except (http.client.HTTPException, UnicodeError, ValueError) as error:
            raise OSError(f"the answer is not HTTP ({type(error).__name__})") from None
        finally:
            connection.close()
    raise OSError(f"there are more than {_MOST_REDIRECTS} redirects")


def _allowed(url: str, hosts: Collection[str]) -> tuple[str, str, int, str]:
    """(scheme, host, port, path with query) of an address that is allowed."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        raise PermissionError(f"{url!r:.200} is no address") from None
    if parts.scheme not in ("http", "https") or parts.username or parts.password:
        raise PermissionError(f"{url!r:.200} is not a plain address with http or https")
    if host not in hosts:
        raise PermissionError(
            f"the host {host!r:.200} is not allowed: start the service with --allow-host, or send the image"
        )
    usual = 443 if parts.scheme == "https" else 80
    if port not in (None, usual):
        raise PermissionError(f"port {port} is not allowed, only the usual one of {parts.scheme}")
    return parts.scheme, host, usual, (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _body(reply: http.client.HTTPResponse, connection: _Connection, most_bytes: int, end: float) -> bytes:
    parts: list[bytes] = []
    size = 0
    while size <= most_bytes:
        left = end - time.monotonic()
        if left <= 0:
            raise OSError("it takes too long")
        if connection.sock is not None:
            connection.sock.settimeout(left)
        part = reply.read1(65536)
        if not part:
            return b"".join(parts)
        parts.append(part)
        size += len(part)
    raise OSError(f"it has more than {most_bytes} bytes")
