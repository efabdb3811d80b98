"""The answer in a judge's reply: where it stands in the text, and how likely the tokens there make each other answer.

A reply is a text with token probabilities. What a judge answers is looked for in the text, never taken for its first
token: `**5**`, `(B)` and "The scale is 1 to 5. My grade: 3" all hold one answer. Where two readings are left, such as
a range or two different grades, there is no answer, and the reason says why.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reward.judges import reply_patterns as patterns
from reward.judges.base import Answer, answer_mass, answer_mass_after_blanks, answered, token_text
from reward.judges.reply_patterns import plain_digits
from reward.judges.verdicts import own_words

_LABEL_REACH = 80  # characters
ANSWER_LENGTH = 32  # tokens: an answer, with a few words before it
NO_PROBABILITIES = "the judge gave no log probabilities"
_NONE = ("the answer holds no number", "the answer is not one of")
_CUT = " (cut at the limit of new tokens: raise max_new_tokens=)"


@dataclass(frozen=True)
class Found:
    """An answer in a text.

    Args:
        start, end: where it stands.
        text: the word as it was asked for, or the number as it was written.
        value: of a number.
        problem: why it is no answer, for one that stands where an answer does: a range, or out of another scale.
    """

    start: int
    end: int
    text: str
    value: float = math.nan
    problem: str = ""


def find_number(text: str, low: float, high: float) -> Found | str:
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
    own = _own(text)
    found = _chosen(own, _numbers(own, low, high))
    if found is None:
        return f"the answer holds no number: {_shown(text)}"
    if isinstance(found, str) or found.problem:
        return f"{found if isinstance(found, str) else found.problem}: {_shown(text)}"
    if not low <= found.value <= high:
        return f"the grade must be from {low:g} to {high:g}, got {found.value:g}: {_shown(text)}"
    return found


def find_answer(text: str, words: Sequence[str]) -> Found | str:
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
    if all(word.isdecimal() for word in words):
        numbers = [int(word) for word in words]
        found = find_number(text, min(numbers), max(numbers))
        if isinstance(found, str):
            return found
        if found.value not in numbers:
            return f"the grade must be one of {', '.join(words)}, got {found.value:g}: {_shown(text)}"
        return replace(found, text=words[numbers.index(int(found.value))])
    own = _own(text)
    chosen = _chosen(own, _words(own, words))
    if chosen is None:
        return f"the answer is not one of {', '.join(words)}: {_shown(text)}"
    if isinstance(chosen, str) or chosen.problem:
        reason = chosen if isinstance(chosen, str) else chosen.problem
        return f"{reason} of {', '.join(words)}: {_shown(text)}"
    return chosen


def weigh_reply(answer: Answer, words: Sequence[str], first: Sequence[float] | None = None) -> list[float] | str:
    """The probability of each word where a reply gives its answer, or why there is none.

    A reply of one token that is no answer is weighed there, too. Where the answer is the first token that is no white
    space, white space before it is taken into account, see `answer_mass_after_blanks`. An answer that is spelled as it
    was asked for is weighed among words spelled so; one in another case, or in a token with marks such as "(B", among
    all such spellings. Of an answer of several tokens the first is weighed.

    Args:
        answer: with log probabilities.
        words: see `find_answer`.
        first: the probabilities of the words as first token, where they are known from the whole vocabulary.

    Example:
        >>> marks, five = {"**": 0.0}, {"5": math.log(0.8), "4": math.log(0.2)}
        >>> reply = Answer("**5**", ("**", "5", "**"), (marks, five, marks))
        >>> [round(mass, 3) for mass in weigh_reply(reply, ["4", "5"])]
        [0.2, 0.8]
    """
    found = find_answer(answer.text, words)
    if isinstance(found, str):
        spelling_tokens = [token for token in answer.tokens if patterns.MARKER_TOKEN.sub("", token_text(token))]
        if found.startswith(_NONE) and len(spelling_tokens) == 1:
            return list(first) if first is not None else _after_blanks(answer, words)
        return found + (_CUT if answer.truncated else "")
    if answer.truncated and not answer.text[found.end :].strip() and found.text.isdecimal() and len(answer.tokens) > 1:
        return f"the answer was cut at a number: {_shown(answer.text)}{_CUT}"
    index = token_index(answer, found.start)
    if index is None:
        return f"the tokens of the answer do not spell it: {_shown(answer.text)}"
    written = token_text(answer.tokens[index])
    is_first = not any(map(token_text, answer.tokens[:index]))
    if written == found.text:
        if not is_first:
            return answer_mass(answer.logprobs[index], words)
        return list(first) if first is not None else _after_blanks(answer, words)
    masses = dict.fromkeys(words, 0.0)
    spelling = _core(written)
    for token, logprob in answer.logprobs[index].items():
        word = _word_of(_core(token), words, is_part=spelling.casefold() != found.text.casefold())
        if word is not None:
            masses[word] += math.exp(logprob)
    return list(masses.values())


def weighed(
    replies: Sequence[Answer | None],
    failures: dict[int, str],
    words: Sequence[str],
    first: Sequence[Sequence[float]] | None = None,
) -> np.ndarray:
    """The probabilities (N, len(words)) that replies give each word, see `weigh_reply`.

    Args:
        replies: None where `failures` says why.
        failures: {index: reason} of questions without a reply.
        words: see `find_answer`.
        first: of each reply the probabilities of the words as first token, where they are known.

    Raises:
        JudgeError: with `failures`, replies without an answer and those without log probabilities among them.
    """
    table = np.full((len(replies), len(words)), np.nan)
    reasons = dict(failures)
    for row, reply in enumerate(replies):
        if reply is None:
            continue
        if not reply.logprobs:
            reasons[row] = NO_PROBABILITIES
            continue
        masses = weigh_reply(reply, words, None if first is None else first[row])
        if isinstance(masses, str):
            reasons[row] = masses
        else:
            table[row] = masses
    return answered(table, reasons)


def token_index(answer: Answer, start: int) -> int | None:
    """Index of the token that holds the character at `start` of a reply's text; None where the tokens do not tell.

    Letters and digits are counted, because tokens may lack white space, and end marks are in no text.
    """
    if not answer.tokens:
        return None
    before = sum(map(str.isalnum, answer.text[:start]))
    wanted = answer.text[start]
    count = 0
    for index, token in enumerate(answer.tokens):
        letters = [character for character in patterns.MARKER_TOKEN.sub("", token_text(token)) if character.isalnum()]
        if count + len(letters) > before:
            return index if letters[before - count] == wanted else None
        count += len(letters)
    return None


def _after_blanks(answer: Answer, words: Sequence[str]) -> list[float] | str:
    masses, unknown = answer_mass_after_blanks(answer, words)
    if unknown > max(0.1 * sum(masses), 0.01):
        return (
            f"the server gave white space a probability of {unknown:.2g} and did not go on from it, and gave the "
            f"answers {sum(masses):.2g} in all; a model on this machine goes on from all white space"
        )
    return masses


def _word_of(spelling: str, words: Sequence[str], *, is_part: bool) -> str | None:
    """The word that a token stands for; of an answer of several tokens, the only word that begins with it."""
    folded = spelling.casefold()
    if not folded:
        return None
    same = [word for word in words if word.casefold() == folded]
    if is_part and not same:
        same = [word for word in words if word.casefold().startswith(folded)]
    return same[0] if len(same) == 1 else None


def _core(token: str) -> str:
    """A token without the marks around its letters and digits."""
    return re.sub(r"^[\W_]+|[\W_]+$", "", plain_digits(token_text(token)))


def _own(text: str) -> str:
    """The judge's own words with plain digits, and blanks for the underscores of Markdown; all keeps its place."""
    return plain_digits(own_words(text)).replace("_", " ")


def _numbers(own: str, low: float, high: float) -> list[Found]:
    """All numbers of a text that may be its grade."""
    items = list(patterns.LIST_ITEM.finditer(own))
    listed = {item.start(1) for item in items} if len({item[1] for item in items}) > 1 else set()
    matches = [match for match in patterns.NUMBER.finditer(own) if match.start() not in listed]
    numbers: list[Found] = []
    end = 0
    for index, match in enumerate(matches):
        if match.start() < end:
            continue
        end = match.end()
        value = _value(match[0])
        problem = ""
        rest = own[end:]
        between = patterns.BETWEEN.match(rest)
        following = matches[index + 1] if index + 1 < len(matches) else None
        if between and following and following.start() == end + between.end():
            is_choice = not re.search(r"/|\band\b|\bund\b", between[0]) or own[
                : match.start()
            ].lower().rstrip().endswith("between")
            if is_choice:
                end = following.end()
                if {value, _value(following[0])} == {float(low), float(high)}:
                    continue
                numbers.append(Found(match.start(), end, match[0], value, "the answer gives a range"))
                continue
        if out_of := patterns.OUT_OF.match(rest):
            end += out_of.end()
            if _value(out_of[1]) != high:
                if patterns.COUNT.match(rest):
                    continue
                problem = f"the grade must be out of {high:g}"
        elif (percent := patterns.PERCENT.match(rest)) and high != 100:
            end += percent.end()
            problem = f"the grade must be out of {high:g}"
        if math.isnan(value):
            problem = "the answer holds a number that cannot be read"
        elif not out_of and _is_count(own, match, patterns.AFTER_GRADE):
            problem = "count"
        numbers.append(Found(match.start(), match.end(), match[0], value, problem))
    return numbers


def _is_count(own: str, match: re.Match[str], allowed: re.Pattern[str]) -> bool:
    """Whether a word in small letters follows, which the answer belongs to: "3 dogs", "no errors", "A dog"."""
    following = re.compile(r"[*_]*\s+(?=[^\W\d_])").match(own, match.end())
    if not following or "\n" in following[0]:
        return False
    return own[following.end()].islower() and not allowed.match(own, following.end())


def _value(text: str) -> float:
    """A number as it is written; NaN for what is none, such as 1.2.3."""
    text = text.replace("\u2212", "-")
    sign = -1.0 if text.startswith("-") else 1.0
    text = text.lstrip("-")
    if patterns.THOUSANDS.fullmatch(text):
        return sign * float(text.replace(",", ""))
    if patterns.DECIMALS.fullmatch(text):
        return sign * float(text.replace(",", "."))
    return math.nan


def _words(own: str, words: Sequence[str]) -> list[Found]:
    """All words of a text that may be its answer."""
    by_fold = {word.casefold(): word for word in words}
    pattern = re.compile(rf"(?<![^\W_])(?:{'|'.join(map(re.escape, words))})(?![^\W_]|['\u2019]\w)", re.I)
    matches = list(pattern.finditer(own))
    answers: list[Found] = []
    end = 0
    for index, match in enumerate(matches):
        word = by_fold[match[0].casefold()]
        if match.start() < end:
            continue
        end = match.end()
        if len(word) == 1 and match[0] != word and not _is_marked(own, match):
            continue
        between = patterns.BETWEEN.match(own, end)
        following = matches[index + 1] if index + 1 < len(matches) else None
        if between and following and following.start() == between.end():
            end = following.end()
            if _is_labelled(own, match.start()):
                answers.append(Found(match.start(), end, word, problem="the answer gives two"))
            continue
        if _is_count(own, match, patterns.AFTER_WORD):
            answers.append(Found(match.start(), end, word, problem="count"))
        else:
            answers.append(Found(match.start(), end, word))
    return answers


def _is_marked(own: str, match: re.Match[str]) -> bool:
    """Whether a small letter is meant as a choice: alone on its line, in brackets, or after a label."""
    line = own[own.rfind("\n", 0, match.start()) + 1 :].split("\n", 1)[0]
    around = own[match.start() - 1 : match.start()] + own[match.end() : match.end() + 1]
    is_alone = re.sub(r"[\W_]", "", line) == match[0]
    return is_alone or around in ("()", "[]", "**") or _is_labelled(own, match.start())


def _chosen(own: str, candidates: list[Found]) -> Found | str | None:
    """The answer among those that may be it, why there is none, or None where there is nothing."""
    ways: list[Callable[[str, Found], bool]] = [
        lambda own, found: bool(patterns.BOXED.search(_before(own, found.start))),
        lambda own, found: bool(patterns.FINAL.search(_before(own, found.start))),
        lambda own, found: _is_labelled(own, found.start),
    ]
    for way in ways:
        if some := [replace(found, problem=_unless_count(found)) for found in candidates if way(own, found)]:
            leading = [] if way is not ways[2] else _bare_leading(own, candidates)
            return _agreed([*some, *leading])
    rest = [found for found in candidates if found.problem != "count"]
    opening = patterns.OPENING.match(own)
    first = [found for found in rest if opening and found.start == opening.end()] or _bare_leading(own, rest)
    last = [found for found in rest if _is_alone_at_end(own, found)]
    return _agreed(first + last or rest)


def _unless_count(found: Found) -> str:
    return "" if found.problem == "count" else found.problem


def _bare_leading(own: str, candidates: list[Found]) -> list[Found]:
    """The answer at the very beginning of a reply, after marks alone."""
    return [
        found
        for found in candidates
        if found.problem != "count" and not re.search(r"\w", own[: found.start].replace("_", ""))
    ]


def _agreed(candidates: list[Found]) -> Found | str | None:
    if not candidates:
        return None
    meant = {found.problem or (found.value if not math.isnan(found.value) else found.text) for found in candidates}
    if len(meant) > 1:
        return "the answer gives several different answers"
    return candidates[0]


def _before(own: str, start: int) -> str:
    """What stands before an answer, as far back as its label may stand."""
    return own[max(0, start - _LABEL_REACH) : start]


def _is_labelled(own: str, start: int) -> bool:
    label = patterns.LABELLED.search(_before(own, start))
    return label is not None and not patterns.NO_LABEL.search(label["between"])


def _is_alone_at_end(own: str, found: Found) -> bool:
    """Whether nothing but marks and perhaps a label stands on the last line beside an answer."""
    lines = own.rstrip()
    line_start = lines.rfind("\n", 0, found.start) + 1
    return not re.search(r"\w", lines[found.end :]) and not re.search(r"\w", own[line_start : found.start])


def _shown(text: str) -> str:
    return f"{text.strip()!r:.120}"
