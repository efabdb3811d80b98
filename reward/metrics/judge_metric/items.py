"""Reads the cells of a row that hold criteria, or questions with their right answers, in the forms that people have."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from string import ascii_uppercase
from typing import Any, NamedTuple

from reward.data.cells import is_list, missing_to_none, parse_list, to_list
from reward.data.samples import check_encodable, is_blank
from reward.errors import InvalidSampleError

_TEXT = ("criterion", "text", "description", "requirement", "question", "title")  # the first that is there counts
_WEIGHT = ("weight", "points")
_CHOICES = ("choices", "options")
_BULLET = re.compile(r"^\s*(?:[-*\u2022]|\(?\d{1,3}[.)])\s+")
_LETTERED = re.compile(r"^\s*\(?([A-Z])[.):]\s", re.MULTILINE)
_FORMS = {
    "rubric": 'write ["It names the dog.", ...], or [{"criterion": "It names the dog.", "weight": 2}, ...]',
    "questions": 'write [{"question": "What runs?", "answer": "a dog"}, ...], with "choices": [...] if there are any',
}


class Item(NamedTuple):
    """A criterion, or a question: `answer` is the right letter where there are choices, else the right words.

    `letters` are those of the choices; None for a question without.
    """

    text: str
    weight: float = 1.0
    answer: str = ""
    letters: str | None = None


def read_rubric(cell: Any) -> tuple[Item, ...]:
    """The criteria in a cell: texts, pairs of text and weight, dicts, {criterion: weight}, or lines of one text.

    Raises:
        InvalidSampleError: none of these, or no criterion has a weight above 0.

    Example:
        >>> read_rubric([{"title": "Dog", "description": "It names the dog.", "weight": 2}])[0].text
        'It names the dog.'
        >>> [item.text for item in read_rubric("- It names the dog.\\n- It is short.")]
        ['It names the dog.', 'It is short.']
    """
    items = []
    for place, value in enumerate(_values(cell, "rubric")):
        if is_list(value) and len(pair := to_list(value, "criterion")) == 2:
            value = {"criterion": pair[0], "weight": pair[1]}
        fields = value if isinstance(value, Mapping) else {"criterion": value}
        items.append(Item(_text(fields, place, "rubric"), _weight(fields, place, "rubric")))
    return _weighed(items, "rubric")


def read_questions(cell: Any) -> tuple[Item, ...]:
    """The questions in a cell: dicts with `question` and `answer`, perhaps `choices` and `weight`; {question: answer}.

    The answer to a question with choices is a letter, the text of a choice, or its place from 0. Yes and No are choices
    by themselves, and so are lines of the question that begin with `A.`, `B.`, ... if the answer is a letter.

    Raises:
        InvalidSampleError: none of these.

    Example:
        >>> read_questions([{"question": "What runs?", "answer": "dog", "choices": ["cat", "dog"]}])[0]
        Item(text='What runs?\\nA. cat\\nB. dog', weight=1.0, answer='B', letters='AB')
    """
    items = []
    for place, fields in enumerate(_values(cell, "questions")):
        if not isinstance(fields, Mapping):
            raise _wrong("questions", place, f"is {fields!r:.60}")
        item = _question(_text(fields, place, "questions"), fields, place)
        items.append(item._replace(weight=_weight(fields, place, "questions")))
    return _weighed(items, "questions")


def weighted_share(items: tuple[Item, ...], met: list[float]) -> float:
    """Weights of what is met over all weights above 0, from 0 to 1; a negative weight is of what must not be met.

    Example:
        >>> weighted_share((Item("a", 3.0), Item("b", 1.0), Item("c", -2.0)), [1.0, 0.5, 0.25])
        0.75
    """
    gained = math.fsum(item.weight * each for item, each in zip(items, met, strict=True))
    return min(max(gained / math.fsum(max(item.weight, 0.0) for item in items), 0.0), 1.0)


def _values(cell: Any, name: str) -> list[Any]:
    value = parse_list(missing_to_none(cell))
    if value is None:
        raise InvalidSampleError(f"the row has no {name}; {_FORMS[name]}")
    if isinstance(value, Mapping):
        first = next(iter(value.values()), None)
        if len(value) == 1 and (is_list(first) or isinstance(first, Mapping)):
            return _values(first, name)
        if texts := [value[key] for key in _TEXT if key in value]:
            if not is_list(texts[0]):
                return [value]
            columns = {key: to_list(each, name) for key, each in value.items() if is_list(each)}
            return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]  # `datasets`
        keys = ("question", "answer") if name == "questions" else ("criterion", "weight")
        return [dict(zip(keys, pair, strict=True)) for pair in value.items()]
    if isinstance(value, str) and name == "rubric":
        return [_BULLET.sub("", line) for line in value.splitlines() if not is_blank(line)]
    if not is_list(value):
        raise InvalidSampleError(f"the row's {name} must be a list, got {value!r:.60}; {_FORMS[name]}")
    return to_list(value, name)


def _first(fields: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((fields[name] for name in names if missing_to_none(fields.get(name)) is not None), None)


def _text(fields: Mapping[str, Any], place: int, name: str) -> str:
    text = _first(fields, _TEXT)
    if not isinstance(text, str) or is_blank(text):
        raise _wrong(name, place, f"has no text: {dict(fields)!r:.60}")
    check_encodable(text, name)
    return text.strip()


def _weight(fields: Mapping[str, Any], place: int, name: str) -> float:
    value = _first(fields, _WEIGHT)
    try:
        weight = 1.0 if value is None else float(value)
        if not math.isfinite(weight) or isinstance(value, bool):
            raise ValueError
    except (TypeError, ValueError):
        raise _wrong(name, place, f"has the weight {value!r:.40}, which is no number") from None
    return weight


def _question(text: str, fields: Mapping[str, Any], place: int) -> Item:
    answer = missing_to_none(fields.get("answer"))
    choices = _first(fields, _CHOICES)
    if isinstance(answer, bool):
        answer = "Yes" if answer else "No"
    if answer is None or is_blank(str(answer)):
        raise _wrong("questions", place, f"has no answer: {dict(fields)!r:.60}")
    told = str(answer).strip()
    if isinstance(choices, Mapping):  # by letter
        told, choices = str(choices.get(told, told)), list(choices.values())
    if choices is None and told.casefold().rstrip(".") in ("yes", "no"):
        told, choices = told.rstrip("."), ["Yes", "No"]
    if choices is None:
        letters = "".join(_LETTERED.findall(text))
        return Item(text, answer=told, letters=letters if told in [*letters] else None)
    texts = [str(choice).strip() for choice in to_list(choices, "choices")]
    folded = [choice.casefold() for choice in texts]
    letters = ascii_uppercase[: len(texts)]
    if type(answer) is int and 0 <= answer < len(texts) and told not in texts:
        told = texts[answer]
    at = folded.index(told.casefold()) if told.casefold() in folded else letters.find(told) if len(told) == 1 else -1
    if at < 0 or len(texts) >= len(ascii_uppercase):
        raise _wrong("questions", place, f"has the answer {told!r:.40}, which is none of its choices")
    lines = [f"{letter}. {choice}" for letter, choice in zip(letters, texts, strict=True)]
    return Item("\n".join([text, *lines]), answer=letters[at], letters=letters)


def _weighed(items: list[Item], name: str) -> tuple[Item, ...]:
    if not any(item.weight > 0 for item in items):
        raise InvalidSampleError(f"the row's {name} holds nothing with a weight above 0; {_FORMS[name]}")
    return tuple(items)


def _wrong(name: str, place: int, problem: str) -> InvalidSampleError:
    return InvalidSampleError(f"the row's {name}: item {place + 1} {problem}; {_FORMS[name]}")
