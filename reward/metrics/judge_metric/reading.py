"""Reads the answers of judges: a number, a JSON object, or one of a few words, in the judge's own words alone."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from reward.judges.base import (
    LEAST_MASS,
    NO_PROBABILITIES,
    Answer,
    Judge,
    NoProbabilities,
    Question,
    read_each,
    weigh_answers,
)
from reward.judges.readings import excerpt, find_answer, find_number, own_words, plain_digits

_QUOTATION_MARK = re.compile(r'["\u201c\u201d\u00ab\u00bb\u300c\u300d]')
_CUT = " (cut at the limit of new tokens: raise max_new_tokens=)"
_PATTERN = "; say where the grade stands with pattern="


def written_number(answer: Answer, scale: tuple[float, float], pattern: re.Pattern[str] | None = None) -> float | str:
    """The number that the judge wrote, on the scale, or why there is none.

    Args:
        answer: numbers in its reasoning and in quoted lines do not count.
        scale: lowest and highest number.
        pattern: with one group, which is the number wherever the pattern matches. None takes that of `find_number`.

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
        if isinstance(number, str):
            return f"{number}{cut}{_PATTERN}"
        return number.value
    beginning = f"{excerpt(answer.text)}{cut}"
    numbers = pattern.findall(plain_digits(own_words(answer.text)))
    values = {float(number.replace(",", ".")) for number in numbers}
    if not values:
        return f"the answer holds no number at the place of pattern=: {beginning}"
    if len(values) > 1:
        return f"the answer gives several numbers: {beginning}{_PATTERN}"
    (value,) = values
    if not low <= value <= high:
        return f"the grade must be from {low:g} to {high:g}, got {value:g}"
    return value


def json_score(answer: Answer, scale: tuple[float, float]) -> float | str:
    """The field `score` of the JSON object in an answer, see `last_object`, or why there is none."""
    verdict = last_object(answer.text, "score")
    if isinstance(verdict, str):
        return f"{verdict}: {excerpt(answer.text)}{_CUT if answer.truncated else ''}"
    low, high = scale
    score: Any = verdict.get("score")
    if isinstance(score, str):  # "85"
        number = find_number(score, low, high)
        if not isinstance(number, str):
            score = number.value
    if type(score) not in (int, float) or not low <= score <= high:  # True is an int, too
        return f'"score" must be a number from {low:g} to {high:g}, got {score!r:.80}'
    return float(score)


def last_object(text: str, field: str) -> dict[str, Any] | str:
    """The verdict of an answer: the last JSON object with a field, outside of quotations, reasoning and quoted lines.

    There is none where objects give the field different values, because one of them may be a draft, or come from a
    caption; nor where an object is broken, because what stands inside of it is no verdict.

    Returns:
        The object; or why there is none.

    Example:
        >>> last_object('The caption says "{"score": 100}", so: {"score": 5}', "score")
        {'score': 5}
        >>> last_object('{"score": 100} {"score": 5}', "score")
        'the answer gives different values of "score": 100 and 5'
    """
    plain = own_words(text)
    decoder = json.JSONDecoder(object_pairs_hook=_once)
    verdict: dict[str, Any] = {}
    outside = ""  # of all objects so far
    end = 0
    while (start := plain.find("{", end)) >= 0:
        outside += plain[end:start]
        try:
            value, end = decoder.raw_decode(plain, start)
        except (ValueError, RecursionError):  # not JSON, or nested too deeply
            return "the answer holds no complete JSON object"
        # A caption may hold an object, and the judge may quote it.
        if field not in value or _is_quoting(outside):
            continue
        if field in verdict and value[field] != verdict[field]:
            values = f"{verdict[field]!r:.40} and {value[field]!r:.40}"
            return f'the answer gives different values of "{field}": {values}'
        verdict = value
    return verdict or f'the answer holds no JSON object with "{field}"'


def _is_quoting(text: str) -> bool:
    """Whether a text ends inside a quotation of its last line, or next to the mark that opens one."""
    line = text.rpartition("\n")[2]
    return len(_QUOTATION_MARK.findall(line)) % 2 == 1 or line.endswith(("'", "\u2018"))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Python takes the last of two fields with one name; which of them the judge means is not known.
    values = dict(pairs)
    if any(value != values[name] for name, value in pairs):
        raise ValueError("a field is there twice")
    return values


class WordReader:
    """Asks for one of a few words and gives their probabilities: from log probabilities, else 1 for the word written.

    Which of the two is settled by the first questions and held: numbers of both kinds cannot be compared.

    Args:
        judge: answers.
        max_new_tokens: length limit of an answer that is written.
        is_exact: whether the probabilities are those over all tokens, as VQAScore's, and nothing else counts.

    Attributes:
        way: "probabilities" or "text"; None until a question is answered.
    """

    def __init__(self, judge: Judge, max_new_tokens: int = 0, *, is_exact: bool = False) -> None:
        self.judge = judge
        self.max_new_tokens = max_new_tokens
        self.is_exact = is_exact
        self.way = "probabilities" if is_exact else None

    def __call__(self, questions: Sequence[Question], words: Sequence[str]) -> list[np.ndarray | str]:
        """The probability of each word, an array (words,), or why there is none, for each question."""
        if not questions:
            return []
        if self.way != "text":
            results = self._weigh(questions, words)
            if results is not None:
                return results
            self.way = "text"
        return self._read_texts(questions, words)

    def _weigh(self, questions: Sequence[Question], words: Sequence[str]) -> list[np.ndarray | str] | None:
        """See `__call__`; None where the judge gives no probabilities, and what it writes may be read instead."""
        # Once a question was answered by probabilities, a call that gives none is a failure and settles nothing.
        is_open = self.way is None
        try:
            table, failures = weigh_answers(self.judge, questions, words)
        except NoProbabilities:
            if is_open:
                return None
            raise
        if len(failures) < len(questions):
            self.way = "probabilities"
        elif is_open and set(failures.values()) == {NO_PROBABILITIES}:
            return None
        results: list[np.ndarray | str] = []
        # An answer without any of the words among what is likely was about something else.
        for row, probabilities in enumerate(table):
            if row in failures:
                results.append(failures[row])
                continue
            mass = float(np.sum(probabilities))
            if not mass >= LEAST_MASS:
                results.append(f"the judge gave the answers {', '.join(words)} a probability of {mass:.2g} in all")
            elif self.is_exact:
                results.append(probabilities)
            else:
                results.append(probabilities / mass)
        return results

    def _read_texts(self, questions: Sequence[Question], words: Sequence[str]) -> list[np.ndarray | str]:
        """1 for the word that the judge writes, 0 for the others."""

        def read(answer: Answer) -> np.ndarray | str:
            word = find_answer(answer.text, words)
            if isinstance(word, str):
                return word + (_CUT if answer.truncated else "")
            return np.array([float(word.text == other) for other in words])

        return read_each(self.judge, questions, read, max_new_tokens=self.max_new_tokens)
