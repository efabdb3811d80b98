"""Answers kept on disk, one row a question, so that nothing is paid for twice."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from reward.errors import OutputError
from reward.http_client import UnusableReply
from reward.judges.base import Answer
from reward.judges.chat import check_answer


class AnswerCache:
    """Answers by key in an SQLite file, each safely on disk when `put` returns; several processes may share it.

    The file holds hashes of questions and what the judge answered: no prompts, no images and no keys.

    Args:
        path: the file; made if absent.

    Raises:
        OutputError: the file cannot be opened, read or written, or is not such a cache.

    Example:
        >>> cache = AnswerCache(":memory:")
        >>> cache.put("key", Answer("0.8"))
        >>> cache.get("key").text, cache.get("other")
        ('0.8', None)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path, self._lock = os.fspath(path), threading.Lock()
        try:
            Path(self._path).parent.mkdir(parents=True, exist_ok=True)
            self._rows = sqlite3.connect(self._path, timeout=60, check_same_thread=False, isolation_level=None)
        except (sqlite3.Error, OSError) as error:
            raise self._problem(error) from error
        self._rows.text_factory = bytes  # text that is no UTF-8 is a damaged answer, not a damaged file
        self._run("CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, answer TEXT NOT NULL)")

    def get(self, key: str) -> Answer | None:
        """The answer under a key; None if there is none, or if it is damaged and must be asked for again."""
        rows = self._run("SELECT answer FROM answers WHERE key = ?", [key])
        try:
            kept = json.loads(rows[0][0])
            answer = Answer(**{**kept, "tokens": tuple(kept["tokens"]), "logprobs": tuple(kept["logprobs"])})
            check_answer(answer)
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError, UnusableReply):
            return None
        return answer

    def put(self, key: str, answer: Answer) -> None:
        """Keeps an answer, in place of an older one."""
        self._run("INSERT OR REPLACE INTO answers VALUES (?, ?)", [key, json.dumps(asdict(answer))])

    def close(self) -> None:
        """Closes the file."""
        self._rows.close()

    def _run(self, statement: str, values: Sequence[str] = ()) -> list[Any]:
        try:
            with self._lock:
                return self._rows.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._problem(error) from error

    def _problem(self, error: Exception) -> OutputError:
        return OutputError(f"judge cache {self._path!r} cannot be used: {error}; give another file, or none")
