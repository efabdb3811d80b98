"""Names of the columns that hold captions, images and references, of which help, messages and readers all know."""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple


class RoleNames(NamedTuple):
    """Names of the columns that mean a role.

    Args:
        first: names that are taken in this order, whatever else is there.
        synonyms: taken where there is none of the first; at most one of them may be there.
        common: words that mean the role only where no column has one of the other names; again at most one.
    """

    first: tuple[str, ...]
    synonyms: tuple[str, ...] = ()
    common: tuple[str, ...] = ()


COLUMN_NAMES = {
    "candidate": RoleNames(("candidate",), ("cand", "caption", "prediction", "response", "mt"), ("text", "txt")),
    "candidates": RoleNames(("candidates",), ("cands", "captions")),
    # `images` first: where both are there, TRL shows `images` to the policy; `file_name` is what imagefolder reads
    "image": RoleNames(
        ("images", "image"),
        ("file_name", "image_path", "img"),
        ("photo", "picture", "filename", "image_name", "filepath", "path"),
    ),
    "references": RoleNames(("references",), ("refs",), ("reference", "ref")),
    "question": RoleNames(("question",)),
    # no other name, such as score or label: it may be what a metric says
    "rating": RoleNames((), ("rating", "ratings", "human_score")),
    "rubric": RoleNames(("rubric", "criteria"), ("checklist", "rubrics")),
    "questions": RoleNames(("questions",), ("qa", "qas", "qa_pairs")),
}


def column_names(role: str) -> tuple[str, ...]:
    """All names of a role, in the order in which they are taken; one that is not in the table is its only name."""
    return tuple(chain(*COLUMN_NAMES.get(role, ((role,),))))


def names_in_words(role: str) -> str:
    """All names of a role, for a message."""
    names = column_names(role)
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} or {names[-1]}"
