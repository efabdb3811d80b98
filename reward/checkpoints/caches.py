"""Tensors on disk, by content: a folder of bounded size that several processes share."""

from __future__ import annotations

import os
import re
import uuid
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reward.errors import ConfigError

if TYPE_CHECKING:
    import torch

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def parse_size(size: int | str) -> int:
    """A number of bytes, given as such or as `"20GB"`, `"500 MB"` or `"1GiB"`; at least 1 MB.

    Example:
        >>> parse_size("20GB"), parse_size("1.5 GiB")
        (20000000000, 1610612736)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", str(size))
    unit = None if match is None else _UNITS.get(match[2].upper())
    if match is None or unit is None or isinstance(size, bool) or float(match[1]) * unit < 10**6:
        raise ConfigError(f"the size of a cache must be such as 20GB or 500MB, and at least 1MB; got {size!r}")
    return int(float(match[1]) * unit)


class TensorCache:
    """The tensors that one model made, in a folder that several models and processes may use at once.

    An entry is one safetensors file, put in place whole. When the folder is full nothing more is kept, with a warning;
    a file that cannot be read is made again.

    Args:
        folder: made if absent.
        kind: a word in small letters, such as `"images"`.
        fingerprint: 64 hexadecimal digits that stand for everything the entries depend on but their keys.
        size: most bytes in the folder, such as `"20GB"`, counted from what is there when this process first writes.

    Attributes:
        hits, misses: how often `load` found an entry, and how often not.

    Raises:
        ConfigError: the folder cannot be written, or the size is wrong.

    Example:
        >>> import tempfile, torch
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     cache = TensorCache(folder, "images", "0" * 64, size="1GB")
        ...     cache.save("a" * 64, {"features": torch.ones(2)})
        ...     cache.load("a" * 64)["features"].tolist(), cache.load("b" * 64), cache.hits, cache.misses
        ([1.0, 1.0], None, 1, 1)
    """

    def __init__(
        self, folder: str | os.PathLike[str], kind: str, fingerprint: str, *, size: int | str = "20GB"
    ) -> None:
        self.size = parse_size(size)
        self.folder = Path(folder)
        self.hits = self.misses = 0
        self._place = self.folder / f"{kind}-{fingerprint[:16]}"
        self._used: int | None = None  # bytes in the folder
        self._warned = False
        try:
            self._place.mkdir(parents=True, exist_ok=True)
            probe = self._place / f"{uuid.uuid4().hex}.tmp"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise ConfigError(
                f"the cache {str(self.folder)!r} cannot be written: {error.strerror or error}. Choose another folder "
                "with --cache (cache=)"
            ) from error

    def __contains__(self, key: str) -> bool:
        return self._path(key).exists()

    def load(self, key: str) -> dict[str, torch.Tensor] | None:
        """The tensors of a key of 64 hexadecimal digits, on the CPU; None if there are none."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        path, tensors = self._path(key), None
        try:
            tensors = load(path.read_bytes())
        except FileNotFoundError:
            pass
        except (OSError, SafetensorError, ValueError) as error:
            warnings.warn(f"{path} is no sound entry of the cache and is made again: {error}", stacklevel=2)
        self.hits += tensors is not None
        self.misses += tensors is None
        return tensors

    def save(self, key: str, tensors: Mapping[str, Any]) -> None:
        """Keeps tensors, or arrays of numpy, under a key; what cannot be kept is left out, with one warning."""
        import torch
        from safetensors.torch import save

        path = self._path(key)
        temporary = path.with_name(f"{uuid.uuid4().hex}.tmp")
        data = save({name: torch.as_tensor(values).detach().cpu().contiguous() for name, values in tensors.items()})
        try:
            if self._used is None:
                self._used = _bytes_below(self.folder)
            if self._used + len(data) > self.size:
                self._warn(f"it is full with {self.size:,} bytes; raise --cache-size or delete it")
                return
            path.parent.mkdir(exist_ok=True)
            temporary.write_bytes(data)
            os.replace(temporary, path)
            self._used += len(data)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            self._warn(f"{error.strerror or error}; what could not be kept is computed again next time")

    def _path(self, key: str) -> Path:
        return self._place / key[:2] / f"{key}.safetensors"

    def _warn(self, reason: str) -> None:
        if not self._warned:
            warnings.warn(f"the cache {str(self.folder)!r} does not keep everything: {reason}", stacklevel=3)
        self._warned = True


def _bytes_below(folder: Path) -> int:
    """Bytes of all files below a folder; a file that another process moves meanwhile counts nothing."""
    used = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                used += os.path.getsize(os.path.join(place, name))
    return used
