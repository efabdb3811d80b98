"""Reads the answers of judges: a number, a JSON object, or one of a few words, in the judge's own words alone."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from reward.errors import JudgeError
from reward.judges.base import LEAST_MASS, Answer, Judge, Question, read_each, weigh_answers
from reward.judges.readings import find_answer, find_number, plain_digits
from reward.judges.verdicts import last_object, own_words

logger = logging.getLogger(__name__)

_SUSPICIOUS = 120  # answers that are all certain
_MANY_BLANKS = 20  # at the end of an answer
_BLANKS = (
    " (and white space up to the limit of new tokens, as a JSON schema allows: start vLLM with "
    """--structured-outputs-config '{"backend": "xgrammar", "disable_any_whitespace": true}')"""
)
_CUT = " (cut at the limit of new tokens: raise max_new_tokens=)"
_PATTERN = "; say where the grade stands with pattern="
_NO_LOGS = re.compile(r"log.?prob|no single token", re.IGNORECASE)


def written_number(answer: Answer, scale: tuple[float, float], pattern: re.Pattern[str] | None = None) -> float | str:
    """The number that the judge wrote, on the scale, or why there is none.

    Args:
        answer: numbers in its reasoning and in quoted lines do not count.
        scale: lowest and highest number.
        pattern: with one group, which is the number wherever the pattern is found. None finds it, see `find_number`.

    Example:
        >>> written_number(Answer("**Score:** 4/5, for 2 of 3 dogs"), (1, 5))
        4.0
        >>> written_number(Answer("Between 2 and 3."), (1, 5))
        "the answer gives a range: 'Between 2 and 3.'; say where the grade stands with pattern="
    """
    low, high = scale
    cut = _CUT if answer.truncated else ""
    if pattern is None:
        number = find_number(answer.text, low, high)
        if not isinstance(number, str):
            return number.value
        return f"{number}{cut}{_PATTERN}"
    shown = f"{answer.text.strip()!r:.120}{cut}"
    try:
        values = {_as_number(match[1] or "") for match in pattern.finditer(plain_digits(own_words(answer.text)))}
    except ValueError:
        return f"what stands at the place of pattern= is no number: {shown}"
    if not values:
        return f"the answer holds no number at the place of pattern=: {shown}"
    if len(values) > 1:
        return f"the answer gives several numbers: {shown}{_PATTERN}"
    (value,) = values
    return value if low <= value <= high else f"the grade must be from {low:g} to {high:g}, got {value:g}"


def _as_number(text: str) -> float:
    return float(text.strip().replace(",", "."))


def json_score(answer: Answer, scale: tuple[float, float]) -> float | str:
    """The field `score` of the JSON object in an answer, see `last_object`, or why there is none."""
    value = last_object(answer.text, "score")
    if isinstance(value, str):
        ends_blank = len(answer.text) - len(answer.text.rstrip()) > _MANY_BLANKS
        cut = (_BLANKS if ends_blank else _CUT) if answer.truncated else ""
        return f"{value}: {answer.text.strip()!r:.120}{cut}"
    score: Any = value.get("score")
    low, high = scale
    if isinstance(score, str):  # "85"
        number = find_number(score, low, high)
        score = score if isinstance(number, str) else number.value
    if type(score) not in (int, float) or not low <= score <= high:  # True is an int, too
        return f'"score" must be a number from {low:g} to {high:g}, got {score!r:.80}'
    return float(score)


class WordReader:
    """Asks for one of a few words and gives their probabilities: from log probabilities, else 1 for the word written.

    Which of the two is settled by the first questions and held: numbers of both kinds cannot be compared.

    Args:
        judge: answers.
        max_new_tokens: length limit of an answer that is written.
        is_exact: whether the probabilities are those over all tokens, as VQAScore's, and nothing else counts.

    Attributes:
        way: "probabilities" or "words"; None until a question is answered.
    """

    def __init__(self, judge: Judge, max_new_tokens: int, *, is_exact: bool = False) -> None:
        self.judge, self.max_new_tokens, self.is_exact = judge, max_new_tokens, is_exact
        self.way: str | None = "probabilities" if is_exact else None
        self._certain = 0  # answers so far, as long as all are exactly 0 or 1

    def __call__(self, questions: Sequence[Question], words: Sequence[str]) -> list[np.ndarray | str]:
        """The probability of each word, an array (words,), or why there is none, for each question."""
        if not questions:
            return []
        if self.way == "words":
            return self._read_words(questions, words)
        try:
            table, failures = weigh_answers(self.judge, questions, words)
        except JudgeError as error:  # about the judge itself
            if self.way is not None or not _NO_LOGS.search(str(error)):
                raise
            self.way = "words"
            return self._read_words(questions, words)
        if self.way is None:
            has_none = len(failures) == len(questions) and all(map(_NO_LOGS.search, failures.values()))
            if has_none:
                self.way = "words"
                return self._read_words(questions, words)
            if len(failures) < len(questions):
                self.way = "probabilities"
        weighed = [failures.get(row) or self._weighed(row_masses, words) for row, row_masses in enumerate(table)]
        self._watch(weighed)
        return weighed

    def _read_words(self, questions: Sequence[Question], words: Sequence[str]) -> list[np.ndarray | str]:
        return read_each(
            self.judge.generate, questions, lambda answer: _written(answer, words), max_new_tokens=self.max_new_tokens
        )

    def _watch(self, weighed: list[np.ndarray | str]) -> None:
        """Tells once of a judge whose probabilities are those after sampling, by which all answers are certain."""
        shares = [row for row in weighed if not isinstance(row, str)]
        if self._certain < 0 or not all(set(row.tolist()) <= {0.0, 1.0} for row in shares):
            self._certain = -1
            return
        self._certain += len(shares)
        if self._certain >= _SUSPICIOUS:
            logger.warning(
                "all %d answers of %r had a probability of exactly 0 or 1: its server may report probabilities after "
                "sampling, which say nothing (vLLM: --logprobs-mode raw_logprobs)",
                self._certain,
                self.judge.name,
            )
            self._certain = -1

    def _weighed(self, probabilities: np.ndarray, words: Sequence[str]) -> np.ndarray | str:
        mass = float(np.sum(probabilities))
        if not mass >= LEAST_MASS:
            return f"the judge gave the answers {', '.join(words)} a probability of {mass:.2g} in all"
        return np.minimum(probabilities, 1.0) if self.is_exact else probabilities / mass


def _written(answer: Answer, words: Sequence[str]) -> np.ndarray | str:
    """1 for the word that an answer gives, 0 for the others; or why it gives none."""
    found = find_answer(answer.text, words)
    if isinstance(found, str):
        return found + (_CUT if answer.truncated else "")
    return np.array([float(word == found.text) for word in words])
