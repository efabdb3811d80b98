"""A judge that is loaded at its first question."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from reward.fingerprints import fingerprint_source
from reward.judges.base import Answer, Judge, Question, Usage

__all__ = ["LazyJudge"]

_NO_EFFECT = {"device", "batch_size"}  # but for rounding


class LazyJudge:
    """Loads a judge at its first question, and leaves it out when pickled: another process loads its own.

    Args:
        load: gives the judge; must be picklable for this to be.
        name: how reports call it before it is loaded, and after.

    Example:
        >>> from reward.judges import ScriptedJudge
        >>> judge = LazyJudge(lambda: ScriptedJudge(lambda question: "4"), "scripted")
        >>> judge.loaded, judge.generate([Question("How good?")])[0].text, judge.loaded
        (False, '4', True)
    """

    def __init__(self, load: Callable[[], Judge], name: str) -> None:
        self.name = name
        self.usage = Usage()  # the judge's own as soon as it is loaded
        self._load = load
        self._judge: Judge | None = None
        self._lock = threading.Lock()

    @property
    def loaded(self) -> bool:
        return self._judge is not None

    @property
    def fingerprint(self) -> str:
        """Names the weights that are stored under its name now, and the settings they are loaded with."""
        settings = {**getattr(self._load, "keywords", {})}
        weights = fingerprint_source(self.name, settings.pop("revision", None))
        return f"{weights} {sorted((name, str(settings[name])) for name in settings.keys() - _NO_EFFECT)}"

    def load(self) -> None:
        """Loads the judge now."""
        self._get()

    def answer_distribution(self, questions: Sequence[Question], answers: Sequence[str]) -> np.ndarray:
        """See Judge."""
        return self._get().answer_distribution(questions, answers)

    def generate(
        self,
        questions: Sequence[Question],
        *,
        max_new_tokens: int = 256,
        top_logprobs: int = 0,
        track: Sequence[str] = (),
    ) -> list[Answer]:
        """See Judge."""
        return self._get().generate(questions, max_new_tokens=max_new_tokens, top_logprobs=top_logprobs, track=track)

    def pieces(self, text: str) -> tuple[str, ...] | None:
        """See Judge."""
        return self._get().pieces(text)

    def _get(self) -> Judge:
        with self._lock:
            if self._judge is None:
                self._judge = self._load()
                self.usage = self._judge.usage
            return self._judge

    def __getstate__(self) -> dict[str, Any]:
        return {"name": self.name, "load": self._load}

    def __setstate__(self, state: dict[str, Any]) -> None:
        LazyJudge.__init__(self, **state)
