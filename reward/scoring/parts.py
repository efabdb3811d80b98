"""The parts of an output that is being made: files, each whole or absent, from which a stopped run goes on."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reward.errors import OutputError
from reward.scoring.columns import RowTask
from reward.scoring.runs import OtherRunError, check_same_run, lock, write_json
from reward.scoring.writers import write_text

__all__ = ["Part", "PartFolder", "RowsDigest", "put_part"]

_NAME = re.compile(r"(\d{6,})-([0-9a-f]{16})-([0-9a-f]{16})\.json")
_RUN, _LOCK, ANSWERS = "run.json", "lock", "answers.sqlite"
_OWN = re.compile(rf"({_NAME.pattern}|{re.escape(_RUN)}|{_LOCK}|{re.escape(ANSWERS)}.*)(\.tmp)?")
_TOLD = ("input", "part_rows")  # facts of a run that its parts themselves tell


@dataclass
class Part:
    """The rows of one part.

    Args:
        columns: {name: values} that the output has of them.
        record: what was counted, see `SummaryBuilder.record`.
        texts: digest of the rows' texts, which shows that the columns belong to these rows.
        pictures: digest of the rows' images if some are files, which may be replaced; else None.
        groups: names the group of each row; empty without groups.
    """

    columns: dict[str, list[Any]]
    record: dict[str, Any]
    texts: str
    pictures: str | None
    groups: list[str | None] = field(default_factory=list)

    @property
    def rows(self) -> int:
        rows: int = self.record["rows"]
        return rows


class RowsDigest:
    """What names rows: their texts, and the images as they are now."""

    def __init__(self) -> None:
        self._texts, self._pictures = hashlib.sha256(), hashlib.sha256()
        self._has_files = False

    def add(self, tasks: Iterable[RowTask]) -> RowsDigest:
        """Adds rows, in order."""
        for task in tasks:
            self.add_text(task.key)
            self.add_picture(task.picture, task.is_file)
        return self

    def add_text(self, key: str) -> None:
        self._texts.update(f"{key}\n".encode())

    def add_picture(self, name: str, is_file: bool) -> None:
        self._pictures.update(f"{name}\n".encode())
        self._has_files |= is_file

    @property
    def texts(self) -> str:
        return self._texts.hexdigest()[:16]

    @property
    def pictures(self) -> str | None:
        """None if no image is a file, so that they change only with the data."""
        return self._pictures.hexdigest()[:16] if self._has_files else None

    def name(self, run: str) -> str:
        """Names the rows as a run scores them."""
        return _digest(f"{run} {self.texts} {self._pictures.hexdigest()}".encode())


class PartFolder:
    """A folder of finished parts, which one process at a time may use; removed once the output is there.

    A part is named by its number, by its rows and what scores them, and by its own content. It is written under another
    name and then renamed. What is damaged, or of rows that have changed, is not taken.

    Args:
        path: the folder; made if absent, continued if it is of the same run.
        run: what the parts depend on beside their rows, JSON values; "input" and "part_rows" may differ.
        part_rows: rows of a part; those of an unfinished run are kept.
        overwrite: start afresh, whatever the folder holds.

    Raises:
        OutputError: it cannot be written, belongs to another run, or another process is writing it.
    """

    def __init__(self, path: Path, run: dict[str, Any], part_rows: int, *, overwrite: bool = False) -> None:
        self.path, self.run, self.part_rows = path, run, part_rows
        if path.exists() and not path.is_dir():
            raise OtherRunError(
                f"{path} is there, but is no folder of a run by this version; move it away, and run the same again"
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
        self._lock = lock(path / _LOCK, path)
        try:
            self._begin(overwrite)
        except BaseException:
            self.close()
            raise

    def _begin(self, overwrite: bool) -> None:
        there = self._there = self._numbered()
        before = None
        if there and not overwrite:
            try:
                before = json.loads((self.path / _RUN).read_text(encoding="utf-8"))
                self.part_rows = int(before["part_rows"])
            except (OSError, ValueError, TypeError, KeyError) as error:
                raise OtherRunError(
                    f"{self.path} holds parts, but its {_RUN} is damaged or gone; move the folder away, or start "
                    "afresh with --overwrite (overwrite=True)"
                ) from error
            check_same_run(self.path, before, {name: self.run[name] for name in self.run if name not in _TOLD})
        else:
            for path in [path for paths in there.values() for path in paths] + [self.answers] * overwrite:
                path.unlink(missing_ok=True)
            self._there = {}
        self.facts = {**(before or {}), **self.run, "part_rows": self.part_rows}
        write_json(self.path / _RUN, self.facts)

    def describe(self, name: str, value: Any) -> None:
        """Adds a fact about the run that is known only once the model is loaded.

        Raises:
            OutputError: the parts before were made under another value.
        """
        if name in self.facts:
            check_same_run(self.path, self.facts, {name: value})
        self.facts[name] = value
        write_json(self.path / _RUN, self.facts)

    @property
    def name(self) -> str:
        """Names the run, but for its rows."""
        facts = {name: value for name, value in self.run.items() if name not in _TOLD}
        return _digest(json.dumps(facts, sort_keys=True, default=str).encode())

    def _numbered(self) -> dict[int, list[Path]]:
        found: dict[int, list[Path]] = {}
        for path in sorted(self.path.iterdir()):
            if match := _NAME.fullmatch(path.name):
                found.setdefault(int(match[1]), []).append(path)
        return found

    @property
    def numbers(self) -> list[int]:
        """Of the parts that were there at the beginning, of whatever rows."""
        return sorted(self._there)

    def find(self, number: int, name: str) -> Part | None:
        """A part if it is there, of these rows, and whole; what else has its number is removed."""
        found = None
        for path in self._there.get(number, []):
            match = _NAME.fullmatch(path.name)
            part = _read(path) if match and match[2] == name else None
            if part is None or found is not None:
                path.unlink(missing_ok=True)
            found = found or part
        return found

    def parts(self, numbers: Iterable[int]) -> Iterator[Part]:
        """Parts that were found or written before, in order.

        Raises:
            OutputError: one is gone, or damaged since.
        """
        there = self._numbered()
        for number in numbers:
            # a process that died may have written one, and the next one again
            part = next(filter(None, map(_read, there.get(number, ()))), None)
            if part is None:
                raise OutputError(f"{self.path} lacks part {number}, or it is damaged; run the same again")
            yield part

    @property
    def answers(self) -> Path:
        """File for what judges answer."""
        return self.path / ANSWERS

    def delete(self) -> None:
        """Removes what runs have written, and the folder if nothing else is there."""
        last = [self.path / _RUN, self.path / _LOCK]  # without the first nobody knows what the parts are of
        own = [path for path in self.path.iterdir() if _OWN.fullmatch(path.name) and path not in last]
        for path in [*own, *last]:
            path.unlink(missing_ok=True)
        with suppress(OSError):
            self.path.rmdir()
        self._lock.close()

    def close(self) -> None:
        """Gives the folder up; one that holds nothing is removed."""
        if not self._lock.closed:
            if self.path.exists() and not self._numbered() and not self.answers.exists():
                self.delete()
            self._lock.close()


def put_part(folder: Path, number: int, name: str, part: Part) -> None:
    """Writes a part: whole, or not at all.

    Raises:
        OutputError: it cannot be written.
    """
    text = json.dumps(vars(part))
    write_text(folder / f"{number:06d}-{name}-{_digest(text.encode())}.json", text)


def _read(path: Path) -> Part | None:
    """A part; None if it is damaged."""
    try:
        data = path.read_bytes()
        match = _NAME.fullmatch(path.name)
        if match is None or _digest(data) != match[3]:
            return None
        return Part(**json.loads(data))
    except (OSError, ValueError, TypeError):
        return None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
