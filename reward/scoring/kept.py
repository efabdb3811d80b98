"""Answers that are kept as they come, so that none is paid for twice: an SQLite file that belongs to one run."""

from __future__ import annotations

import json
import sqlite3
import warnings
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reward.errors import OutputError
from reward.scoring.runs import OtherRunError, ScoringInterrupted, check_same_run, lock

_TABLES = """
CREATE TABLE IF NOT EXISTS run (facts TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS answers (number INTEGER PRIMARY KEY, answer BLOB NOT NULL, sum INTEGER NOT NULL);
"""


class Kept:
    """JSON values in the order in which they came, each on the disk once `add` returns.

    As a context it makes of Ctrl-C a `ScoringInterrupted`, which says what is kept.

    Args:
        path: the file; made if absent, continued if it holds the same run.
        run: what the answers depend on, JSON values.
        overwrite: start afresh, whatever the file holds.
        what: the answers are called in messages.

    Raises:
        OutputError: it cannot be written, belongs to another run, or another process is writing it.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, Kept(Path(folder) / "answers", {"judge": "a"}) as kept:
        ...     kept.add([{"question": 1, "answer": "yes"}])
        ...     len(kept), list(kept)
        (1, [{'question': 1, 'answer': 'yes'}])
    """

    def __init__(self, path: Path, run: dict[str, Any], *, overwrite: bool = False, what: str = "rows") -> None:
        self.path, self.what = path, what
        self._lock_path = path.with_name(path.name + ".lock")
        self._lock = lock(self._lock_path, path)
        self._rows = sqlite3.connect(":memory:")
        try:
            with self._explained("write"):
                self._rows = sqlite3.connect(path)
                self._rows.executescript(_TABLES)
                found = self._rows.execute("SELECT facts FROM run").fetchone()
            if found is None or overwrite or not len(self):
                self._start(run)
            else:
                self.run = json.loads(found[0])
                check_same_run(path, self.run, run)
        except BaseException:
            self._close()
            raise

    def __enter__(self) -> Kept:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        is_open = not self._lock.closed
        count = len(self) if is_open else 0
        self._close()
        if error is not None and is_open and not count:
            self.path.unlink(missing_ok=True)
        if isinstance(error, KeyboardInterrupt) and not isinstance(error, ScoringInterrupted):
            raise ScoringInterrupted(count, self.path, self.what) from None

    def __len__(self) -> int:
        with self._explained("read"):
            count: int = self._rows.execute("SELECT COUNT(*) FROM answers").fetchone()[0]
        return count

    def __iter__(self) -> Iterator[Any]:
        """The answers; those that were damaged on the disk are left out, and will be asked for again."""
        with self._explained("read"):
            rows = self._rows.execute("SELECT answer, sum FROM answers ORDER BY number").fetchall()
        sound = [text for text, number in rows if zlib.crc32(text) == number]
        if damaged := len(rows) - len(sound):
            warnings.warn(f"{self.path}: {damaged} {self.what} are damaged, and made again", stacklevel=3)
        return map(json.loads, sound)

    def add(self, answers: Iterable[Any]) -> None:
        """Keeps answers: all of them, or none."""
        texts = [json.dumps(answer).encode() for answer in answers]
        with self._explained("write"), self._rows:
            self._rows.executemany(
                "INSERT INTO answers (answer, sum) VALUES (?, ?)", [(text, zlib.crc32(text)) for text in texts]
            )

    def describe(self, name: str, value: Any) -> None:
        """Adds a fact about the run that was not known at its beginning; the answers before must have it, too."""
        if len(self):
            check_same_run(self.path, self.run, {name: value})
        else:
            self._start({**self.run, name: value})

    def delete(self) -> None:
        """Removes the file; nothing can be kept afterwards."""
        self._close()
        self.path.unlink(missing_ok=True)

    def _start(self, run: dict[str, Any]) -> None:
        self.run = run
        with self._explained("write"), self._rows:
            self._rows.execute("DELETE FROM answers")
            self._rows.execute("DELETE FROM run")
            self._rows.execute("INSERT INTO run VALUES (?)", [json.dumps(run)])

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError) and "no such" not in str(error):
                raise OutputError(
                    f"cannot {what} {self.path}: {error}. What came before is saved; make room and run the same again"
                ) from error
            raise OtherRunError(
                f"{self.path} holds no answers of a run by this version, or is damaged ({error}); move it away"
            ) from error

    def _close(self) -> None:
        self._rows.close()
        if not self._lock.closed:
            self._lock_path.unlink(missing_ok=True)
            self._lock.close()
