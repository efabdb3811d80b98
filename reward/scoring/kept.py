"""Answers that are kept as they come, so that none is paid for twice: a store that belongs to one run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reward.checkpoints.store import DamagedStoreError, Store
from reward.errors import OutputError
from reward.scoring.runs import OtherRunError, ScoringInterrupted, check_same_run, lock

_RUN, _ROWS = "run", "rows"  # owners in the store: what the run depends on, and its answers


class Kept:
    """JSON values in the order in which they came, each on the disk once `add` returns.

    As a context it makes of Ctrl-C a `ScoringInterrupted`, which says what is kept.

    Args:
        path: the file; made if absent, continued if it holds the same run.
        run: what the answers depend on, JSON values.
        overwrite: start afresh, whatever the file holds.
        what: name of the answers in messages, such as "captions".

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
        self._store = Store(path)
        try:
            with self._explained("write"):
                facts = self._store.get(_RUN, "facts")
            if overwrite or not len(self):
                self._start(run)
            elif facts is None:
                raise OtherRunError(f"{path} holds answers, and what they are of is damaged; move it away")
            else:
                self.run = json.loads(facts)
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
        # A run that failed before its first answer leaves no file behind.
        if error is not None and is_open and not count:
            self.path.unlink(missing_ok=True)
        if isinstance(error, KeyboardInterrupt) and not isinstance(error, ScoringInterrupted):
            raise ScoringInterrupted(count, self.path, self.what) from None

    def __len__(self) -> int:
        with self._explained("read"):
            return self._store.count(_ROWS)

    def __iter__(self) -> Iterator[Any]:
        """The answers; those that were damaged on the disk are left out, and will be asked for again."""
        with self._explained("read"):
            rows = self._store.items(_ROWS)
        for _, text in rows:
            yield json.loads(text)

    def add(self, answers: Iterable[Any]) -> None:
        """Keeps answers: all of them, or none."""
        # The lock leaves no other process that could write the same numbers.
        first = len(self)
        rows = {str(number): json.dumps(answer).encode() for number, answer in enumerate(answers, start=first)}
        with self._explained("write"):
            self._store.put(_ROWS, rows)

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
        with self._explained("write"):
            self._store.clear()
            self._store.put(_RUN, {"facts": json.dumps(run).encode()})

    @contextmanager
    def _explained(self, verb: str) -> Iterator[None]:
        """Errors of the store as errors of the run; `verb` is "read" or "write"."""
        try:
            yield
        except DamagedStoreError as error:
            raise OtherRunError(
                f"{self.path} holds no answers of a run by this version, or is damaged; move it away ({error})"
            ) from error
        except OutputError as error:
            raise OutputError(
                f"cannot {verb} {error}. What came before is saved; make room and run the same again"
            ) from error

    def _close(self) -> None:
        self._store.close()
        if not self._lock.closed:
            self._lock_path.unlink(missing_ok=True)
            self._lock.close()
