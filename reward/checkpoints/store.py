"""One store of kept values: an SQLite file of bounded size that threads and processes share."""

from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
import threading
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reward.errors import OutputError

_VERSION = 1
_TABLES = f"""
CREATE TABLE IF NOT EXISTS kept (
    number INTEGER PRIMARY KEY, owner TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, checksum INTEGER NOT NULL,
    UNIQUE (owner, key)
);
PRAGMA user_version = {_VERSION};
"""
_USED = """
SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size
"""
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # what a file system without locks answers
_BUSY_SECONDS = 60  # how long a process waits while another one writes


class DamagedStoreError(OutputError):
    """The file is no store of this version, or its structure is damaged."""


class Store:
    """Values by owner and key, each whole or absent after a kill at any time.

    It is opened by the first use, and again in a process that was forked or to which it was sent. SQLite's rollback
    journal is used, since its write-ahead log does not work between machines that share a folder.

    Args:
        path: the file; made if absent, with its folder.
        size: most bytes of the file, however many processes write to it; None for no limit.
        survives_power_cut: whether a value is on the disk once `put` returns. Without, which is much faster, it
            survives the end of the process only.

    Raises:
        OutputError: in any call, if the file cannot be read or written.
        DamagedStoreError: in any call, if the file is no such store.

    Example:
        >>> store = Store(":memory:")
        >>> store.put("judge", {"question": b"yes"}), store.get("judge", "question"), store.get("judge", "other")
        (True, b'yes', None)
    """

    def __init__(
        self, path: str | os.PathLike[str], *, size: int | None = None, survives_power_cut: bool = True
    ) -> None:
        self.path, self.size, self.survives_power_cut = os.fspath(path), size, survives_power_cut
        self.__setstate__({})

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "size": self.size, "survives_power_cut": self.survives_power_cut}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._process = 0  # the process that opened the connection

    def get(self, owner: str, key: str) -> bytes | None:
        """The value; None if there is none, or with a warning if it was damaged on the disk."""
        rows = self._select("SELECT key, value, checksum FROM kept WHERE owner = ? AND key = ?", [owner, key])
        return dict(self._sound(rows)).get(key)

    def contains(self, owner: str, key: str) -> bool:
        """Whether there is a value, without reading it."""
        return bool(self._select("SELECT 1 FROM kept WHERE owner = ? AND key = ?", [owner, key]))

    def items(self, owner: str) -> list[tuple[str, bytes]]:
        """Keys and values of an owner in the order in which they came, without those that are damaged."""
        rows = self._select("SELECT key, value, checksum FROM kept WHERE owner = ? ORDER BY number", [owner])
        return self._sound(rows)

    def count(self, owner: str) -> int:
        """How many values an owner has."""
        return int(self._select("SELECT COUNT(*) FROM kept WHERE owner = ?", [owner])[0][0])

    def put(self, owner: str, values: Mapping[str, bytes]) -> bool:
        """Keeps values by key, in place of older ones: all of them, or none.

        Returns:
            False if the file would grow beyond its size, and nothing was kept.
        """
        rows = [(owner, key, value, zlib.crc32(value)) for key, value in values.items()]
        with self._transaction() as connection:
            if self.size is not None:
                # Counted inside the transaction, so that no other process writes between count and insert.
                used = connection.execute(_USED).fetchone()[0]
                if used + sum(len(value) for value in values.values()) > self.size:
                    return False
            insert = "INSERT OR REPLACE INTO kept (owner, key, value, checksum) VALUES (?, ?, ?, ?)"
            connection.executemany(insert, rows)
        return True

    def clear(self) -> None:
        """Removes the values of all owners."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM kept")

    def close(self) -> None:
        """Closes the file; the next use opens it again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _sound(self, rows: Sequence[tuple[str, bytes, int]]) -> list[tuple[str, bytes]]:
        sound = [(key, value) for key, value, checksum in rows if zlib.crc32(value) == checksum]
        damaged = len(rows) - len(sound)
        if damaged:
            warnings.warn(f"{self.path}: {damaged} damaged, left out and to be made again", stacklevel=3)
        return sound

    def _select(self, statement: str, values: Sequence[str]) -> list[Any]:
        with self._explained() as connection:
            return connection.execute(statement, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._explained() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:  # Ctrl-C, too, leaves no transaction open
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _explained(self) -> Iterator[sqlite3.Connection]:
        """The open connection, for one thread at a time; errors of SQLite become those of this library."""
        with self._lock:
            try:
                yield self._open()
            # A full disk, no right to write, a lock that is not given up: it may work next time.
            except (sqlite3.OperationalError, OSError) as error:
                raise OutputError(f"{self.path} cannot be used: {error}") from error
            except sqlite3.DatabaseError as error:
                raise DamagedStoreError(f"{self.path} is damaged, or no store of this version: {error}") from error

    def _open(self) -> sqlite3.Connection:
        # SQLite forbids that a forked process uses the connection of its parent.
        if self._connection is not None and self._process == os.getpid():
            return self._connection
        address = self.path
        if self.path != ":memory:":
            folder = Path(self.path).parent
            folder.mkdir(parents=True, exist_ok=True)
            if not _has_locks(folder):  # SQLite would take that for another process, and wait
                warnings.warn(f"{folder} has no file locks: let one process at a time use {self.path}", stacklevel=2)
                address = f"{Path(self.path).absolute().as_uri()}?nolock=1"
        connection = sqlite3.connect(
            address, timeout=_BUSY_SECONDS, check_same_thread=False, isolation_level=None, uri=address != self.path
        )
        try:
            # A new database has version 0 and no tables.
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            tables = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]
            if version != _VERSION and tables:
                raise sqlite3.DatabaseError("it holds other tables")
            if not self.survives_power_cut:
                connection.execute("PRAGMA synchronous = OFF")
            if version != _VERSION:
                # Several processes may do so at once: the second one waits, and finds the tables there.
                connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT;")
        except BaseException:
            connection.close()
            raise
        self._connection, self._process = connection, os.getpid()
        return connection


def _has_locks(folder: Path) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows has others, which always work
        return True
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in NO_LOCKS
    return True
