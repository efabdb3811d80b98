"""Cuts the reasoning of thinking models from all that a policy or captioner wrote: it is no part of a caption."""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["blank_thinking", "blanks", "without_thinking"]


def without_thinking(text: str) -> str:
    """The text without its reasoning, as thinking models write it: `<think>...</think>`.

    Where the chat template has opened the reasoning already, all before `</think>` is reasoning; where the text ended
    while the model was thinking, all after `<think>` is. Other texts stay as they are.

    Example:
        >>> without_thinking("<think>Is it red?</think>\\nA red star."), without_thinking("Red.</think>A red star.")
        ('A red star.', 'A red star.')
    """
    if "<think>" not in text and "</think>" not in text:
        return text
    return _replaced(text, lambda _: "").strip()


def blank_thinking(text: str) -> str:
    """A text with blanks in place of its reasoning, by the rule of `without_thinking`; all else keeps its place.

    Example:
        >>> blank_thinking("<think>0.3?</think>0.8")
        '                   0.8'
    """
    return _replaced(text, blanks)


def blanks(text: str) -> str:
    """As many blanks as a text has characters; line breaks stay."""
    return re.sub(r"[^\n]", " ", text)


def _replaced(text: str, put: Callable[[str], str]) -> str:
    text = re.sub(r"<think>.*?</think>", lambda found: put(found[0]), text, flags=re.DOTALL)
    thought, mark, text_after = text.rpartition("</think>")
    text = put(thought + mark) + text_after
    shown, mark, thought = text.partition("<think>")
    return shown + put(mark + thought)
