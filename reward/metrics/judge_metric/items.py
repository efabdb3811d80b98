"""Criteria, facts, and questions with their right answers, as cells of a data set hold them."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from string import ascii_uppercase
from typing import Any, NamedTuple

from reward.data.cells import is_list, missing_to_none, parse_list, to_list
from reward.data.samples import check_encodable, is_blank
from reward.errors import InvalidSampleError

# Names that a field may have; the first that is there counts.
_TEXT = ("criterion", "fact", "text", "description", "requirement", "question", "title")
_WEIGHT = ("weight", "points")
_CHOICES = ("choices", "options")

BULLET = re.compile(r"^\s*(?:[-*\u2022]|\(?\d{1,3}[.)])\s+")
_LETTERED = re.compile(r"\(?[A-Z][.):]\s")
# A choice that speaks of others: "All of the above", "Both A and C".
_SPEAKS_OF_OTHERS = re.compile(
    r"(?i:\b(?:all|none|both|neither|either|any|some|two) of (?:the|these|them)\b)|\b[A-Z],? (?:and|or|&) [A-Z]\b"
)
# A question that lists its choices itself: "What runs? (A) cat (B) dog".
_LISTS_CHOICES = re.compile(r"(?<!\w)A[.):]\s.*(?<!\w)B[.):]\s", re.DOTALL)
_FORMS = {
    "facts": 'write ["A dog runs.", ...], or [{"fact": "A dog runs.", "weight": 2}, ...]',
    "rubric": 'write ["It names the dog.", ...], or [{"criterion": "It names the dog.", "weight": 2}, ...]',
    "questions": 'write [{"question": "What runs?", "answer": "a dog"}, ...], with "choices": [...] if there are any',
}


class Item(NamedTuple):
    """A criterion, or a question that a caption is to answer.

    Args:
        text: the criterion; or the question without its choices.
        weight: how much it counts; below 0 for what a caption must not do.
        answer: to a question; one of its choices if it has any, else the right words.
        choices: of a question, in the order in which the judge sees them.
    """

    text: str
    weight: float = 1.0
    answer: str = ""
    choices: tuple[str, ...] = ()


def read_rubric(cell: Any) -> tuple[Item, ...]:
    """The criteria in a cell: a list of texts or of dicts with text and weight, or lines of one text.

    Raises:
        InvalidSampleError: none of these, or no criterion has a weight above 0.

    Example:
        >>> read_rubric([{"title": "Dog", "description": "It names the dog.", "weight": 2}])[0].text
        'It names the dog.'
        >>> [item.text for item in read_rubric("- It names the dog.\\n- It is short.")]
        ['It names the dog.', 'It is short.']
    """
    return _read_items(cell, "rubric", _read_criterion)


def read_facts(cell: Any) -> tuple[Item, ...]:
    """The facts in a cell that a caption is to say, in the forms of `read_rubric`.

    Raises:
        InvalidSampleError: none of these, or no fact has a weight above 0.

    Example:
        >>> read_facts(["A dog runs."])[0].text
        'A dog runs.'
    """
    return _read_items(cell, "facts", _read_criterion)


def read_questions(cell: Any) -> tuple[Item, ...]:
    """The questions in a cell: a list of dicts with `question` and `answer`, perhaps `choices` and `weight`.

    The answer to a question with choices is a letter, the text of a choice, or its place from 0. Yes and No are choices
    by themselves.

    Raises:
        InvalidSampleError: none of these.

    Example:
        >>> read_questions([{"question": "What runs?", "answer": "B", "choices": ["cat", "dog"]}])[0]
        Item(text='What runs?', weight=1.0, answer='dog', choices=('cat', 'dog'))
    """
    return _read_items(cell, "questions", _read_question)


def shuffle_choices(item: Item, seed: int) -> Item:
    """A question with its choices in an order that depends on the seed and the texts alone.

    So the right answer stands in no place more often than in another, whatever the order in the data is, and a question
    has one order in every process and file. Choices that speak of others keep theirs, as do those of a question that
    lists them itself.

    Example:
        >>> item = Item("What runs?", answer="dog", choices=("cat", "dog", "fox"))
        >>> shuffle_choices(item, seed=0).choices, shuffle_choices(item, seed=1).choices
        (('dog', 'cat', 'fox'), ('cat', 'fox', 'dog'))
    """
    if _LISTS_CHOICES.search(item.text) or any(map(_SPEAKS_OF_OTHERS.search, item.choices)):
        return item

    def order(choice: str) -> str:
        return hashlib.sha256(f"{seed}\n{item.text}\n{choice}".encode()).hexdigest()

    return item._replace(choices=tuple(sorted(item.choices, key=order)))


def weighted_share(items: Sequence[Item], values: Sequence[float]) -> float:
    """Weights of what is met over all weights above 0, from 0 to 1; a negative weight is of what must not be met.

    Args:
        items: criteria or questions.
        values: how far each is met, from 0 to 1.

    Example:
        >>> weighted_share((Item("a", 3.0), Item("b", 1.0), Item("c", -2.0)), [1.0, 0.5, 0.25])
        0.75
    """
    gained = math.fsum(item.weight * value for item, value in zip(items, values, strict=True))
    total = math.fsum(max(item.weight, 0.0) for item in items)
    return min(max(gained / total, 0.0), 1.0)


def _read_items(cell: Any, name: str, read: Callable[[Any], Item]) -> tuple[Item, ...]:
    """The items in a cell of the column `name`; `read` makes one of an entry, or raises a ValueError."""
    items: list[Item] = []
    for number, entry in enumerate(_entries(cell, name), start=1):
        try:
            items.append(read(entry))
        except ValueError as problem:
            raise InvalidSampleError(f"the row's {name}: item {number} {problem}; {_FORMS[name]}") from None
    if not any(item.weight > 0 for item in items):
        raise InvalidSampleError(f"the row's {name} holds nothing with a weight above 0; {_FORMS[name]}")
    return tuple(items)


def _entries(cell: Any, name: str) -> list[Any]:
    """What a cell holds, an entry an item."""
    value = parse_list(missing_to_none(cell))
    if value is None:
        raise InvalidSampleError(f"the row has no {name}; {_FORMS[name]}")
    if isinstance(value, str) and name != "questions":
        return [BULLET.sub("", line) for line in value.splitlines() if not is_blank(line)]
    if isinstance(value, Mapping) and value and all(map(is_list, value.values())):
        # `datasets` turns a list of dicts into a dict of lists.
        columns = [to_list(column, name) for column in value.values()]
        return [dict(zip(value, row, strict=True)) for row in zip(*columns, strict=True)]
    if not is_list(value):
        raise InvalidSampleError(f"the row's {name} must be a list, got {value!r:.60}; {_FORMS[name]}")
    return to_list(value, name)


def _read_criterion(entry: Any) -> Item:
    fields = entry if isinstance(entry, Mapping) else {"criterion": entry}
    return Item(_text(fields), _weight(fields))


def _read_question(entry: Any) -> Item:
    if not isinstance(entry, Mapping):
        raise ValueError(f"is {entry!r:.60}")
    text = _text(entry)
    value = missing_to_none(entry.get("answer"))
    if isinstance(value, bool):
        value = "Yes" if value else "No"
    if value is None or is_blank(str(value)):
        raise ValueError(f"has no answer: {dict(entry)!r:.60}")
    answer = str(value).strip()
    choices = _first_field(entry, _CHOICES)
    if choices is None and answer.casefold().rstrip(".") in ("yes", "no"):
        choices, answer = ["Yes", "No"], answer.rstrip(".")
    if choices is None and _LISTS_CHOICES.search(text):
        raise ValueError('lists choices in its text: give them in "choices", without letters')
    if choices is None:
        return Item(text, _weight(entry), answer)
    texts = tuple(str(choice).strip() for choice in to_list(choices, "choices"))
    if all(map(_LETTERED.match, texts)):
        raise ValueError(f"has letters before its choices, which are to be left out: {list(texts)!r:.60}")
    return Item(text, _weight(entry), texts[_right_choice(texts, answer, value)], texts)


def _right_choice(choices: Sequence[str], answer: str, value: Any) -> int:
    """Index of the choice that an answer means: by its text or letter, or, for a whole number, by its place from 0."""
    letters = ascii_uppercase[: len(choices)]
    if len(choices) < len(ascii_uppercase):  # one letter is for what cannot be told
        if type(value) is int and 0 <= value < len(choices) and answer not in choices:
            return value
        folded = [choice.casefold() for choice in choices]
        if answer.casefold() in folded:
            return folded.index(answer.casefold())
        if len(answer) == 1 and answer in letters:
            return letters.index(answer)
    raise ValueError(f"has the answer {answer!r:.40}, which is none of its choices")


def _first_field(fields: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """The value of the first of some fields that has one, else None."""
    for name in names:
        if missing_to_none(fields.get(name)) is not None:
            return fields[name]
    return None


def _text(fields: Mapping[str, Any]) -> str:
    text = _first_field(fields, _TEXT)
    if not isinstance(text, str) or is_blank(text):
        raise ValueError(f"has no text: {dict(fields)!r:.60}")
    check_encodable(text, "its text")
    return text.strip()


def _weight(fields: Mapping[str, Any]) -> float:
    value = _first_field(fields, _WEIGHT)
    if value is None:
        return 1.0
    try:
        weight = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        weight = math.nan
    if not math.isfinite(weight):
        raise ValueError(f"has the weight {value!r:.40}, which is no number")
    return weight
