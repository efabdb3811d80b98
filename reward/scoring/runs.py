"""Resumable runs over many items: the files of a run, what a second call makes of them, and how often it saves."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from reward.scoring.journal import Journal, OtherRunError
from reward.scoring.writers import check_undamaged, output_facts, write_text

__all__ = [
    "CHUNK_SECONDS",
    "ChunkSize",
    "ResumableRun",
    "ScoringInterrupted",
    "left_out_of_garbage_collection",
    "saved_on_ctrl_c",
    "write_json",
]

CHUNK_SECONDS = 5.0  # chunks grow while they take less, so that a kill loses little work of a slow metric or judge
T = TypeVar("T")


class ScoringInterrupted(KeyboardInterrupt):
    """Ctrl-C during scoring; what was scored is saved.

    Args:
        rows: number of rows saved.
        journal: the file that holds them.
        what: the rows are called.
    """

    def __init__(self, rows: int, journal: Path, what: str = "rows") -> None:
        saved = f"{rows} {what} are saved in {journal}; run the same again to go on" if rows else "nothing is saved yet"
        super().__init__(f"stopped; {saved}")
        self.rows, self.journal = rows, journal


@contextmanager
def left_out_of_garbage_collection() -> Iterator[None]:
    """Keeps garbage collections from walking through what is alive now, which a loaded network makes slow.

    They took 3 % of a run, and most of the time of writing its output.
    """
    if gc.get_freeze_count():  # somebody did so for longer
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class ResumableRun:
    """The files of a run: the output; while it is being made, `<output>.partial`; afterwards, `<output>.summary.json`.

    Args:
        output: the file that the run makes.
        manifest: JSON values that the results depend on. An unfinished run is continued, and a finished output is
            accepted, only if all of them are the same.
        overwrite: discard a finished output and an unfinished run.
    """

    def __init__(self, output: Path, manifest: dict[str, Any], *, overwrite: bool) -> None:
        self.output, self.manifest, self.overwrite = output, manifest, overwrite
        self.journal_path = output.with_name(output.name + ".partial")
        self.summary_path = output.with_name(output.name + ".summary.json")

    def finished(self, read: Callable[[dict[str, Any]], T], message: str) -> T | None:
        """What `read` makes of the summary of the finished output; None if there is work to do.

        Args:
            read: takes the summary file's content; may raise ValueError, KeyError, TypeError and AttributeError.
            message: how the output may differ, and what was therefore not done.

        Raises:
            OutputError: the output is of another run, or was changed since.
        """
        if not self.output.exists() or self.journal_path.exists() or self.overwrite:
            return None
        try:
            record = json.loads(self.summary_path.read_text(encoding="utf-8"))
            same = record["run"] == self.manifest and not record.get("unfinished")
            if not record.get("summary", {}).get("scored", 1):  # say the images were not found: nothing is lost
                return None
            result = read(record)
            facts = {"bytes": int(record["output"]["bytes"]), "sha256": str(record["output"]["sha256"])}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):  # absent, damaged, or another tool's file
            same = False
        if not same:
            raise OtherRunError(
                f"{self.output} exists already and is not of this run {message}. Choose another output, or replace it "
                "with --overwrite (overwrite=True)."
            )
        check_undamaged(self.output, facts)
        return result

    def journal(self) -> Journal:
        """Opens the journal, with the results of an unfinished run if there is one."""
        return Journal(self.journal_path, self.manifest, overwrite=self.overwrite)

    def finish(self, journal: Journal, facts: dict[str, Any], *, unfinished: bool = False) -> None:
        """Writes the summary beside the output; deletes the journal unless the same run is to go on with it."""
        facts = {"run": self.manifest, **facts, **({"unfinished": True} if unfinished else {})}
        write_json(self.summary_path, {**facts, "output": output_facts(self.output)})
        if not unfinished:
            journal.delete()


@contextmanager
def saved_on_ctrl_c(journal: Journal, what: str = "rows") -> Iterator[None]:
    """Turns Ctrl-C into `ScoringInterrupted`, which says where the results are."""
    try:
        yield
    except KeyboardInterrupt:
        raise ScoringInterrupted(journal.rows, journal.path, what) from None


class ChunkSize:
    """How many items are scored and saved at a time: doubled while a chunk takes less than `CHUNK_SECONDS`.

    Args:
        first: of the first chunk.
        largest: of any chunk.

    Example:
        >>> size = ChunkSize(8, largest=20)
        >>> for _ in range(3):
        ...     size.took(seconds=0.1)
        >>> size.items
        20
    """

    def __init__(self, first: int, *, largest: int) -> None:
        self.items, self.largest = min(first, largest), largest

    def chunks(self, items: Sequence[T]) -> Iterator[Sequence[T]]:
        """The items in chunks, each sized by the time that the caller took for the one before."""
        position = 0
        while position < len(items):
            chunk, start = items[position : position + self.items], time.perf_counter()
            yield chunk
            self.took(time.perf_counter() - start)
            position += len(chunk)

    def took(self, seconds: float) -> None:
        """Notes how long a chunk of this size took."""
        if seconds < CHUNK_SECONDS:
            self.items = min(2 * self.items, self.largest)


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file, complete or not at all.

    Raises:
        OutputError: it cannot be written.
    """
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
