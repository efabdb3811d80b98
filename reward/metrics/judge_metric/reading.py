"""Reads the answers of judges: a number, a JSON object, or one of a few words, in the judge's own words alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from reward.errors import JudgeError
from reward.judges.base import LEAST_MASS, Answer, Judge, Question, ask
from reward.judges.verdicts import last_object, own_words

_MANY_BLANKS = 20  # at the end of an answer
_BLANKS = (
    " (and white space up to the limit of new tokens, as a JSON schema allows: start vLLM with "
    """--structured-outputs-config '{"backend": "xgrammar", "disable_any_whitespace": true}')"""
)
_CUT = " (cut at the limit of new tokens: raise max_new_tokens=)"
# A number that is no part of a word or of a longer number, and what it is out of.
_NUMBER = re.compile(r"(?<![\w.,\-\u2212/])(-?\d+(?:[.,]\d+)?)(?:\s*(?:/|out of)\s*(\d+(?:[.,]\d+)?))?(?!\w|[.,]\d)")
# What may stand before a number that is not the only one: marks, or words that end in a colon, an equals sign or "is".
_OPENING = re.compile(r"[^\w.,\-\u2212]*(?:[^\d:=\n]{1,60}(?:[:=]|\bis\b)[^\w.,\-\u2212]*)?")
_NO_LOGS = re.compile(r"log.?prob|no single token", re.IGNORECASE)


def leading_numbers(own: str, number: re.Pattern[str] = _NUMBER) -> tuple[list[re.Match[str]], bool]:
    """The number at the beginning of an answer, perhaps after a label, and True; else all its numbers, and False."""
    found, opening = list(number.finditer(own)), _OPENING.match(own)
    leading = [each for each in found if opening and each.start() == opening.end()]
    return leading or found, bool(leading)


def written_number(answer: Answer, scale: tuple[float, float], pattern: re.Pattern[str] | None = None) -> float | str:
    """The number that the judge wrote, on the scale, or why there is none.

    Args:
        answer: numbers in its reasoning and in quoted lines do not count.
        scale: lowest and highest number.
        pattern: with one group, which is the number wherever the pattern is found. None takes the only number, or one
            at the beginning, perhaps after a label.

    Example:
        >>> written_number(Answer("**Score:** 4/5, for 2 of 3 dogs"), (1, 5))
        4.0
        >>> written_number(Answer("Between 2 and 3."), (1, 5))
        "the answer gives several numbers: 'Between 2 and 3.'; say where the grade stands with pattern="
    """
    own, (low, high) = own_words(answer.text), scale
    shown = f"{answer.text.strip()!r:.120}{_CUT if answer.truncated else ''}"
    place = "" if pattern is None else " at the place of pattern="
    try:
        if pattern is not None:
            values = {_as_number(found[1] or "") for found in pattern.finditer(own)}
        else:
            numbers, _ = leading_numbers(own)
            values = {_as_number(found[1]) for found in numbers if _as_number(found[2] or f"{high}") == high}
            if numbers and not values:
                return f"the grade must be out of {high:g}: {shown}"
    except ValueError:
        return f"what stands{place} is no number: {shown}"
    if not values:
        return f"the answer holds no number{place}: {shown}"
    if len(values) > 1:
        return f"the answer gives several numbers: {shown}; say where the grade stands with pattern="
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
    if type(score) not in (int, float) or not low <= score <= high:  # True is an int, too
        return f'"score" must be a number from {low:g} to {high:g}, got {score!r:.80}'
    return float(score)


class WordReader:
    """Asks for one of a few words and gives their probabilities: from log probabilities, else 1 for the word written.

    Args:
        judge: answers.
        max_new_tokens: length limit of an answer that is written.
        is_exact: whether the probabilities are those over all tokens, as VQAScore's, and nothing else counts.
    """

    def __init__(self, judge: Judge, max_new_tokens: int, *, is_exact: bool = False) -> None:
        self.judge, self.max_new_tokens, self.is_exact = judge, max_new_tokens, is_exact
        self._has_logs = True

    def __call__(self, questions: Sequence[Question], words: Sequence[str]) -> list[np.ndarray | str]:
        """The probability of each word, an array (words,), or why there is none, for each question."""
        answers: Any = [None] * len(questions)
        failures = dict.fromkeys(range(len(questions)), "logprobs")
        if self._has_logs:
            try:
                answers, failures = ask(self.judge.answer_distribution, questions, answers=words)
            except JudgeError as error:  # about the judge itself
                if self.is_exact or not _NO_LOGS.search(str(error)):
                    raise
        found = [failures.get(row) or self._weighed(answer, words) for row, answer in enumerate(answers)]
        lacking = [] if self.is_exact else [row for row, reason in failures.items() if _NO_LOGS.search(reason)]
        if lacking:
            self._has_logs = len(lacking) < len(questions)
            asked = [questions[row] for row in lacking]
            written, failures = ask(self.judge.generate, asked, max_new_tokens=self.max_new_tokens)
            for place, row in enumerate(lacking):
                found[row] = failures.get(place) or _written(written[place], words)
        return found

    def _weighed(self, probabilities: np.ndarray, words: Sequence[str]) -> np.ndarray | str:
        mass = float(np.sum(probabilities))
        if not mass >= LEAST_MASS:
            return f"the judge gave the answers {', '.join(words)} a probability of {mass:.2g} in all"
        return np.minimum(probabilities, 1.0) if self.is_exact else probabilities / mass


def _written(answer: Answer, words: Sequence[str]) -> np.ndarray | str:
    """1 for the digit, or the word that an answer begins or ends with; a reason if there is none, or two."""
    if words[-1].isdigit():
        number = written_number(answer, (float(words[0]), float(words[-1])))
        return number if isinstance(number, str) else np.array([float(float(word) == number) for word in words])
    own = own_words(answer.text)
    word = f"({'|'.join(map(re.escape, words))})"
    label = r"\W*(?:(?:the |final )*(?:answer|verdict|grade|letter|word)(?: is)?\W*)?"
    at_start = re.match(rf"{label}{word}(?=\W*$|\W*\n|[^\w\s]|\s+(?:because|it|the)\b)", own, re.I)
    at_end = re.search(rf"(?:^|\n){label}{word}\W*$", own, re.I)
    told = {found[1].casefold() for found in (at_start, at_end) if found}
    if len(told) != 1:
        cut = _CUT if answer.truncated else ""
        return f"the answer is not one of {', '.join(words)}: {answer.text.strip()!r:.120}{cut}"
    return np.array([float(each.casefold() in told) for each in words])
