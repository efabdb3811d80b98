"""Fingerprints of inputs, by which a resumed run knows that it goes on with the same data and the same weights."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

__all__ = ["fingerprint_file", "fingerprint_source"]

WHOLE_BELOW = 256 * 2**20  # bytes; larger files are sampled, because hashing terabytes would delay every start
BLOCKS, BLOCK_BYTES = 64, 2**20
_DATA = {".json", ".safetensors", ".spm", ".model", ".txt", ".jinja", ".bin", ".pt", ".pth"}  # no cards, no logs


def fingerprint_file(path: Path, *, whole: bool = False) -> str:
    """Hash of a file: of all bytes up to 256 MiB, else of the size and 64 evenly spaced blocks of 1 MiB.

    The time of the last change is left out on purpose: a copy of the file is the same input.

    Args:
        path: the file.
        whole: hash all bytes, however many: for an output that may have been damaged anywhere.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "a.txt"
        ...     _ = path.write_text("one")
        ...     fingerprint_file(path)[:8]
        'f483484c'
    """
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        if whole or size <= WHOLE_BELOW:
            while block := file.read(BLOCK_BYTES):
                digest.update(block)
        else:
            for position in range(BLOCKS):
                file.seek(position * (size - BLOCK_BYTES) // (BLOCKS - 1))
                digest.update(file.read(BLOCK_BYTES))
    return digest.hexdigest()


def fingerprint_source(source: Any) -> str:
    """Names a scorer's `source`: hashes of a file, or of a folder's files of data and of what its config.json names.

    A config.json may name weights elsewhere on this disk, such as a backbone's or a judge's. What is no file and no
    folder is known by its name (a Hub id, `"embedded"`).
    """
    path = Path(str(source).removeprefix("local-dir:"))
    named = [Path(text) for text in sorted(_texts(_config(path))) if os.path.exists(text)]
    found = [_fingerprint(each) for each in (path, *named) if each.exists()]
    return ";".join(found) or str(source)


def _fingerprint(path: Path) -> str:
    files = [path] if path.is_file() else sorted(each for each in path.iterdir() if each.suffix.lower() in _DATA)
    return ",".join(f"{each.name}:{fingerprint_file(each)[:16]}" for each in files if each.is_file())


def _config(folder: Path) -> Any:
    try:
        return json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # there is none, or loading the checkpoint will say what is wrong with it
        return None


def _texts(value: Any) -> set[str]:
    """All texts in a JSON value, but not the names of its fields."""
    if isinstance(value, str):
        return {value.removeprefix("local-dir:")}
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return set().union(*map(_texts, parts))
