"""Reads a judge's answer: the place of the number, and the probabilities of its digits."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from reward.errors import JudgeError
from reward.judges.base import LEAST_MASS, NO_PROBABILITIES, Answer, token_text
from reward.judges.readings import excerpt, find_number, own_words, plain_digits
from reward.metrics.fleur.smoothing import smoothed_score, smoothed_units

DIGITS = tuple("0123456789")


@dataclass(frozen=True)
class Number:
    """A number from 0.0 to 1.0 in an answer.

    Args:
        value: as it was written.
        units: index of the units digit among the digits of the answer; None if it was left out, as in ".85".
        first: index of the first decimal among them; None if there are no decimals.
    """

    value: float
    units: int | None
    first: int | None


@dataclass(frozen=True)
class Grade:
    """FLEUR of one caption.

    Args:
        smoothed: score after smoothing.
        raw: the number that the judge wrote.
        is_partial: whether the second decimal is left out because the judge does not report its probabilities.
    """

    smoothed: float
    raw: float
    is_partial: bool = False


def written_grade(text: str) -> Number | str:
    """Finds the grade in an answer, or says why there is none.

    The grade is a number with decimals from 0 to 1 (`0.85`, `.85`, `0,85`, `1.0`). It must be the only number of the
    answer, or stand at its beginning, perhaps after a label (`**Score:** 0.85, for 2 of 3 dogs`). A bare 0 or 1 counts
    only if the answer holds nothing else. Ambiguous answers have no grade: numbers above 1, on another scale (`85%`,
    `0.8/10`), or several numbers without one at the beginning (`between 0.7 and 0.8`). Numbers in reasoning and in
    quoted lines do not count.

    Example:
        >>> written_grade("Score: 0.85").value
        0.85
        >>> written_grade("I would say 85%.")
        "the grade must be from 0 to 1, got 85: 'I would say 85%.'"
    """
    number = find_number(text, 0, 1)
    if isinstance(number, str):
        return number
    whole, point, decimals = number.text.replace(",", ".").partition(".")
    # A bare 0 or 1 with words behind it is mostly no grade but a count: "1 error".
    following = re.sub(r"/\s*1(\.0+)?", "", own_words(text)[number.end :])
    if not point and re.search(r"\w", following):
        return f"the answer holds no number with decimals: {excerpt(text)}"
    # Digits are counted, not characters, because tokens may lack white space; see `_token_of_digit`.
    start = len(_digits(text[: number.start]))
    return Number(number.value, units=start if whole else None, first=start + len(whole) if decimals else None)


def read_grade(answer: Answer) -> Grade | str:
    """The grade in an answer with log probabilities, or the reason why there is none.

    An answer 0.xx is smoothed over both decimals. If the judge stopped after one, such as 0.8, the probabilities that
    it gave to a second one there count, if they are reported: some servers leave out the end of an answer. An answer
    1.0 or 1 is smoothed at the units place, as in the paper. So is a bare 0, which nothing follows: its expected value
    is p(1).

    Raises:
        JudgeError: the judge wrote several digits as one token.
    """
    number = written_grade(answer.text)
    if isinstance(number, str) and answer.truncated:
        return f"{number} (cut at the limit of new tokens)"
    if isinstance(number, str):
        return number
    if not answer.logprobs:
        return NO_PROBABILITIES
    if _digits("".join(answer.tokens)) != _digits(answer.text):
        return f"the tokens of the answer do not spell it: {excerpt(answer.text)}"
    if number.value == 1 or number.first is None:
        return _units_grade(answer, number)
    return _decimals_grade(answer, number.value, number.first)


def _units_grade(answer: Answer, number: Number) -> Grade | str:
    """The grade of an answer 1.0, 1 or 0, smoothed at its units place."""
    if number.units is None:
        return f"the answer is not written as a number from 0.0 to 1.0: {excerpt(answer.text)}"
    zero, one, *_ = _digit_masses(answer.logprobs[_token_of_digit(answer, number.units)])
    if not zero + one >= LEAST_MASS:
        return f"the judge gave the digits 0 and 1 a probability of {zero + one:.2g} in all"
    smoothed = smoothed_units(zero, one) if number.value == 1 else min(one, 1.0)
    return Grade(smoothed, number.value)


def _decimals_grade(answer: Answer, value: float, first_decimal: int) -> Grade | str:
    """The grade of an answer 0.x or 0.xx, smoothed over its decimals; `first_decimal` counts digits."""
    first = _token_of_digit(answer, first_decimal)
    is_reported = first + 1 < len(answer.logprobs)
    if not is_reported and answer.truncated:
        return f"the answer was cut inside the number: {excerpt(answer.text)}"
    if is_reported and _digits(answer.tokens[first + 1]):
        _token_of_digit(answer, first_decimal + 1)  # refuses a token of several digits
    # In the authors' code, too, 0.80 counts as 0.8.
    has_second = len(str(value)) > len("0.8")
    tenths = _digit_masses(answer.logprobs[first])
    hundredths = [0.0] * len(DIGITS)
    if is_reported:
        hundredths = _digit_masses(answer.logprobs[first + 1])
    # Little probability on the digits of a place says that the judge meant something else there.
    least = min(sum(tenths), sum(hundredths)) if has_second else sum(tenths)
    if not least >= LEAST_MASS:
        return f"the judge gave the digits of its number a probability of {least:.2g} in all"
    smoothed = smoothed_score(tenths, hundredths)
    return Grade(smoothed, value, is_partial=not is_reported)


def merged_message(name: str, example: str) -> str:
    """Message that says why a judge is refused, and which to use instead."""
    return (
        f"the judge {name!r} writes several characters of a number as one token ({example}): take one that writes "
        "digits one by one, such as LLaVA-1.5 or Qwen2.5-VL, or the metric harmoniceval"
    )


def _token_of_digit(answer: Answer, digit: int) -> int:
    """Index of the token of a digit. Digits are counted, because tokens may lack white space."""
    digits = 0
    for index, token in enumerate(answer.tokens):
        digits += len(_digits(token))
        if digits > digit:
            if len(token_text(token)) > 1:
                example = f"{token_text(token)!r} in {answer.text.strip()!r:.60}"
                raise JudgeError(merged_message("that was asked", example))
            return index
    raise AssertionError("the tokens hold as many digits as the text")


def _digits(text: str) -> str:
    """The digits of a text, those of all scripts as 0 to 9."""
    return "".join(character for character in plain_digits(text) if character in DIGITS)


def _digit_masses(logprobs: Mapping[str, float]) -> list[float]:
    """The probability of each digit among the alternatives of one token."""
    masses = dict.fromkeys(DIGITS, 0.0)
    for token, logprob in logprobs.items():
        text = plain_digits(token_text(token))
        if text in masses:
            masses[text] += math.exp(logprob)
    return list(masses.values())
