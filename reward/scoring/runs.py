"""Runs that go on after a stop: what lies beside their output, what a second call makes of it, and who may write."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeVar

from reward.checkpoints.store import NO_LOCKS
from reward.errors import OutputError
from reward.scoring.writers import check_undamaged, output_facts, write_text

T = TypeVar("T")


class OtherRunError(OutputError):
    """What is there was made of other input or settings; with `overwrite` it is replaced."""


class ScoringInterrupted(KeyboardInterrupt):
    """Ctrl-C during scoring; what was done before is saved.

    Args:
        rows: number of rows saved.
        place: where they are.
        what: the rows are called.
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
        manifest: JSON values that the results depend on. A finished output is accepted only if all are the same.
        overwrite: discard a finished output.
        records: folder of the other two; None is that of the output.
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
            message: how the output may differ, and what was therefore not done.

        Raises:
            OutputError: the output is of another run, or was changed since.
        """
        is_unfinished = self.partial.is_file() or (self.partial / "run.json").exists()  # of answers, or of parts
        if not self.output.exists() or is_unfinished or self.overwrite:
            return None
        facts = None
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):  # absent, damaged, another tool's
            record = json.loads(self.summary_path.read_text(encoding="utf-8"))
            if not record.get("summary", {}).get("scored", 1):  # say the images were not found: nothing is lost
                return None
            if record["run"] == self.manifest and not record.get("unfinished"):
                facts = read(record), record["output"]
        if facts is None:
            raise OtherRunError(
                f"{self.output} exists already and is not of this run {message}. Choose another output, or replace it "
                "with --overwrite (overwrite=True)."
            )
        summary, output = facts
        check_undamaged(self.output, output)
        return summary

    def finish(self, facts: dict[str, Any], *, unfinished: bool = False) -> None:
        """Writes the summary beside the output."""
        record = {"run": self.manifest, **facts, "output": output_facts(self.output)}
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


def lock(path: Path, of: Path) -> IO[bytes]:
    """Keeps other processes from writing `of` until the file that it gives is closed.

    Raises:
        OutputError: another process is writing it, or `path` cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
    except OSError as error:
        raise OutputError(f"cannot write {of}: {error.strerror or error}") from error
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kernel releases it even after kill -9
        is_ours = os.fstat(file.fileno()).st_ino == path.stat().st_ino  # else removed meanwhile, and another one made
    except ImportError:  # Windows has no flock: there, nothing keeps two processes from writing at once
        is_ours = True
    except OSError as error:  # some file systems have no locks either
        is_ours = error.errno in NO_LOCKS
    if not is_ours:
        file.close()
        raise OutputError(f"another process is writing {of}; wait for it, or choose another output")
    return file


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file, complete or not at all.

    Raises:
        OutputError: it cannot be written.
    """
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
