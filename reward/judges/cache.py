"""Answers kept on disk, one row a question, so that nothing is paid for twice; and how answers are read."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from uuid import uuid4

from reward.checkpoints.store import Store
from reward.judges.base import PROBABILITIES, TEXT, Answer

_ANSWERS, _READINGS = "answers", "readings"  # owners in the store


class AnswerCache:
    """Answers by key in a file, each safely on disk when `put` returns; several processes may share it.

    The file holds hashes of questions, what the judge answered, and in which way it is read: no prompts, no images and
    no keys.

    Args:
        path: the file; made if absent.

    Attributes:
        store: the file, which its user closes.

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
        self.store = Store(path)
        # A file that cannot be written is told now, and not after the first answer was paid for.
        self.store.put(_ANSWERS, {})

    def get(self, key: str) -> Answer | None:
        """The answer under a key; None if there is none, or if it is damaged and must be asked for again."""
        text = self.store.get(_ANSWERS, key)
        if text is None:
            return None
        try:
            fields = json.loads(text)
            fields["tokens"] = tuple(fields["tokens"])
            fields["logprobs"] = tuple(fields["logprobs"])
            return Answer(**fields)
        except (ValueError, TypeError, LookupError):
            return None

    def put(self, key: str, answer: Answer) -> None:
        """Keeps an answer, in place of an older one."""
        self.store.put(_ANSWERS, {key: json.dumps(asdict(answer)).encode()})

    def reading(self, judge: str) -> str | None:
        """The way in which the answers of a judge are read, None if it is not settled yet."""
        for _, value in self.store.items(f"{_READINGS} {judge}"):  # the first that was written holds
            reading = value.decode(errors="replace")
            if reading in (PROBABILITIES, TEXT):
                return reading
        return None

    def settle(self, judge: str, reading: str) -> str:
        """Settles how the answers of a judge are read, unless it is settled; gives what holds.

        Of several processes that do so at once, the one that wrote first has settled it.
        """
        self.store.put(f"{_READINGS} {judge}", {uuid4().hex: reading.encode()})
        return self.reading(judge) or reading
