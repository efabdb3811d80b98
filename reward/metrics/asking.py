"""AskingScorer: base of the metrics that have a judge write lists and choose answers, and keep what they need again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Hashable, Sequence
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from reward.judges.base import Answer, Judge, Question
from reward.judges.wording import JudgePrompt
from reward.metrics.judged import JudgedScorer, ask

__all__ = ["AskingScorer", "read_json"]

_KEPT = 200_000  # values; a verdict takes about 200 bytes
_LEAST_MASS = 0.01  # with less probability on all choices, the judge meant another answer, as for HarmonicEval
_MANY_BLANKS = 20  # at the end of an answer
_BLANKS = (
    " (and white space up to the limit of new tokens, as a JSON schema allows: start vLLM with "
    """--structured-outputs-config '{"backend": "xgrammar", "disable_any_whitespace": true}')"""
)


class AskingScorer(JudgedScorer):
    """A judged metric of several questions. What is a string where a value is expected says why there is none.

    Args:
        judge: a vision-language model.
        prompt: a prompt of the class's `prompt_class`, its fields, or a YAML file (start from a copy of the
            `prompt.yaml` in the metric's folder); None is the default.
        max_new_tokens: length limit of a list that the judge writes.
        max_characters, pad_images: see `JudgedScorer`.
    """

    prompt_class: ClassVar[type[JudgePrompt]]

    def __init__(
        self,
        judge: Judge,
        *,
        prompt: JudgePrompt | dict[str, Any] | str | os.PathLike[str] | None = None,
        max_new_tokens: int = 2048,
        max_characters: int = 4000,
        pad_images: bool = False,
    ) -> None:
        super().__init__(judge, max_characters=max_characters, pad_images=pad_images)
        self.prompt: Any = self.prompt_class.of(prompt)
        self.max_new_tokens = max_new_tokens
        self._kept: dict[Hashable, Any] = {}

    def keep(self, keys: Sequence[Hashable], find: Callable[[list[int]], list[Any]]) -> list[Any]:
        """A value for each key: kept, or found now. The newest 200,000 are kept, but no failures.

        Args:
            keys: what the values depend on.
            find: indices of different keys -> their values.
        """
        found = {key: self._kept[key] for key in keys if key in self._kept}
        first = {key: row for row, key in reversed(list(enumerate(keys))) if key not in found}
        self.judge.usage.cached += len(keys) - len(first)
        found |= zip(first, find(list(first.values())) if first else (), strict=True)
        self._kept |= {key: found[key] for key in first if not isinstance(found[key], str)}
        for key in list(islice(self._kept, max(0, len(self._kept) - _KEPT))):
            del self._kept[key]
        return [found[key] for key in keys]

    def write(self, asked: Sequence[tuple[str, Any]], kind: type) -> list[Any]:
        """The JSON that the judge writes for each (text, image or None), see `read_json`."""
        if not asked:
            return []
        answers, failures = ask(self.judge.generate, self._questions(asked), max_new_tokens=self.max_new_tokens)
        return [failures[row] if row in failures else read_json(answer, kind) for row, answer in enumerate(answers)]

    def choose(
        self, asked: Sequence[tuple[str, Any]], choices: Sequence[str], judge: Judge | None = None
    ) -> list[int | str]:
        """The index of the likeliest choice, a token each, for each (text, image or None)."""
        return [each if isinstance(each, str) else int(np.argmax(each)) for each in self.weigh(asked, choices, judge)]

    def weigh(
        self, asked: Sequence[tuple[str, Any]], choices: Sequence[str], judge: Judge | None = None
    ) -> list[np.ndarray | str]:
        """The probabilities of the choices, a token each, for each (text, image or None)."""
        method = (judge or self.judge).answer_distribution
        answers, failures = ask(method, self._questions(asked), answers=list(choices)) if asked else ((), {})
        rows: list[np.ndarray | str] = []
        for row, probabilities in enumerate(answers):
            mass = float(np.sum(probabilities))
            few = f"the judge gave the answers {', '.join(choices)} a probability of {mass:.2g} in all"
            rows.append(failures.get(row) or (probabilities if mass >= _LEAST_MASS else few))
        return rows

    def _questions(self, asked: Sequence[tuple[str, Any]]) -> list[Question]:
        return [Question(text, image=image, system=self.prompt.system or None) for text, image in asked]

    def _saved_settings(self) -> dict[str, Any]:
        return {"prompt": self.prompt.to_json(), "max_new_tokens": self.max_new_tokens}


def read_json(answer: Answer, kind: type) -> Any:
    """The JSON list or object in an answer, from its first bracket on; or a string that says why there is none.

    Example:
        >>> read_json(Answer('Here: ["a"] Done.'), list), read_json(Answer("none"), list)
        (['a'], "the answer holds no JSON list: 'none'")
    """
    start = answer.text.find("[" if kind is list else "{")
    try:
        value, _ = json.JSONDecoder().raw_decode(answer.text, start if start >= 0 else len(answer.text))
        json.dumps(value, ensure_ascii=False).encode()  # half an emoji cannot go into another question
        return value
    except (ValueError, RecursionError):  # not JSON, not Unicode, or nested too deeply
        cut = ""
        if answer.truncated:
            blanks = len(answer.text) - len(answer.text.rstrip())
            cut = _BLANKS if blanks > _MANY_BLANKS else " (cut at the limit of new tokens: raise max_new_tokens=)"
        return f"the answer holds no JSON {'list' if kind is list else 'object'}: {answer.text.strip()!r:.120}{cut}"
