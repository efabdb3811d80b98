"""The parts of an output that is being made: files, each whole or absent, from which a stopped run goes on."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reward.errors import OutputError
from reward.scoring.columns import RowTask
from reward.scoring.runs import OtherRunError, check_same_run, lock, write_json
from reward.scoring.writers import write_atomically

_PART = re.compile(r"(\d{9,})-(\d+)-[0-9a-f]{16}\.json\.gz")
_RUN, _LOCK, ANSWERS = "run.json", "lock", "answers.sqlite"
_FILES = re.compile(rf"({_PART.pattern}|{re.escape(_RUN)}|{_LOCK}|{re.escape(ANSWERS)}.*)(\.tmp)?")


@dataclass
class Part:
    """What the output has of some rows that follow each other, in one file."""

    types: dict[str, str]  # of the added columns
    columns: dict[str, list[Any]]  # values of these
    record: dict[str, Any]  # what was counted, see `SummaryBuilder.record`
    stamps: list[str]  # of the rows' images, see `RowTask.stamp`
    groups: list[str | None]  # of the rows


def part_name(tasks: Iterable[RowTask]) -> str:
    """The name of the file of some rows: their place, and what they are now."""
    digest, first, count = hashlib.sha256(), 0, 0
    for task in tasks:
        if not count:
            first = task.row
        count += 1
        digest.update(f"{task.name}\n".encode("utf-8", "replace"))
    return f"{first:09d}-{count}-{digest.hexdigest()[:16]}.json.gz"


def rows_of(name: str) -> range:
    """The rows of a part."""
    first, count, _ = name.split("-")
    return range(int(first), int(first) + int(count))


def put_part(folder: Path, name: str, part: Part) -> None:
    """Writes a part: whole, or not at all.

    Raises:
        OutputError: it cannot be written.
    """
    data = gzip.compress(json.dumps(vars(part)).encode(), 1)  # gzip's checksum tells damage
    write_atomically(folder / name, lambda path: path.write_bytes(data))


class PartFolder:
    """A folder of finished parts, which one process at a time may use; removed once the output is there.

    Args:
        path: the folder; made if absent, continued if it is of the same run.
        run: what the parts depend on beside their rows, JSON values; "input" may differ, since a part names its rows.
        overwrite: start afresh, whatever the folder holds.

    Raises:
        OutputError: it cannot be written, belongs to another run, or another process is writing it.
    """

    def __init__(self, path: Path, run: dict[str, Any], *, overwrite: bool = False) -> None:
        self.path, self.answers = path, path / ANSWERS
        if path.exists() and not path.is_dir():
            raise OtherRunError(
                f"{path} is there, but is no folder of a run by this version; move it away, and run the same again"
            )
        self._lock = lock(path / _LOCK, path)
        try:
            if overwrite:
                self._remove([*self.names(), ANSWERS])
            elif self.names():
                try:
                    before = json.loads((path / _RUN).read_text(encoding="utf-8"))
                except (OSError, ValueError) as error:
                    raise OtherRunError(
                        f"{path} holds parts, but its {_RUN} is damaged or gone; move the folder away, or start "
                        "afresh with --overwrite (overwrite=True)"
                    ) from error
                check_same_run(path, before, {name: run[name] for name in run if name != "input"})
            write_json(path / _RUN, run)
        except BaseException:
            self.close()
            raise

    def names(self) -> list[str]:
        """The names of all parts that are there, in the order of their rows."""
        return sorted(file.name for file in self.path.iterdir() if _PART.fullmatch(file.name))

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    def find(self, names_now: Callable[[list[range]], Iterator[str]]) -> list[str]:
        """The parts that are whole, and of rows as they are now; all others are removed.

        Args:
            names_now: gives the names that the parts of some rows would have now.
        """
        # A part whose rows were edited has another name now; one that overlaps was saved by a run of other part sizes.
        usable: list[str] = []
        next_row = 0
        names = self.names()
        for name, name_now in zip(names, names_now([rows_of(name) for name in names]), strict=True):
            rows = rows_of(name)
            if name == name_now and rows.start >= next_row and self._read(name) is not None:
                usable.append(name)
                next_row = rows.stop
            else:
                self._remove([name])
        return usable

    def parts(self, names: Iterable[str]) -> Iterator[Part]:
        """Some parts, in the order of their rows.

        Raises:
            OutputError: one is gone, or damaged since.
        """
        for name in sorted(names):
            part = self._read(name)
            if part is None:
                raise OutputError(f"{self.path} lacks part {name}, or it is damaged; run the same again")
            yield part

    def _read(self, name: str) -> Part | None:
        try:
            return Part(**json.loads(gzip.decompress((self.path / name).read_bytes())))
        except (OSError, EOFError, zlib.error, ValueError, TypeError):
            return None

    def delete(self) -> None:
        """Removes what runs have written, and the folder if nothing else is there."""
        ours = [file.name for file in self.path.iterdir() if _FILES.fullmatch(file.name)]
        ours.sort(key=[_RUN, _LOCK].count)  # these last: without the first nobody knows what the parts are of
        self._remove(ours)
        with suppress(OSError):
            self.path.rmdir()
        self._lock.close()

    def close(self) -> None:
        """Gives the folder up; one that holds nothing is removed."""
        if not self._lock.closed:
            if self.path.exists() and not self.names() and not self.answers.exists():
                self.delete()
            self._lock.close()
