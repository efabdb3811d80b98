"""The journal of a run: an append-only file of results, from which a run that was killed continues."""

from __future__ import annotations

import json
import os
import warnings
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from reward.errors import OutputError
from reward.scoring.columns import KEY_DIGITS, RowTask

if TYPE_CHECKING:
    from reward.scoring.results import RowResult

__all__ = ["Journal", "OtherRunError", "SavedRows"]

_START = 12  # of the value in a line
_HEADER = b'{"run":'
_MISSING = -1
_encode = json.JSONEncoder(separators=(",", ":")).encode  # json.dumps would make one for each line


class OtherRunError(OutputError):
    """What is there was made of other input or settings; with `overwrite` it is replaced."""


class Journal:
    """Results saved so far, one JSON line each with its checksum, after a line that describes the run.

    `append` returns once the lines are on the disk. A last line that a kill cut short is removed when the journal is
    next opened. Other damaged lines are skipped with a warning, and their results are made again. Results say
    themselves which row they belong to, so their order in the file does not matter.

    Args:
        path: the file; created if missing, continued if it holds the same run.
        run: what defines the results (input, metric, columns, ...), JSON values.
        overwrite: start afresh, whatever the file holds.

    Attributes:
        rows: number of results it holds.
        damaged: number of lines that were skipped.
        header: what the first line says of the run.

    Raises:
        OutputError: it cannot be written, belongs to another run, or another process is writing it.
    """

    def __init__(self, path: Path, run: dict[str, Any], *, overwrite: bool = False) -> None:
        self.path = path
        self.rows = self.damaged = 0
        self._end = 0  # of the file
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(path, "a+b")  # noqa: SIM115 - open as long as the journal
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
        try:
            self._lock()
            header = None if overwrite else self._read_header()
            if header is not None:
                self.rows = self._check_lines()
            if header is None or not self.rows:  # a run that saved nothing may be replaced
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
        """Adds a fact about the run that is known only once the model is loaded.

        Raises:
            OutputError: the rows before were scored under another value.
        """
        if self.rows:
            self._check_same(self.header, {name: value})
        else:
            self._start({**self.header, name: value})

    def append(self, results: Sequence[Any]) -> list[int]:
        """Adds results, one JSON value each; returns where their lines start, once they are on the disk."""
        lines = list(map(_line, results))
        places = list(accumulate(map(len, lines), initial=self._end))
        try:
            self._write(b"".join(lines))
            self.rows += len(results)
        except KeyboardInterrupt:  # some of the lines may be in the file already
            self.rows = self._check_lines()
            raise
        return places[:-1]

    def lines(self) -> Iterator[tuple[int, Any]]:
        """Where the line of each result starts, and the result, in the order of the file."""
        with self.path.open("rb") as file:
            place = len(next(file))
            for line in file:
                if _is_result(line):
                    yield place, _value(line)
                place += len(line)

    def results(self) -> Iterator[Any]:
        """All results, in the order of the file."""
        return (result for _, result in self.lines())

    def read(self, places: Iterable[int]) -> Iterator[Any]:
        """The results whose lines start at the given places."""
        with self.path.open("rb") as file:
            for place in places:
                if file.tell() != place:
                    file.seek(place)
                line = file.readline()
                if not _is_result(line):
                    raise OutputError(f"{self.path} was changed while it was read; run the same again")
                yield _value(line)

    def delete(self) -> None:
        """Removes the file; the journal cannot be used afterwards."""
        self._file.close()
        self.path.unlink()

    def _start(self, header: dict[str, Any]) -> None:
        self.header = header
        self._file.truncate(0)
        self._end = 0
        self._write(_line({"run": header}))

    def _write(self, data: bytes) -> None:
        try:
            self._file.write(data)
            self._file.flush()
            os.fsync(self._file.fileno())
            self._end += len(data)
        except OSError as error:
            raise OutputError(
                f"cannot write {self.path}: {error.strerror or error}. "
                f"The {self.rows} rows before are saved; run the same again to go on."
            ) from error

    def _lock(self) -> None:
        """Keeps other processes from writing as long as the journal is open."""
        try:
            import fcntl
        except ImportError:  # Windows has no flock: there, nothing keeps two processes from writing at once
            return
        try:  # the kernel releases it even after kill -9
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputError(f"another process is writing {self.path}; wait for it, or choose another") from None

    def _read_header(self) -> dict[str, Any] | None:
        self._file.seek(0)
        line = self._file.readline()
        if not line.endswith(b"\n"):  # empty, or killed within the first line
            return None
        if not _is_sound(line) or not line[_START:].startswith(_HEADER):
            raise OtherRunError(
                f"{self.path} is there, but is no journal of a run by this version, or its first line is damaged; "
                "move it away, or start afresh with --overwrite (overwrite=True)"
            )
        run: dict[str, Any] = _value(line)["run"]
        return run

    def _check_same(self, header: dict[str, Any], run: dict[str, Any]) -> None:
        changed = [name for name in run if header.get(name) != run[name]]
        if changed:
            details = "; ".join(f"{name} was {header.get(name)!r:.60}, now {run[name]!r:.60}" for name in changed)
            raise OtherRunError(
                f"{self.path} holds an unfinished run that differs from this one: {details}. "
                "Start afresh with --overwrite (overwrite=True), or choose another output."
            )

    def _check_lines(self) -> int:
        """Cuts off an incomplete last line, warns of damaged lines, and returns the number of the others."""
        self._file.seek(0)
        end, damaged = len(self._file.readline()), []
        rows = 0
        for number, line in enumerate(self._file, start=2):
            if not line.endswith(b"\n"):
                break
            end += len(line)
            if _is_result(line):
                rows += 1
            else:
                damaged.append(number)
        self._file.truncate(end)
        self._end = end
        self.damaged = len(damaged)
        if damaged:
            more = f" and {len(damaged) - 1} more" if damaged[1:] else ""
            warnings.warn(
                f"{self.path} is damaged in line {damaged[0]}{more}; the results there are made again", stacklevel=3
            )
        return rows


class SavedRows:
    """Rows with a result in a journal, in any order. Results stay on the disk; a row takes 8 bytes of memory.

    Args:
        journal: written by `append`, perhaps by an earlier run.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._places = array("q")  # of the row's line in the journal
        self._count = 0
        self.has_stamps = False  # of images
        for place, (row, key, _, _) in journal.lines():
            self._note(row, place)
            self.has_stamps |= len(key) > KEY_DIGITS
        lost = len(self._places) - self._count
        if lost > journal.damaged:
            warnings.warn(
                f"{journal.path} lacks {lost} rows, which are scored again: lines of it were deleted", stacklevel=2
            )

    def __len__(self) -> int:
        return self._count

    def __contains__(self, row: object) -> bool:
        return isinstance(row, int) and row < len(self._places) and self._places[row] != _MISSING

    def forget_changed(self, stamps: Iterable[str]) -> int:
        """Rows whose image was replaced since, or came, count as missing; gives how many.

        Args:
            stamps: the image stamp of each row, as it is now.
        """
        now = array("q", (int(stamp, 16) if stamp else _MISSING for stamp in stamps))
        changed = 0
        for place, (row, key, _, _) in self._journal.lines():
            if self._places[row] == place and now[row] != (int(stamp, 16) if (stamp := key[KEY_DIGITS:]) else _MISSING):
                self._places[row], changed = _MISSING, changed + 1
        self._count -= changed
        return changed

    def append(self, tasks: Sequence[RowTask], results: Sequence[RowResult]) -> None:
        """Saves the results of rows, each with the number of the row, the hash of its texts, and its group."""
        self.has_stamps |= any(len(task.key) > KEY_DIGITS for task in tasks)
        lines = [[task.row, task.key, task.group, result] for task, result in zip(tasks, results, strict=True)]
        for task, place in zip(tasks, self._journal.append(lines), strict=True):
            self._note(task.row, place)

    def _note(self, row: int, place: int) -> None:
        while len(self._places) <= row:
            self._places.append(_MISSING)
        self._count += self._places[row] == _MISSING
        self._places[row] = place

    def first_missing(self) -> int:
        """The first row without a result."""
        return self._places.index(_MISSING) if self._count < len(self._places) else len(self._places)

    def in_order(self) -> Iterator[tuple[str, str | None, Any]]:
        """(key, group, result) of each row, from the first to the last.

        Raises:
            OutputError: a row has no result.
        """
        if self._count < len(self._places):
            raise OutputError(f"{self._journal.path} lacks row {self.first_missing() + 1}; run the same again")
        return ((key, group, result) for _, key, group, result in self._journal.read(self._places))


def _line(value: Any) -> bytes:
    """A JSON list of the checksum and the value."""
    content = _encode(value).encode()
    return b'["%08x",%s]\n' % (zlib.crc32(content), content)


def _is_sound(line: bytes) -> bool:
    """Whether a line is as `_line` made it."""
    content = line[_START:-2]
    return line == b'["%08x",%s]\n' % (zlib.crc32(content), content)


def _is_result(line: bytes) -> bool:
    """Whether a line is sound and holds a result; the description of the run may be there twice."""
    return _is_sound(line) and not line[_START:].startswith(_HEADER)


def _value(line: bytes) -> Any:
    return json.loads(line[_START:-2].decode())
