"""Answers kept on disk, one row a question, so that nothing is paid for twice; and how answers are read."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict
from uuid import uuid4

from reward.checkpoints.store import Store
from reward.http_client import UnusableReply
from reward.judges.base import PROBABILITIES, TEXT, Answer
from reward.judges.chat import check_answer

logger = logging.getLogger(__name__)

_ANSWERS, _READINGS = "answers", "readings"  # owners in the store


class AnswerCache:
    """Answers by key in a file, each safely on disk when `put` returns; several processes may share it.

    The file holds hashes of questions, what the judge answered, and in which way it is read: no prompts, no images and
    no keys.

    Args:
        path: the file; made if absent.

    Raises:
        OutputError: the file cannot be opened, read or written, or is not such a cache.

    Example:
        >>> cache = AnswerCache(":memory:")
        >>> cache.put("key", Answer("0.8"))
        >>> cache.get("key").text, cache.get("other")
        ('0.8', None)
        >>> cache.settle("server", "text"), cache.settle("server", "probabilities"), cache.reading("server")
        ('text', 'text', 'text')
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._store = Store(path)
        self._store.put(_ANSWERS, {})

    def get(self, key: str) -> Answer | None:
        """The answer under a key; None if there is none, or if it is damaged and must be asked for again."""
        text = self._store.get(_ANSWERS, key)
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
        self._store.put(_ANSWERS, {key: json.dumps(asdict(answer)).encode()})

    def reading(self, judge: str) -> str | None:
        """The way in which the answers of a judge are read, None if it is not settled yet."""
        for _, value in self._store.items(f"{_READINGS} {judge}"):  # the first that was written holds
            reading = value.decode(errors="replace")
            if reading in (PROBABILITIES, TEXT):
                return reading
        return None

    def settle(self, judge: str, reading: str) -> str:
        """Settles how the answers of a judge are read, unless it is settled; gives what holds.

        Of several processes that do so at once, the one that wrote first has settled it.
        """
        self._store.put(f"{_READINGS} {judge}", {uuid4().hex: reading.encode()})
        return self.reading(judge) or reading

    def resume(self, judge: str, reading: str | None) -> str | None:
        """The way of reading of the run before that wrote the file, else `reading`, which is then written into it."""
        settled = self.reading(judge)
        if settled is None and reading is not None:
            settled = self.settle(judge, reading)
        if settled == TEXT:
            logger.warning(
                "%s holds answers without log probabilities, so what is written is read. If %s has them now, begin "
                "anew with another file.",
                self._store.path,
                judge,
            )
        return settled

    def close(self) -> None:
        """Closes the file."""
        self._store.close()
