"""Answers kept on disk, one row a question, so that nothing is paid for twice."""

from __future__ import annotations

import json
import os
import sqlite3
from dataclasses import asdict
from pathlib import Path

from reward.errors import OutputError
from reward.judges.base import Answer
from reward.judges.chat import UnusableReply, check_answer

__all__ = ["AnswerCache"]


class AnswerCache:
    """Answers by key in an SQLite file, each safely on disk when `put` returns; several processes may share it.

    The file holds hashes of questions and what the judge answered: no prompts, no images and no keys.

    Args:
        path: the file; made if absent.

    Raises:
        OutputError: the file cannot be opened, or is not such a cache.

    Example:
        >>> cache = AnswerCache(":memory:")
        >>> cache.put("key", Answer("0.8"))
        >>> cache.get("key").text, cache.get("other")
        ('0.8', None)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        try:
            Path(self._path).parent.mkdir(parents=True, exist_ok=True)
            self._rows = sqlite3.connect(self._path, timeout=60, check_same_thread=False, isolation_level=None)
            self._rows.text_factory = bytes  # text that is no UTF-8 is a damaged answer, not a damaged file
            self._rows.execute("CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, answer TEXT NOT NULL)")
        except (sqlite3.Error, OSError) as error:
            raise self._problem(error) from error

    def get(self, key: str) -> Answer | None:
        """The answer under a key; None if there is none, or if it is damaged and must be asked for again."""
        try:
            row = self._rows.execute("SELECT answer FROM answers WHERE key = ?", [key]).fetchone()
        except sqlite3.Error as error:
            raise self._problem(error) from error
        if row is None:
            return None
        try:
            kept = json.loads(row[0])
            answer = Answer(**{**kept, "tokens": tuple(kept["tokens"]), "logprobs": tuple(kept["logprobs"])})
            check_answer(answer)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError, UnusableReply):
            return None
        return answer

    def put(self, key: str, answer: Answer) -> None:
        """Keeps an answer.

        Raises:
            UnusableReply: `get` would refuse it.
            OutputError: it cannot be written.
        """
        check_answer(answer)
        text = json.dumps(asdict(answer), ensure_ascii=False)
        try:
            self._rows.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", [key, text])
        except sqlite3.Error as error:
            raise self._problem(error) from error

    def close(self) -> None:
        """Closes the file."""
        self._rows.close()

    def _problem(self, error: Exception) -> OutputError:
        return OutputError(f"judge cache {self._path!r} cannot be used: {error}; give another file, or none")
