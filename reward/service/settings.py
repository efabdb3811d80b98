"""What a service serves, where, and within which limits; no package of the server is imported here."""

from __future__ import annotations

import ipaddress
from dataclasses import field
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, GetPydanticSchema
from pydantic.dataclasses import dataclass
from pydantic_core.core_schema import any_schema

from reward.data.settings import STRICT, AtLeast1, Settings
from reward.errors import ConfigError
from reward.registry import MetricSource
from reward.scoring.devices import parse_devices


def _address(host: str) -> str:
    """An address of this machine."""
    if host == "localhost":
        return "127.0.0.1"
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        raise ConfigError(
            "host must be an address of this machine, such as 127.0.0.1 or localhost (this machine alone), 0.0.0.0 "
            f"or :: (all networks), got {host!r}"
        ) from None


# Metrics check themselves, and hold what pydantic has no schema for.
_Metrics = Annotated[tuple[MetricSource, ...], GetPydanticSchema(lambda annotation, handler: any_schema())]
_Seconds = Annotated[float, Field(ge=0)]


@dataclass(frozen=True, config=STRICT)
class ServiceSettings(Settings):
    """Settings of a service.

    Args:
        metrics: what is served, each name once.
        host: `127.0.0.1`, `localhost` or `::1` (this machine only), `0.0.0.0` or `::` (all networks), or another
            address of this machine; others than the first three need `token`.
        port: of the first process, 1024 to 65535.
        token: what clients must send as `Authorization: Bearer TOKEN`; None lets everyone in.
        image_root: folder of the images that requests may name by path; None refuses paths.
        devices: see `parse_devices`. Each has a process of its own, which loads all metrics, on a port of its own:
            `port`, `port` + 1, and so on.
        dtype: of the networks; None is their own.
        batch_size: most captions of a forward pass; None leaves it to the metric.
        batch_requests: most requests that are scored together; 1 scores each by itself.
        batch_wait: seconds that the first request of a batch waits for others.
        timeout: seconds until a request that has no answer is given up.
        body_timeout: seconds that a client has for its headers, and again for its body.
        max_body: most bytes of a request.
        max_pixels: most pixels of an image.
        max_candidates: most captions of a request.
        max_waiting: most requests at a time; more are told to come again.

    Raises:
        ConfigError: no metric or one twice, a host or token that cannot be, or a service open to other machines without
            a token.
    """

    place: ClassVar[str] = "service: "

    metrics: _Metrics
    host: Annotated[str, AfterValidator(_address)] = "127.0.0.1"
    port: int = 8123
    token: str | None = field(default=None, repr=False)
    image_root: Path | None = None
    devices: str = "auto"
    dtype: str | None = None
    batch_size: AtLeast1 | None = None
    batch_requests: AtLeast1 = 128
    batch_wait: _Seconds = 0.005
    timeout: _Seconds = 60.0
    body_timeout: _Seconds = 20.0
    max_body: AtLeast1 = 32_000_000
    max_pixels: AtLeast1 = 25_000_000
    max_candidates: AtLeast1 = 1024
    max_waiting: AtLeast1 = 512

    def __post_init__(self) -> None:
        names = [metric.name for metric in self.metrics]
        if not names:
            raise ConfigError("a service needs at least one metric, such as -m vela")
        if twice := [name for name in names if names.count(name) > 1]:
            raise ConfigError(f"--metric gives {twice[0]!r} twice; start a second service for another checkpoint")
        token = self.token or "no-token-at-all"
        if not token.isascii() or len(token) < 8 or token.split() != [token]:
            raise ConfigError("the token must have at least 8 characters, all of them ASCII, and no white space")
        if self.token is None and not ipaddress.ip_address(self.host).is_loopback:
            raise ConfigError(
                f"host {self.host} lets other machines in: set a token in the environment variable CAPREWARD_TOKEN, or "
                "keep to 127.0.0.1"
            )
        if self.image_root is not None and not self.image_root.is_dir():
            raise ConfigError(f"image root {str(self.image_root)!r} is not a folder")

    def places(self) -> list[tuple[str, int]]:
        """(device, port) of each process.

        Raises:
            ConfigError: there is no such device, or a port has no such number.

        Example:
            >>> ServiceSettings((MetricSource("vela"),), devices="cpu,cpu").places()
            [('cpu', 8123), ('cpu', 8124)]
        """
        devices = parse_devices(self.devices)
        if not 1024 <= self.port <= 65536 - len(devices):
            raise ConfigError(f"port must be in 1024..{65536 - len(devices)}, got {self.port}")
        return list(zip(devices, range(self.port, self.port + len(devices)), strict=True))

    def url(self, port: int) -> str:
        """Address of the process at a port.

        Example:
            >>> ServiceSettings((MetricSource("vela"),), host="::1").url(8123)
            'http://[::1]:8123'
        """
        host = f"[{self.host}]" if ":" in self.host else self.host  # of IPv6
        return f"http://{host}:{port}"
