"""What a service serves, where, and within which limits; no package of the server is imported here."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reward.errors import ConfigError
from reward.registry import MetricSource


@dataclass(frozen=True)
class ServiceSettings:
    """Settings of a service.

    Args:
        metrics: what is served, each name once.
        host: `127.0.0.1`, `localhost` or `::1` (this machine only), `0.0.0.0` or `::` (all networks), or another
            address of this machine; others than the first three need `token`.
        port: of the first process, 1024 to 65535.
        token: what clients must send as `Authorization: Bearer TOKEN`; None lets everyone in.
        image_root: folder of the images that requests may name by path; None refuses paths.
        devices: `"auto"` (all GPUs, else the CPU), or their names, such as `"0,1"` (GPUs) or `"cpu,cpu"`. Each has a
            process of its own, which loads all metrics, on a port of its own: `port`, `port` + 1, and so on.
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
        drain: seconds that requests under way get after SIGTERM.

    Raises:
        ConfigError: no metric or one twice, a host or token that cannot be, or a service open to other machines without
            a token.
    """

    metrics: tuple[MetricSource, ...]
    host: str = "127.0.0.1"
    port: int = 8123
    token: str | None = field(default=None, repr=False)
    image_root: Path | None = None
    devices: str = "auto"
    dtype: str | None = None
    batch_size: int | None = None
    batch_requests: int = 128
    batch_wait: float = 0.005
    timeout: float = 60.0
    body_timeout: float = 20.0
    max_body: int = 32_000_000
    max_pixels: int = 25_000_000
    max_candidates: int = 1024
    max_waiting: int = 512
    drain: float = 30.0

    def __post_init__(self) -> None:
        names = [metric.name for metric in self.metrics]
        if not names:
            raise ConfigError("a service needs at least one metric, such as -m vela")
        if twice := [name for name in names if names.count(name) > 1]:
            raise ConfigError(f"--metric gives {twice[0]!r} twice; start a second service for another checkpoint")
        try:
            address = ipaddress.ip_address("127.0.0.1" if self.host == "localhost" else self.host)
        except ValueError:
            raise ConfigError(
                "host must be an address of this machine, such as 127.0.0.1 or localhost (this machine alone), 0.0.0.0 "
                f"or :: (all networks), got {self.host!r}"
            ) from None
        object.__setattr__(self, "host", str(address))
        token = self.token or "no-token-at-all"
        if not token.isascii() or len(token) < 8 or token.split() != [token]:
            raise ConfigError("the token must have at least 8 characters, all of them ASCII, and no white space")
        if self.token is None and not address.is_loopback:
            raise ConfigError(
                f"host {self.host} lets other machines in: set a token in the environment variable CAPREWARD_TOKEN, or "
                "keep to 127.0.0.1"
            )
        if self.image_root is not None and not self.image_root.is_dir():
            raise ConfigError(f"image root {str(self.image_root)!r} is not a folder")

    def places(self) -> list[tuple[str, int]]:
        """(device, port) of each process.

        Raises:
            ConfigError: a device has no such name, or a port no such number.

        Example:
            >>> ServiceSettings((MetricSource("vela"),), devices="0,1").places()
            [('cuda:0', 8123), ('cuda:1', 8124)]
        """
        names = self.devices.split(",")
        if names == ["auto"]:
            import torch

            names = [str(number) for number in range(torch.cuda.device_count())] or ["cpu"]
        if not all(name == "cpu" or name.isdecimal() for name in names):
            raise ConfigError(f"devices must be auto, or names such as cpu or 0,1, got {self.devices!r}")
        if not 1024 <= self.port <= 65536 - len(names):
            raise ConfigError(f"port must be in 1024..{65536 - len(names)}, got {self.port}")
        devices = [name if name == "cpu" else f"cuda:{int(name)}" for name in names]
        return list(zip(devices, range(self.port, self.port + len(names)), strict=True))

    @property
    def limits(self) -> Mapping[str, float]:
        """What `/info` tells clients of the limits."""
        names = ("max_body", "max_pixels", "max_candidates", "max_waiting", "timeout")
        return {name: getattr(self, name) for name in names}
