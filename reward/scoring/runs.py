"""Runs that go on after a stop: the files beside their output, who may write them, and a bar that shows progress."""

from __future__ import annotations

import gc
import gzip
import hashlib
import json
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from reward.checkpoints.store import NO_LOCKS
from reward.errors import OutputError
from reward.scoring.writers import check_undamaged, output_facts, write_atomically, write_text

if TYPE_CHECKING:
    from reward.scoring.columns import RowTask

T = TypeVar("T")
LOG_SECONDS = 60  # between two lines where no terminal shows a bar

# The files of a `PartFolder`.
ANSWERS = "answers.sqlite"  # of judges that the metric asks
_RUN = "run.json"  # what the parts depend on
_LOCK = "lock"
_PART = re.compile(r"\d{9,}-\d+-[0-9a-f]{16}\.json\.gz")  # see `part_name`
# SQLite puts files of its own beside the answers, and a kill may leave a file that was being written.
_FILES = re.compile(rf"({_PART.pattern}|{re.escape(_RUN)}|{_LOCK}|{re.escape(ANSWERS)}.*)(\.tmp)?")


class OtherRunError(OutputError):
    """What is there was made of other input or settings; with `overwrite` it is replaced."""


class ScoringInterrupted(KeyboardInterrupt):
    """Ctrl-C during scoring; what was done before is saved.

    Args:
        rows: number of rows saved.
        place: file or folder that holds them.
        what: name of the rows in the message, such as "captions".
    """

    def __init__(self, rows: int, place: Path, what: str = "rows") -> None:
        saved = "nothing is saved yet"
        if rows:
            saved = f"{rows} {what} are saved in {place}; run the same again to go on"
        super().__init__(f"stopped; {saved}")
        self.rows, self.place = rows, place


@contextmanager
def left_out_of_garbage_collection() -> Iterator[None]:
    """Keeps garbage collections from walking through what is alive now, which a loaded network makes slow.

    Collections took 3 % of a run, and most of the time of writing its output.
    """
    if gc.get_freeze_count():  # a caller has frozen all already, and unfreezes it later
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class _Lines:
    """Where tqdm writes if no terminal shows its bar: each state becomes a line."""

    def write(self, text: str) -> None:
        if text := text.strip("\r\n "):
            print(text, file=sys.stderr, flush=True)

    def flush(self) -> None:
        """Each line is written at once."""


@contextmanager
def progress_bar(
    show: bool, *, done: int, total: int | None, doing: str = "scoring"
) -> Iterator[Callable[[int, int], None]]:
    """Gives a function to be called with (rows, errors) after each chunk.

    Args:
        show: whether to draw anything.
        done: rows that an earlier run scored; they do not count in the rate.
        total: number of rows, None if unknown.
        doing: what is done with the rows, shown before the bar.
    """
    from tqdm.auto import tqdm

    form: dict[str, Any] = {"desc": doing, "total": total, "initial": done, "unit": " rows", "disable": not show}
    if not sys.stderr.isatty() and "ipykernel" not in sys.modules:  # a notebook shows a bar of its own
        form |= {"file": _Lines(), "mininterval": LOG_SECONDS, "miniters": 1, "ascii": True, "ncols": 100}
    with tqdm(**form) as bar:
        failed = 0

        def advance(rows: int, errors: int) -> None:
            nonlocal failed
            failed += errors
            bar.set_postfix(errors=failed, refresh=False)
            bar.update(rows)

        yield advance


class ResumableRun:
    """The files of a run: the output; while it is being made, `<output>.partial`; afterwards, `<output>.summary.json`.

    Args:
        output: the file that the run makes.
        manifest: JSON values that the results depend on. A finished output is accepted only if all are the same.
        overwrite: discard a finished output.
        records: folder of `<output>.partial` and `<output>.summary.json`; None is that of the output.
    """

    def __init__(self, output: Path, manifest: dict[str, Any], *, overwrite: bool, records: Path | None = None) -> None:
        self.output, self.manifest, self.overwrite = output, manifest, overwrite
        folder = output.parent if records is None else records
        self.partial = folder / f"{output.name}.partial"
        self.summary_path = folder / f"{output.name}.summary.json"

    def finished(self, read: Callable[[dict[str, Any]], T], message: str) -> T | None:
        """What `read` makes of the summary of the finished output; None if there is work to do.

        Args:
            read: takes the summary file's content; may raise ValueError, KeyError, TypeError and AttributeError.
            message: in what the output may differ, and what was therefore not done: `"(other metric); nothing was
                scored"`.

        Raises:
            OutputError: the output is of another run, or was changed since.
        """
        # A run of answers has one file (`reward.scoring.kept.Kept`), a run of parts a folder (`PartFolder`).
        has_partial = self.partial.is_file() or (self.partial / _RUN).exists()
        if not self.output.exists() or has_partial or self.overwrite:
            return None
        is_of_this_run = False
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):  # absent, damaged, another tool's
            record = json.loads(self.summary_path.read_text(encoding="utf-8"))
            # An output without a single score, say because no image was found, is made anew: nothing is lost.
            if not record.get("summary", {}).get("scored", 1):
                return None
            if record["run"] == self.manifest and not record.get("unfinished"):
                summary = read(record)
                file_facts = record["output"]
                is_of_this_run = True
        if not is_of_this_run:
            raise OtherRunError(
                f"{self.output} exists already and is not of this run {message}. Choose another output, or replace it "
                "with --overwrite (overwrite=True)."
            )
        check_undamaged(self.output, file_facts)
        return summary

    def finish(self, results: dict[str, Any], *, unfinished: bool = False) -> None:
        """Writes the summary file beside the output.

        Args:
            results: JSON values that `finished` gives to its `read`, beside the manifest.
            unfinished: whether the output lacks something that the same call would try again.
        """
        record = {"run": self.manifest, **results, "output": output_facts(self.output)}
        if unfinished:
            record["unfinished"] = True
        write_json(self.summary_path, record)


def check_same_run(place: Path, before: Mapping[str, Any], run: Mapping[str, Any]) -> None:
    """Refuses to go on with what another run has saved in a place; both are JSON values that the results depend on.

    Raises:
        OtherRunError: they differ; the message says in what.
    """
    changed = [name for name in run if before.get(name) != run[name]]
    if changed:
        details = "; ".join(f"{name} was {before.get(name)!r:.60}, now {run[name]!r:.60}" for name in changed)
        raise OtherRunError(
            f"{place} holds a run that differs from this one: {details}. "
            "Start afresh with --overwrite (overwrite=True), or choose another output."
        )


def lock(path: Path, target: Path) -> IO[bytes]:
    """Keeps other processes from writing `target` until the returned file is closed.

    Args:
        path: the lock file; made if absent.
        target: what is locked, for messages.

    Raises:
        OutputError: another process has the lock, or `path` cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
    except OSError as error:
        raise OutputError(f"cannot write {target}: {error.strerror or error}") from error
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kernel releases it even after kill -9
        # Before `flock`, another process may have removed this file, and a third one made it anew and locked that.
        is_ours = os.fstat(file.fileno()).st_ino == path.stat().st_ino
    except ImportError:  # Windows has no flock: there, nothing keeps two processes from writing at once
        is_ours = True
    except OSError as error:  # some file systems have no locks either
        is_ours = error.errno in NO_LOCKS
    if not is_ours:
        file.close()
        raise OutputError(f"another process is writing {target}; wait for it, or choose another output")
    return file


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file, complete or not at all.

    Raises:
        OutputError: it cannot be written.
    """
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


@dataclass
class Part:
    """Results of consecutive rows, which one file of a `PartFolder` holds."""

    types: dict[str, str]  # {added column: its type}
    columns: dict[str, list[Any]]  # {added column: a value for each row}
    record: dict[str, Any]  # what was counted, see `SummaryBuilder.add_record`
    stamps: list[str]  # `RowTask.stamp` of each row
    groups: list[str | None]  # `RowTask.group` of each row


def part_name(tasks: Iterable[RowTask]) -> str:
    """The file name of the part of consecutive rows: number of the first row, number of rows, hash of their content.

    Example: `000000512-64-0123456789abcdef.json.gz`, which `rows_of_part` reads. An edited row gives another name.
    """
    digest = hashlib.sha256()
    first = count = 0
    for task in tasks:
        if count == 0:
            first = task.row
        count += 1
        digest.update(f"{task.name}\n".encode("utf-8", "replace"))
    return f"{first:09d}-{count}-{digest.hexdigest()[:16]}.json.gz"


def rows_of_part(name: str) -> range:
    """The numbers of the rows of a part, from its name."""
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
        run: what the parts depend on beside their rows, JSON values. Its "input" may have changed since the folder was
            made: a part has its own rows in its name.
        overwrite: start afresh, whatever the folder holds.

    Raises:
        OutputError: it cannot be written, belongs to another run, or another process is writing it.
    """

    def __init__(self, path: Path, run: dict[str, Any], *, overwrite: bool = False) -> None:
        self.path, self.answers = path, path / ANSWERS
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
        if not self.path.is_dir():  # Ctrl-C came after the output was complete and the parts were deleted
            return []
        return sorted(file.name for file in self.path.iterdir() if _PART.fullmatch(file.name))

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    def find(self, current_names: Callable[[list[range]], Iterator[str]]) -> list[str]:
        """The parts that are whole, and of rows as they are now; all others are removed.

        Args:
            current_names: gives the name that the part of each range of rows has as the rows are now.
        """
        # A part whose rows were edited has another name now; one that overlaps was saved by a run of other part sizes.
        usable: list[str] = []
        next_row = 0
        names = self.names()
        blocks = [rows_of_part(name) for name in names]
        for name, rows, current_name in zip(names, blocks, current_names(blocks), strict=True):
            if name == current_name and rows.start >= next_row and self._read(name) is not None:
                usable.append(name)
                next_row = rows.stop
            else:
                self._remove([name])
        return usable

    def parts(self, names: Iterable[str]) -> Iterator[Part]:
        """The parts of these names, in the order of their rows.

        Raises:
            OutputError: one is gone, or damaged since.
        """
        for name in sorted(names):
            part = self._read(name)
            if part is None:
                raise OutputError(f"{self.path} lacks part {name}, or it is damaged; run the same again")
            yield part

    def _read(self, name: str) -> Part | None:
        # A part that was cut or changed on the disk is as if it were not there: its rows are scored again.
        try:
            return Part(**json.loads(gzip.decompress((self.path / name).read_bytes())))
        except (OSError, EOFError, zlib.error, ValueError, TypeError):
            return None

    def delete(self) -> None:
        """Removes what runs have written, and the folder if nothing else is in it; then gives up the lock."""
        names = [file.name for file in self.path.iterdir() if _FILES.fullmatch(file.name)]
        self._remove(name for name in names if name not in (_RUN, _LOCK))
        # Last, since without the first one nobody knows what the parts are of.
        self._remove([_RUN, _LOCK])
        with suppress(OSError):  # it holds a file of somebody else
            self.path.rmdir()
        self._lock.close()

    def close(self) -> None:
        """Gives up the lock; a folder without parts and answers is removed. It may be called again."""
        if not self._lock.closed:
            if self.path.exists() and not self.names() and not self.answers.exists():
                self.delete()
            self._lock.close()
