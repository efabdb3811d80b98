"""A judge that is loaded at its first question."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from reward.checkpoints.fingerprints import fingerprint_source
from reward.judges.base import Answer, Judge, Question, Usage

_NO_EFFECT = {"device", "batch_size"}  # but for rounding


class LazyJudge:
    """Loads a judge at its first question, and leaves it out when pickled: another process loads its own.

    Args:
        load: gives the judge; must be picklable for this to be.
        name: how reports call it before it is loaded, and after.

    Example:
        >>> from reward.judges import ScriptedJudge
        >>> judge = LazyJudge(lambda: ScriptedJudge(lambda question: "4"), "scripted")
        >>> judge.usage.answered, judge.generate([Question("How good?")])[0].text, judge.usage.answered
        (0, '4', 1)
    """

    def __init__(self, load: Callable[[], Judge], name: str) -> None:
        self.name = name
        self._load = load
        self._judge: Judge | None = None
        self.usage = Usage()  # the judge's own as soon as it is loaded
        self._lock = threading.Lock()

    @property
    def fingerprint(self) -> str:
        """Names the weights that are stored under its name now, and the settings they are loaded with."""
        settings = dict(getattr(self._load, "keywords", {}))
        weights = fingerprint_source(self.name, settings.pop("revision", None))
        texts = [(name, str(value)) for name, value in sorted(settings.items()) if name not in _NO_EFFECT]
        return f"{weights} {texts}"

    def load(self) -> Any:
        """The judge, loaded now if it was not."""
        with self._lock:
            if self._judge is None:
                self._judge = self._load()
                self.usage = self._judge.usage
            return self._judge

    def answer_distribution(self, questions: Sequence[Question], answers: Sequence[str]) -> np.ndarray:
        """See Judge."""
        return self.load().answer_distribution(questions, answers)

    def weigh(self, questions: Sequence[Question], words: Sequence[str]) -> np.ndarray:
        """See `weigh_answers`."""
        judge = self.load()
        weigh = getattr(judge, "weigh", judge.answer_distribution)
        table: np.ndarray = weigh(questions, words)
        return table

    def generate(self, questions: Sequence[Question], **options: Any) -> list[Answer]:
        """See Judge."""
        return self.load().generate(questions, **options)

    def pieces(self, text: str) -> tuple[str, ...] | None:
        """See Judge."""
        return self.load().pieces(text)

    def __reduce__(self) -> Any:
        return LazyJudge, (self._load, self.name)
