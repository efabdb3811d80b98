"""The journal of a scoring run: an append-only file of results, by which a killed run goes on where it was."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from reward.errors import OutputError

__all__ = ["Journal"]


class Journal:
    """Results of the rows scored so far, in input order, one JSON line a row after a line that describes the run.

    `append` returns when the lines are on the disk. A line that a kill tore is cut off when the journal is next opened.

    Args:
        path: the file; created if missing, continued if it holds the same run.
        run: what defines the results (input, metric, columns, ...), JSON values.
        overwrite: start afresh whatever the file holds.

    Attributes:
        rows: number of rows it holds.
        header: what the first line says of the run.

    Raises:
        OutputError: it cannot be written, belongs to another run, or another process is writing it.
    """

    def __init__(self, path: Path, run: dict[str, Any], *, overwrite: bool = False) -> None:
        self.path = path
        self.rows = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(path, "a+b")  # noqa: SIM115 - open as long as the journal
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
        try:
            self._lock()
            header = None if overwrite else self._read_header()
            if header is not None:
                self.rows = self._cut_torn_line()
            if header is None or not self.rows:  # a run that saved nothing is not worth an argument
                self._start(run)
            else:
                self.header = header
                self._check_same(header, run)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.rows and error is not None:
            self.path.unlink(missing_ok=True)
        self._file.close()

    def describe(self, name: str, value: Any) -> None:
        """Adds a fact about the run that is known only when the model is loaded.

        Raises:
            OutputError: the rows before were scored under another value.
        """
        if self.rows:
            self._check_same(self.header, {name: value})
        else:
            self._start({**self.header, name: value})

    def append(self, results: Sequence[Any]) -> None:
        """Adds one result a row and waits until they are on the disk."""
        lines = (json.dumps(result, separators=(",", ":")) for result in results)
        self._write("".join(line + "\n" for line in lines).encode())
        self.rows += len(results)

    def results(self) -> Iterator[Any]:
        """All results, from the first row on."""
        with self.path.open("rb") as file:
            next(file)
            for number, line in enumerate(file, start=2):
                try:
                    yield json.loads(line)
                except ValueError as error:
                    raise OutputError(
                        f"{self.path} is damaged in line {number}; start afresh with --overwrite (overwrite=True)"
                    ) from error

    def delete(self) -> None:
        """Removes the file; the journal is of no use after."""
        self._file.close()
        self.path.unlink()

    def _start(self, header: dict[str, Any]) -> None:
        self.header = header
        self._file.truncate(0)
        self._write(json.dumps(header).encode() + b"\n")

    def _write(self, data: bytes) -> None:
        try:
            self._file.write(data)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise OutputError(
                f"cannot write {self.path}: {error.strerror or error}. "
                f"The {self.rows} rows before are saved; run the same again to go on."
            ) from error

    def _lock(self) -> None:
        try:
            import fcntl
        except ImportError:  # Windows has no flock; there, running the same twice at once is left to the user
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # given back by the kernel even after kill -9
        except BlockingIOError:
            raise OutputError(f"another process is writing {self.path}; wait for it, or choose another") from None

    def _read_header(self) -> dict[str, Any] | None:
        self._file.seek(0)
        line = self._file.readline()
        if not line.endswith(b"\n"):  # empty, or killed within the first line
            return None
        try:
            header = json.loads(line)
        except ValueError:
            header = None
        if not isinstance(header, dict):
            raise OutputError(f"{self.path} is there, but is no journal of a scoring run; move it away")
        return header

    def _check_same(self, header: dict[str, Any], run: dict[str, Any]) -> None:
        changed = [name for name in run if header.get(name) != run[name]]
        if changed:
            details = "; ".join(f"{name} was {header.get(name)!r:.60}, now {run[name]!r:.60}" for name in changed)
            raise OutputError(
                f"{self.path} holds an unfinished run that differs from this one: {details}. "
                "Start afresh with --overwrite (overwrite=True), or choose another output."
            )

    def _cut_torn_line(self) -> int:
        self._file.seek(0)
        rows, end = -1, 0  # the first line is the header
        for line in self._file:
            if not line.endswith(b"\n"):
                break
            rows += 1
            end += len(line)
        self._file.truncate(end)
        return rows
