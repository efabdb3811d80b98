"""Fingerprints of inputs, by which a resumed run knows that it goes on with the same data and the same weights."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

__all__ = ["fingerprint_file", "fingerprint_source"]

WHOLE_BELOW = 256 * 2**20  # bytes; larger files are sampled, because hashing terabytes would delay every start
BLOCKS, BLOCK_BYTES = 64, 2**20


def fingerprint_file(path: Path) -> str:
    """Hash of a file: of all bytes up to 256 MiB, else of the size and 64 evenly spaced blocks of 1 MiB.

    The time of the last change is left out on purpose: a copy of the file is the same input.

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
        if size <= WHOLE_BELOW:
            while block := file.read(BLOCK_BYTES):
                digest.update(block)
        else:
            for position in range(BLOCKS):
                file.seek(position * (size - BLOCK_BYTES) // (BLOCKS - 1))
                digest.update(file.read(BLOCK_BYTES))
    return digest.hexdigest()


def fingerprint_source(source: Any) -> str:
    """Names a scorer's `source`: hashes of a folder's files of data, else its name (a Hub id, `"embedded"`)."""
    folder = Path(source)
    if not folder.is_dir():
        return str(source)
    suffixes = {".json", ".safetensors", ".spm"}
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.suffix in suffixes)
    return ",".join(f"{path.name}:{fingerprint_file(path)[:16]}" for path in files)
