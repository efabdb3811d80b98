"""Answers kept on disk, one row a question, so that nothing is paid for twice."""

from __future__ import annotations

import json
import os
from dataclasses import asdict

from reward.checkpoints.store import Store
from reward.http_client import UnusableReply
from reward.judges.base import Answer
from reward.judges.chat import check_answer

_OWNER = "answers"


class AnswerCache:
    """Answers by key in a file, each safely on disk when `put` returns; several processes may share it.

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
        self._store = Store(path)
        self._store.put(_OWNER, {})

    def get(self, key: str) -> Answer | None:
        """The answer under a key; None if there is none, or if it is damaged and must be asked for again."""
        text = self._store.get(_OWNER, key)
        if text is None:
            return None
        try:
            fields = json.loads(text)
            fields["tokens"] = tuple(fields["tokens"])
            fields["logprobs"] = tuple(fields["logprobs"])
            answer = Answer(**fields)
            check_answer(answer)
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError, UnusableReply):
            return None
        return answer

    def put(self, key: str, answer: Answer) -> None:
        """Keeps an answer, in place of an older one."""
        self._store.put(_OWNER, {key: json.dumps(asdict(answer)).encode()})

    def close(self) -> None:
        """Closes the file."""
        self._store.close()
