"""The answer in the text of a judge's reply: a number on a scale, or one of a few words.

The answer is looked for in the text, never taken for its first word: `**5**`, `(B)` and "The scale is 1 to 5. My grade:
3" all hold one answer. Where two readings are left, such as a range or two different grades, there is no answer, and
the reason says why.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from reward.data.written_captions import blank, blank_reasoning

_LABEL_REACH = 80  # characters that are searched for a label before an answer
_LIST_ITEM = re.compile(r"^[ \t]*[(\[]?(\d{1,2})[.)\]][ \t]+(?=\S)", re.M)
_DECIMALS = re.compile(r"\d*[.,]\d+|\d+")
_BETWEEN = re.compile(r"between\s*$", re.I)
_BOXED = re.compile(r"(?:\\boxed\s*\{(?:\\text\s*\{)?|<(?:answer|score|grade|rating|verdict)>)\s*[$*_\"'(\[]*$", re.I)
# What may stand before an answer at the beginning of a reply: marks, or words that end in a colon, equals sign or "is".
_OPENING = re.compile(r"[^\w.,\-\u2212]*(?:[^\d:=\n]{1,60}(?:[:=]|\bis\b)[^\w.,\-\u2212]*)?")
_WIDE_MARKS = str.maketrans("\uff1a\uff0f\uff05\uff08\uff09\uff0e\uff0c\uff1d", ":/%().,=")
_UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"  # letters of Chinese, Japanese and Korean


@dataclass(frozen=True)
class Reading:
    """What may be the answer in a text.

    Args:
        start, end: where it stands.
        text: the word as it was asked for, or the number as it was written.
        value: of a number.
        problem: why it is no answer, for one that stands where an answer does: a range, or out of another scale.
        is_count: whether it goes on in words, as "3 dogs" and "no errors" do; then it is an answer only behind a label.
    """

    start: int
    end: int
    text: str
    value: float = math.nan
    problem: str = ""
    is_count: bool = False

    @property
    def meaning(self) -> object:
        """What readings are told apart by."""
        return self.problem or (self.text if math.isnan(self.value) else self.value)


def find_number(text: str, low: float, high: float) -> Reading | str:
    """The number from `low` to `high` that a reply gives as its grade, or why there is none.

    A number counts that stands in a box or after a label ("My grade: 3"), else at the beginning of the reply or alone
    on its last line, else the only one. Numbers in reasoning and quoted lines, numbers of a list, counts ("3 dogs") and
    the scale itself ("1 to 5") are none. A range, several different numbers and another scale are no grade.

    Example:
        >>> find_number("The scale is 1 to 5. My grade: 3", 1, 5).value, find_number("**4/5**", 1, 5).value
        (3.0, 4.0)
        >>> find_number("90-95", 0, 100)
        "the answer gives a range: '90-95'"
    """
    return _or_reason(text, _number_in(text, low, high), "the answer holds no number")


def find_answer(text: str, words: Sequence[str]) -> Reading | str:
    """Which of a few words a reply gives as its answer, or why it gives none; see `find_number` for where it stands.

    Args:
        text: the reply.
        words: all digits; or letters; or words such as Yes and No, which count in any case.

    Example:
        >>> find_answer("**Answer:** (B)", ["A", "B"]).text, find_answer("yes", ["Yes", "No"]).text
        ('B', 'Yes')
        >>> find_answer("Yes or no? I cannot tell.", ["Yes", "No"])
        "the answer is not one of Yes, No: 'Yes or no? I cannot tell.'"
    """
    if _are_numbers(words):
        return _or_reason(text, answer_in(text, words), "the answer holds no number")
    return _or_reason(text, answer_in(text, words), f"the answer is not one of {', '.join(words)}")


def _or_reason(text: str, reading: Reading | None, nothing: str) -> Reading | str:
    """A reading, or why it is no answer; `nothing` where there is none."""
    if reading is None:
        return f"{nothing}: {excerpt(text)}"
    if reading.problem:
        return f"{reading.problem}: {excerpt(text)}"
    return reading


def answer_in(text: str, words: Sequence[str]) -> Reading | None:
    """What stands where a reply gives its answer, perhaps with a problem; None where nothing does."""
    listed = ", ".join(words)
    if not _are_numbers(words):
        plain = _plain(text)
        reading = _choose(plain, _words_in(plain, words))
        if reading is None or not reading.problem:
            return reading
        return replace(reading, problem=f"{reading.problem} of {listed}")
    by_value = {float(word): word for word in words}
    reading = _number_in(text, min(by_value), max(by_value))
    if reading is None or reading.problem:
        return reading
    if reading.value not in by_value:
        return replace(reading, problem=f"the grade must be one of {listed}, got {reading.value:g}")
    return replace(reading, text=by_value[reading.value])


def own_words(text: str) -> str:
    """An answer with blanks in place of reasoning and of quoted lines (`> `), which say nothing by the judge itself.

    All else keeps its place.

    Example:
        >>> own_words("> Score: 1.0\\n0.2").strip()
        '0.2'
    """
    return re.sub(r"^[ \t]*>.*$", lambda line: blank(line[0]), blank_reasoning(text), flags=re.MULTILINE)


def plain_digits(text: str) -> str:
    """A text with the digits of all scripts as 0 to 9 and wide marks as narrow ones; all else keeps its position.

    Example:
        >>> plain_digits("\\uff14\\uff0f\\uff15"), plain_digits("\\u0664")
        ('4/5', '4')
    """
    if text.isascii():
        return text
    digits = [str(unicodedata.decimal(character, character)) for character in text]
    return "".join(digits).translate(_WIDE_MARKS)


def excerpt(text: str) -> str:
    """The beginning of a text, as messages show it."""
    return f"{text.strip()!r:.120}"


class _Patterns(NamedTuple):
    """Patterns made of the words in `readings.yaml`."""

    number: re.Pattern[str]
    out_of: re.Pattern[str]
    of: re.Pattern[str]
    between: re.Pattern[str]
    both: re.Pattern[str]
    after_grade: re.Pattern[str]
    after_word: re.Pattern[str]
    label: re.Pattern[str]
    final_label: re.Pattern[str]
    no_label: re.Pattern[str]


@cache
def _patterns() -> _Patterns:
    import yaml  # type: ignore[import-untyped]  # on use; its stubs are a package of their own

    table = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    words: dict[str, str] = {}  # a pattern of any of the words, which may stand in rows
    for name, rows in table.items():
        escaped: list[str] = []
        for row in rows:
            escaped += map(re.escape, [row] if isinstance(row, str) else row)
        words[name] = f"(?:{'|'.join(escaped)})"
    label = rf"(?:\b{words['labels']}\b|{words['labels_without_blanks']})"
    marks = r"[\s*_\"'(\[]*"
    marks_behind = r"[\s*_\"')\]]*"
    return _Patterns(
        # With all digits, points and commas; part of no word, no path and no longer number.
        number=re.compile(
            rf"(?<![.,/])(?<![^\W{_UNSPACED}])[-\u2212]?(?:\d+(?:[.,]\d+)*|[.,]\d+)"
            rf"(?![.,]\d)(?:(?![^\W_])|(?={words['units_without_blanks']}))"
        ),
        # "4/5", "4 out of 5", "\frac{4}{5}"
        out_of=re.compile(
            rf"[\s*_\"')\]}}]*(?:/|\b{words['out_of']}\b|\b{words['of']}\b|\}}\{{)[\s*_\"'(\[{{]*(\d+(?:[.,]\d+)?)(?!\w)",
            re.I,
        ),
        of=re.compile(rf"[\s*_]*{words['of']}\b", re.I),
        # "3-4", "3 to 4", "3, maybe 4", "Yes or No"
        between=re.compile(
            rf"{marks_behind}(?:[-\u2010-\u2015~/]|\b(?:{words['either']}|{words['both']}|{words['hedges']})\b"
            rf"|,\s*(?:or|{words['hedges']})\b){marks}(?:(?:{words['fillers']}|{words['hedges']})\s+)?{marks}",
            re.I,
        ),
        both=re.compile(rf"/|\b{words['both']}\b", re.I),
        after_grade=re.compile(rf"{words['after_grade']}\b", re.I),
        after_word=re.compile(rf"{words['after_word']}\b", re.I),
        # A label and nothing but a few words and marks up to the answer: "I rate this caption a ", '{"score": '.
        label=re.compile(rf"{label}(?P<between>[^\d\n.!?;,]{{0,40}})$", re.I),
        final_label=re.compile(rf"\b{words['final']}\b[^\d\n.!?;]{{0,20}}{label}[^\d\n.!?;,]{{0,40}}$", re.I),
        no_label=re.compile(rf"\b{words['no_label']}\b", re.I),
    )


def _are_numbers(words: Sequence[str]) -> bool:
    return all(word.isdecimal() for word in words)


def _plain(text: str) -> str:
    """The judge's own words with plain digits, and blanks for the underscores of Markdown; all keeps its position."""
    return plain_digits(own_words(text)).replace("_", " ")


def _number_in(text: str, low: float, high: float) -> Reading | None:
    """The number that stands where a reply gives its grade, perhaps with a problem."""
    plain = _plain(text)
    reading = _choose(plain, _numbers_in(plain, low, high))
    if reading is None or reading.problem or low <= reading.value <= high:
        return reading
    return replace(reading, problem=f"the grade must be from {low:g} to {high:g}, got {reading.value:g}")


def _numbers_in(plain: str, low: float, high: float) -> list[Reading]:
    """All numbers of a text that may be its grade."""
    patterns = _patterns()
    # "1. It names the dog.\\n2. ...": one number with a point may be a grade, several different ones are a list.
    items = {item.start(1): item[1] for item in _LIST_ITEM.finditer(plain)}
    is_list = len(set(items.values())) > 1
    matches = [match for match in patterns.number.finditer(plain) if not (is_list and match.start() in items)]
    readings: list[Reading] = []
    end = 0
    for match, following in zip_longest(matches, matches[1:]):
        if match.start() < end:  # the end of a range or a scale
            continue
        end = match.end()
        value = _value(match[0])
        joint = patterns.between.match(plain, end)
        if joint and patterns.both.search(joint[0]) and not _BETWEEN.search(plain[: match.start()]):
            joint = None  # "4/5" and "3 and 4" are a choice only as "between 3 and 4"
        if joint and following and following.start() == joint.end():
            # Both ends of the scale, "1 to 5", say what was asked.
            end = following.end()
            if {value, _value(following[0])} != {float(low), float(high)}:
                readings.append(Reading(match.start(), end, match[0], value, "the answer gives a range"))
            continue
        problem = ""
        out_of = patterns.out_of.match(plain, end)
        is_count = out_of is None and _goes_on(plain, end, patterns.after_grade)
        if out_of is not None and _value(out_of[1]) != high:
            if patterns.of.match(plain, end):  # "2 of 3 dogs"
                end = out_of.end()
                continue
            problem = f"the grade must be out of {high:g}"
        if math.isnan(value):
            problem = "the answer holds a number that cannot be read"
        readings.append(Reading(match.start(), end, match[0], value, problem, is_count))
        if out_of is not None:
            end = out_of.end()
    return readings


def _goes_on(plain: str, end: int, allowed: re.Pattern[str]) -> bool:
    """Whether a word in small letters follows to which the answer belongs: "3 dogs", "no errors", "A dog"."""
    blanks = re.compile(r"[*_]*\s+(?=[^\W\d_])").match(plain, end)
    if not blanks or "\n" in blanks[0]:
        return False
    return plain[blanks.end()].islower() and not allowed.match(plain, blanks.end())


def _value(text: str) -> float:
    """A number as it is written; NaN for what is none, such as 1.2.3."""
    digits = text.lstrip("-\u2212")
    if not _DECIMALS.fullmatch(digits):
        return math.nan
    value = float(digits.replace(",", "."))
    return value if digits == text else -value


def _words_in(plain: str, words: Sequence[str]) -> list[Reading]:
    """All words of a text that may be its answer."""
    patterns = _patterns()
    by_fold = {word.casefold(): word for word in words}
    pattern = re.compile(rf"(?<![^\W_])(?:{'|'.join(map(re.escape, words))})(?![^\W_]|['\u2019]\w)", re.I)
    matches = list(pattern.finditer(plain))
    readings: list[Reading] = []
    end = 0
    for match, following in zip_longest(matches, matches[1:]):
        word = by_fold[match[0].casefold()]
        if match.start() < end:
            continue
        end = match.end()
        if len(word) == 1 and match[0] != word:  # "a dog" is no answer A
            continue
        joint = patterns.between.match(plain, end)
        if joint and following and following.start() == joint.end():
            # "Yes or no?" repeats the question, unless it stands where the answer is announced.
            end = following.end()
            if _is_labelled(plain, match.start()):
                readings.append(Reading(match.start(), end, word, problem="the answer gives two"))
            continue
        is_count = _goes_on(plain, end, patterns.after_word)
        readings.append(Reading(match.start(), end, word, is_count=is_count))
    return readings


def _choose(plain: str, readings: list[Reading]) -> Reading | None:
    """The answer among the readings of a text; None where there is none."""
    # What is announced counts before what merely stands first or last; of what is announced, a box before "Final
    # grade:", and that before any other label.
    for pattern in (_BOXED, _patterns().final_label):
        announced = [reading for reading in readings if pattern.search(_before(plain, reading.start))]
        if announced:
            return _agreed(announced)
    # Else what does not go on in words: the first, behind an opening such as "Grade:", and the last, alone on its line,
    # must mean the same; where neither is there, all that are left must.
    alone = [reading for reading in readings if not reading.is_count]
    leading = [reading for reading in alone if not re.search(r"\w", plain[: reading.start])]
    labelled = [reading for reading in readings if _is_labelled(plain, reading.start)]
    if labelled:
        return _agreed(labelled + leading)
    opening = _OPENING.match(plain)
    first = [reading for reading in alone if opening and reading.start == opening.end()]
    last = [reading for reading in alone if _is_alone_at_end(plain, reading)]
    return _agreed((first or leading) + last or alone)


def _agreed(readings: list[Reading]) -> Reading | None:
    """The first of readings that mean the same."""
    if not readings:
        return None
    if len({reading.meaning for reading in readings}) > 1:
        return replace(readings[0], problem="the answer gives several different answers")
    return readings[0]


def _before(plain: str, start: int) -> str:
    """What stands before an answer, as far back as its label may stand."""
    return plain[max(0, start - _LABEL_REACH) : start]


def _is_labelled(plain: str, start: int) -> bool:
    label = _patterns().label.search(_before(plain, start))
    return label is not None and not _patterns().no_label.search(label["between"])


def _is_alone_at_end(plain: str, reading: Reading) -> bool:
    """Whether nothing but marks stands beside an answer on the last line."""
    line_start = plain.rfind("\n", 0, reading.start) + 1
    return not re.search(r"\w", plain[reading.end :]) and not re.search(r"\w", plain[line_start : reading.start])
