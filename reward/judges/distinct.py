"""Image hashes of many questions, each object read once."""

from __future__ import annotations

from collections.abc import Sequence

from reward.errors import ImageError
from reward.images import image_key
from reward.judges.base import Question

__all__ = ["image_keys"]


def image_keys(questions: Sequence[Question]) -> tuple[list[str | None], dict[int, str]]:
    """Content hash of each question's image, None without; and {row: reason} of images that cannot be read.

    Example:
        >>> image_keys([Question("Is this English?")])
        ([None], {})
    """
    keys: list[str | None] = [None] * len(questions)
    failures: dict[int, str] = {}
    known: dict[int, str] = {}  # by object: the members of a group often carry one and the same
    for row, question in enumerate(questions):
        if question.image is None:
            continue
        try:
            keys[row] = known.get(id(question.image)) or image_key(question.image)
        except ImageError as error:
            failures[row] = str(error)
        else:
            known[id(question.image)] = keys[row]  # type: ignore[assignment]
    return keys, failures
