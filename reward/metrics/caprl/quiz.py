"""Multiple-choice questions about an image: how they are checked, read from a file, and shuffled."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any, NamedTuple

from reward.errors import DataError, ImageError
from reward.images import image_key, load_image
from reward.json_files import read_json
from reward.samples import is_blank

__all__ = ["LETTERS", "Item", "check_questions", "read_questions", "shuffled"]

LETTERS = "ABCDEFGHI"


class Item(NamedTuple):
    """A question with its options in the order in which they are shown, and the place of the right one."""

    question: str
    options: list[str]
    right: int


def check_questions(values: Any) -> list[tuple[str, list[str]]] | str:
    """Questions `{"question": text, "options": [right, wrong, ...]}` on one line each; a string says what is wrong.

    Example:
        >>> check_questions([{"question": "What is\\nred?", "options": ["the star", "the ring"]}])
        [('What is red?', ['the star', 'the ring'])]
    """
    if not isinstance(values, list) or not values:
        return values if isinstance(values, str) else f"there must be a list of questions, got {values!r:.80}"
    questions = []
    for value in values:
        text, options = (value.get("question"), value.get("options")) if isinstance(value, dict) else (None, None)
        texts: list[Any] = [text, *options] if isinstance(options, list) else [None]
        if not all(isinstance(each, str) and not is_blank(each) for each in texts):
            return (
                f'a question must hold "question" and "options", all of them texts, the right one first: {value!r:.120}'
            )
        text, *options = (" ".join(each.split()) for each in texts)
        if not 2 <= len(options) < len(LETTERS) or len(set(map(str.casefold, options))) < len(options):
            return f"a question must have 2 to {len(LETTERS) - 1} different options: {value!r:.120}"
        questions.append((text, options))
    return questions


def read_questions(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads a JSON object {path of an image: questions}, see `check_questions`; relative paths start at the file.

    Returns:
        {content hash of the image: questions}, for the hash of the file's bytes and for that of its pixels.

    Raises:
        DataError: the file, an image or a question cannot be read.
    """
    values = read_json(path)
    if not isinstance(values, dict) or not values:
        raise DataError(f'{os.fspath(path)} must hold a JSON object {{"image.jpg": [questions], ...}}')
    found: dict[str, Any] = {}
    for image, listed in values.items():
        questions, file = check_questions(listed), Path(path).parent / image
        if isinstance(questions, str):
            raise DataError(f"{os.fspath(path)}: {image}: {questions}")
        try:
            found |= dict.fromkeys((image_key(file), image_key(load_image(file))), questions)
        except ImageError as error:
            raise DataError(f"{os.fspath(path)}: {error}") from None
    return found


def shuffled(questions: list[tuple[str, list[str]]], seed: str) -> list[Item]:
    """The questions, each with its options in an order that depends on the seed and the place of the question.

    Example:
        >>> [item] = shuffled([("What is red?", ["star", "ring", "disc"])], "any")
        >>> item.options[item.right]
        'star'
    """
    items = []
    for place, (question, options) in enumerate(questions):
        order = random.Random(f"{seed} {place}").sample(options, len(options))
        items.append(Item(question, order, order.index(options[0])))
    return items
