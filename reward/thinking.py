"""Cuts the reasoning of thinking models from all that a policy or captioner wrote: it is no part of a caption."""

from __future__ import annotations

import re

__all__ = ["without_thinking"]


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
    shown = re.sub(r"<think>.*?</think>", "", text, flags=re.DOTALL)
    return shown.rpartition("</think>")[2].partition("<think>")[0].strip()
