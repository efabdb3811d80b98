"""Reads a judge's answer: the place of the number, and the probabilities of its digits."""

from __future__ import annotations

import re
from dataclasses import dataclass

from reward.errors import JudgeError
from reward.judges.base import LEAST_MASS, Answer, answer_mass, token_text
from reward.judges.readings import find_number
from reward.judges.verdicts import own_words
from reward.metrics.fleur.smoothing import smoothed_score, smoothed_units

DIGITS = tuple("0123456789")


@dataclass(frozen=True)
class Number:
    """A number from 0.0 to 1.0 in an answer.

    Args:
        value: as it was written.
        units: place of the units digit among the digits of the answer; None if it was left out, as in ".85".
        first: place of the first decimal among them; None if there are no decimals.
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
        partial: whether the second decimal is left out because the judge does not report its probabilities.
    """

    smoothed: float
    raw: float
    partial: bool = False


def read_number(text: str) -> Number | str:
    """Finds the grade in an answer, or says why there is none.

    The grade is a number with decimals from 0 to 1 (`0.85`, `.85`, `0,85`, `1.0`). It must be the only number of the
    answer, or stand at its beginning, perhaps after a label (`**Score:** 0.85, for 2 of 3 dogs`). A bare 0 or 1 counts
    only if the answer holds nothing else. Ambiguous answers have no grade: numbers above 1, on another scale (`85%`,
    `0.8/10`), or several numbers without one at the beginning (`between 0.7 and 0.8`). Numbers in reasoning and in
    quoted lines do not count.

    Example:
        >>> read_number("Score: 0.85").value
        0.85
        >>> read_number("I would say 85%.")
        "the grade must be out of 1: 'I would say 85%.'"
    """
    found = find_number(text, 0, 1)
    if isinstance(found, str):
        return found
    written = found.text.replace(",", ".")
    whole, point, decimals = written.partition(".")
    rest = own_words(text)
    if not point and re.search(r"\w", re.sub(r"/\s*1(\.0+)?", "", rest[found.end :])):
        return f"the answer holds no number with decimals: {text.strip()!r:.120}"
    start = len(_digits(text[: found.start]))
    return Number(float(written), start if whole else None, start + len(whole) if decimals else None)


def read_grade(answer: Answer, *, second_decimal: bool = True) -> Grade | str:
    """The grade in an answer with log probabilities, or the reason why there is none.

    An answer 0.xx is smoothed over both decimals. If the judge stopped after one, the second place counts if
    `second_decimal` says so and the judge reports it; some servers leave out the end of an answer. An answer 1.0 or 1
    is smoothed at the units place, as in the paper. So is a bare 0, which nothing follows: its expected value is p(1).

    Raises:
        JudgeError: the judge wrote several digits as one token, or reports no probabilities.
    """
    number = read_number(answer.text)
    if isinstance(number, str):
        return number + (" (cut at the limit of new tokens)" if answer.truncated else "")
    if not answer.logprobs:
        raise JudgeError("the judge reports no log probabilities, which FLEUR is made of")
    if _digits("".join(answer.tokens)) != _digits(answer.text):
        return f"the tokens of the answer do not spell it: {answer.text.strip()!r:.120}"
    if number.value == 1 or number.first is None:
        if number.units is None:
            return f"the answer is not written as a number from 0.0 to 1.0: {answer.text.strip()!r:.120}"
        zero, one = answer_mass(answer.logprobs[_place(answer, number.units)], ("0", "1"))
        if not zero + one >= LEAST_MASS:
            return f"the judge gave the digits 0 and 1 a probability of {zero + one:.2g} in all"
        return Grade(smoothed_units(zero, one) if number.value == 1 else min(one, 1.0), number.value)
    first = _place(answer, number.first)
    reported = first + 1 < len(answer.logprobs)
    if not reported and answer.truncated:
        return f"the answer was cut inside the number: {answer.text.strip()!r:.120}"
    if reported and _digits(answer.tokens[first + 1]):
        _place(answer, number.first + 1)  # refuses a token of several digits
    has_second = len(str(number.value)) > len("0.8")  # in the authors' code, too, 0.80 counts as 0.8
    tenths, hundredths = answer_mass(answer.logprobs[first], DIGITS), [0.0] * len(DIGITS)
    if reported and (second_decimal or has_second):
        hundredths = answer_mass(answer.logprobs[first + 1], DIGITS)
    for mass in map(sum, [tenths, hundredths] if has_second else [tenths]):
        if not mass >= LEAST_MASS:
            return f"the judge gave the digits of its number a probability of {mass:.2g} in all"
    return Grade(smoothed_score(tenths, hundredths), number.value, partial=second_decimal and not reported)


def merged_message(name: str, example: str) -> str:
    """Message that says why a judge is refused, and which to use instead."""
    return (
        f"the judge {name!r} writes several characters of a number as one token ({example}). FLEUR needs the "
        "probability of each digit on its own. Take a model that writes digits one by one, such as LLaVA-1.5 or "
        "Qwen2.5-VL, or the metric harmoniceval, whose ratings 1 to 5 are one token in any tokenizer"
    )


def _place(answer: Answer, digit: int) -> int:
    """Index of the token of a digit. Digits are counted, because tokens may lack white space."""
    seen = 0
    for place, token in enumerate(answer.tokens):
        seen += len(_digits(token))
        if seen > digit:
            if len(token_text(token)) > 1:
                raise JudgeError(
                    merged_message("that was asked", f"{token_text(token)!r} in {answer.text.strip()!r:.60}")
                )
            return place
    raise AssertionError("the tokens hold as many digits as the text")


def _digits(text: str) -> str:
    return "".join(character for character in text if character in DIGITS)
