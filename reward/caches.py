"""Tensors on disk, by content: several processes share a folder of bounded size, and a lost entry is made again."""

from __future__ import annotations

import json
import os
import re
import time
import uuid
import warnings
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reward.errors import ConfigError

if TYPE_CHECKING:
    import torch

__all__ = ["CacheSection", "TensorCache", "parse_size"]

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_SECTION, _ENTRY = re.compile(r"[a-z]+-[0-9a-f]{16}"), re.compile(r"[0-9a-f]{64}\.safetensors")
_BLOCK = 4096  # bytes that even the smallest file takes on most disks
_KEPT = 0.9  # share of the size that is left when old entries have been deleted
_STEP = 50  # a process looks at the whole folder each time it has written one part in 50 of the size
_STALE = 3600  # seconds after which a temporary file is that of a process that was killed


def parse_size(size: int | str) -> int:
    """A number of bytes, given as such or as `"20GB"`, `"500 MB"` or `"1GiB"`.

    Raises:
        ConfigError: not of that form, or less than 1 MB.

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
    """A folder of tensors that several processes may use at once. What was used least recently is deleted first.

    An entry is one safetensors file with a checksum. It is written under a temporary name and renamed, so that no
    reader sees half of it. Nobody waits for anybody: an entry that another process deletes is computed again. A
    damaged or foreign file counts as absent, with a warning. Only files that look like entries are ever deleted.

    Args:
        folder: made if absent.
        size: most bytes on the disk, such as `"20GB"`. Each process may exceed it by 2 % for a while.

    Raises:
        ConfigError: the folder cannot be written, or the size is wrong.

    Example:
        >>> import tempfile, torch
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     section = TensorCache(folder, size="1GB").section("images", "0" * 64)
        ...     section.save("a" * 64, {"features": torch.ones(2)})
        ...     section.load("a" * 64)["features"].tolist(), section.load("b" * 64), section.hits, section.misses
        ([1.0, 1.0], None, 1, 1)
    """

    def __init__(self, folder: str | os.PathLike[str], *, size: int | str = "20GB") -> None:
        self.size = parse_size(size)
        self.folder = Path(folder)
        self._room: int | None = None  # bytes that may be written before the folder is looked through
        self._warned = False
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            probe = self.folder / f"{uuid.uuid4().hex}.tmp"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise ConfigError(
                f"the cache {str(self.folder)!r} cannot be written: {error.strerror or error}. Choose another folder "
                "with --cache (cache=)"
            ) from error

    def section(self, kind: str, fingerprint: str) -> CacheSection:
        """The entries of one kind that one model made.

        Args:
            kind: a word in small letters.
            fingerprint: 64 hexadecimal digits that stand for everything the entries depend on but their keys.
        """
        return CacheSection(self, kind, fingerprint)

    def write(self, path: Path, data: bytes) -> None:
        """Writes a file of the cache; what cannot be written is left out, with one warning."""
        if len(data) > self.size * _KEPT:
            self._warn(f"an entry of {len(data):,} bytes does not fit into {self.size:,} bytes; raise --cache-size")
            return
        temporary = path.with_name(f"{uuid.uuid4().hex}.tmp")
        try:
            self._make_room(_on_disk(len(data)))
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(data)
            os.replace(temporary, path)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            self._warn(f"{error.strerror or error}; what could not be kept is computed again next time")

    def _warn(self, reason: str) -> None:
        if not self._warned:
            warnings.warn(f"the cache {str(self.folder)!r} does not keep everything: {reason}", stacklevel=4)
        self._warned = True

    def _make_room(self, needed: int) -> None:
        if self._room is None or self._room < needed:
            entries = sorted(self._entries())
            total = sum(size for _, size, _ in entries)
            if total + needed > self.size:
                for _, size, path in entries:
                    if total + needed <= self.size * _KEPT:
                        break
                    with suppress(FileNotFoundError):
                        os.unlink(path)
                    total -= size
            self._room = max(needed, min(self.size // _STEP, self.size - total))
        self._room -= needed

    def _entries(self) -> list[tuple[float, int, str]]:
        """(time of the last use, bytes on the disk, path) of every entry; old temporary files are deleted."""
        found = []
        for section in self.folder.iterdir():
            if not _SECTION.fullmatch(section.name):
                continue
            for part in section.iterdir():
                with suppress(FileNotFoundError, NotADirectoryError), os.scandir(part) as files:
                    for file in files:
                        with suppress(FileNotFoundError):
                            facts = file.stat()
                            if _ENTRY.fullmatch(file.name):
                                found.append((facts.st_mtime, _on_disk(facts.st_size), file.path))
                            elif file.name.endswith(".tmp") and facts.st_mtime < time.time() - _STALE:
                                os.unlink(file.path)
        return found


class CacheSection:
    """The entries of one kind that one model made; see `TensorCache.section`.

    Attributes:
        hits, misses: how often `load` found an entry, and how often not.
    """

    def __init__(self, cache: TensorCache, kind: str, fingerprint: str) -> None:
        self.cache, self.fingerprint = cache, fingerprint
        self.folder = cache.folder / f"{kind}-{fingerprint[:16]}"
        self.hits = self.misses = 0

    def __contains__(self, key: str) -> bool:
        return self._path(key).exists()

    def load(self, key: str) -> dict[str, torch.Tensor] | None:
        """The tensors of an entry, on the CPU; None if there is none.

        Args:
            key: 64 hexadecimal digits.
        """
        path, tensors = self._path(key), None
        with suppress(FileNotFoundError):
            try:
                tensors = _decoded(path.read_bytes(), self.fingerprint + key)
                os.utime(path)  # the time of the last use, by which old entries are deleted
            except FileNotFoundError:
                raise
            except (OSError, ValueError) as error:
                warnings.warn(f"{path} is no sound entry of the cache and is made again: {error}", stacklevel=2)
        self.hits += tensors is not None
        self.misses += tensors is None
        return tensors

    def save(self, key: str, tensors: Mapping[str, Any]) -> None:
        """Keeps tensors, or arrays of numpy, under a key; an entry that is there is replaced."""
        import torch
        from safetensors.torch import save

        kept = {name: torch.as_tensor(values).detach().cpu().contiguous() for name, values in tensors.items()}
        self.cache.write(self._path(key), save(kept, {"key": self.fingerprint + key, "crc32": _checksum(kept)}))

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.safetensors"


def _on_disk(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _checksum(tensors: Mapping[str, torch.Tensor]) -> str:
    import torch

    checksum = 0
    for _, tensor in sorted(tensors.items()):
        checksum = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, checksum)
    return f"{checksum:08x}"


def _decoded(data: bytes, key: str) -> dict[str, torch.Tensor]:
    """The tensors of a file's content; ValueError if it is not a whole file with this key."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        header: dict[str, Any] = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        facts = header["__metadata__"]
        tensors = load(data)
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError):
        raise ValueError("it is cut short or of another form") from None
    if facts.get("key") != key:
        raise ValueError("it belongs to another image or model")
    if facts.get("crc32") != _checksum(tensors):
        raise ValueError("its checksum is wrong")
    return tensors
