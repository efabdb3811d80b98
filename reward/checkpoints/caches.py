"""Tensors on disk, by content: those that networks made of images, kept in a folder of bounded size."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reward.checkpoints.store import Store
from reward.errors import ConfigError, OutputError

if TYPE_CHECKING:
    import torch

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_SMALLEST = 10**6  # bytes


def parse_size(size: int | str) -> int:
    """A number of bytes, written as such or as `"20GB"`, `"500 MB"` or `"1GiB"`.

    Raises:
        ConfigError: it is written otherwise, or below 1 MB.

    Example:
        >>> parse_size("20GB"), parse_size("1.5 GiB")
        (20000000000, 1610612736)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", str(size))
    bytes_ = 0
    if match is not None and match[2].upper() in _UNITS:
        bytes_ = int(float(match[1]) * _UNITS[match[2].upper()])
    if bytes_ < _SMALLEST:
        raise ConfigError(f"the size of a cache must be such as 20GB or 500MB, and at least 1MB; got {size!r}")
    return bytes_


class TensorCache:
    """The tensors that one model made, in a folder that several models and processes may use at once.

    Args:
        folder: made if absent, with a file `kept.sqlite`.
        kind: a word in small letters, such as `"images"`.
        fingerprint: 64 hexadecimal digits that stand for everything the entries depend on but their keys.
        size: most bytes of the file, such as `"20GB"`, whoever wrote them; a full one keeps nothing more, and warns.

    Attributes:
        hits, misses: how often `load` found an entry, and how often not.

    Raises:
        ConfigError: the folder cannot be written, or the size is wrong.

    Example:
        >>> import tempfile, torch
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     cache = TensorCache(folder, "images", "0" * 64, size="1GB")
        ...     cache.save({"a" * 64: {"features": torch.ones(2)}})
        ...     cache.load("a" * 64)["features"].tolist(), cache.load("b" * 64), cache.hits, cache.misses
        ([1.0, 1.0], None, 1, 1)
    """

    def __init__(
        self, folder: str | os.PathLike[str], kind: str, fingerprint: str, *, size: int | str = "20GB"
    ) -> None:
        self.folder = Path(folder)
        self.hits = self.misses = 0
        self._model = f"{kind}-{fingerprint}"
        self._has_warned = False
        # What a power cut loses is computed again.
        self._store = Store(self.folder / "kept.sqlite", size=parse_size(size), survives_power_cut=False)
        try:
            self._store.put(self._model, {})
        except OutputError as error:
            raise ConfigError(f"the cache {error}. Choose another folder with --cache (cache=)") from error

    def __contains__(self, key: str) -> bool:
        try:
            return self._store.contains(self._model, key)
        except OutputError:  # `load` warns of it
            return False

    def load(self, key: str) -> dict[str, torch.Tensor] | None:
        """The tensors under a key, on the CPU; None if there are none."""
        from safetensors.torch import load

        try:
            data = self._store.get(self._model, key)
        except OutputError as error:
            self._warn(str(error))
            data = None
        if data is None:
            self.misses += 1
            return None
        self.hits += 1
        return load(data)

    def save(self, entries: Mapping[str, Mapping[str, Any]]) -> None:
        """Keeps {key: {name: tensor or array}}, all of them or, with one warning, none."""
        import torch
        from safetensors.torch import save

        values = {}
        for key, tensors in entries.items():
            copies = {name: torch.as_tensor(tensor).detach().cpu() for name, tensor in tensors.items()}
            values[key] = save({name: tensor.contiguous() for name, tensor in copies.items()})
        try:
            if not self._store.put(self._model, values):
                self._warn(f"it is full with {self._store.size:,} bytes; raise --cache-size or delete it")
        except OutputError as error:
            self._warn(f"{error}; what could not be kept is computed again next time")

    def _warn(self, reason: str) -> None:
        if not self._has_warned:
            warnings.warn(f"the cache {str(self.folder)!r} does not keep everything: {reason}", stacklevel=3)
        self._has_warned = True
