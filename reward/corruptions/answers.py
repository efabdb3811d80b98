"""What a language model answered to a request for a rewrite: the new caption, or why there is none."""

from __future__ import annotations

import json
import re
from collections import Counter

from reward.corruptions.negatives import comparable
from reward.corruptions.tagging import split_words
from reward.samples import is_blank

__all__ = ["DROPS", "read_answer"]

# Why an answer is no negative, in the order in which it is looked at.
DROPS = ("cut", "empty", "unchanged", "lines", "length", "unlike")

_THOUGHTS = re.compile(r"\A\s*<think>.*?(</think>|\Z)", re.DOTALL)
_FENCE = re.compile(r"\A```\w*\n(.*?)\n?```\Z", re.DOTALL)
_QUOTED = re.compile(r"\A[\"“](.*)[\"”]\Z", re.DOTALL)
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")
_SLACK = 20  # characters by which a short caption may grow or shrink
_LEAST_KEPT = 0.3  # share of the caption's words that must be left


def read_answer(caption: str, answer: str, *, truncated: bool = False) -> tuple[str | None, str]:
    """Reads the rewritten caption out of an answer.

    Thoughts between `<think>` tags and code fences are taken off, then JSON or quotes around the whole. What is left is
    dropped as
    - `cut`: the length limit cut the answer;
    - `empty`: nothing is left;
    - `unchanged`: it is the caption, but for case, white space and quotes: the model found nothing to change;
    - `lines`: it has more lines than the caption, as an answer with an explanation has;
    - `length`: it is less than half or more than twice as long, give or take 20 characters;
    - `unlike`: less than 30 % of the caption's words are left, as in a refusal. Not asked of captions of one word.

    Args:
        caption: the caption that was to be rewritten.
        answer: what the model wrote.
        truncated: whether it was cut.

    Returns:
        (text, "") or (None, reason), the reason being one of `DROPS`.

    Example:
        >>> read_answer("Two red stars.", '"Three red stars."')
        ('Three red stars.', '')
        >>> read_answer("Two red stars.", "two red stars.")
        (None, 'unchanged')
    """
    text = _unwrapped(answer)
    if truncated:
        return None, "cut"
    if is_blank(text):
        return None, "empty"
    if comparable(text) == comparable(caption):
        return None, "unchanged"
    if len(text.strip().splitlines()) > len(caption.strip().splitlines()):
        return None, "lines"
    if not len(caption) / 2 - _SLACK <= len(text) <= 2 * len(caption) + _SLACK:
        return None, "length"
    before, after = _bag(caption), _bag(text)
    if before.total() > 1 and (before & after).total() < _LEAST_KEPT * before.total():
        return None, "unlike"
    return text, ""


def _unwrapped(answer: str) -> str:
    text = _THOUGHTS.sub("", answer, count=1).strip()
    if fenced := _FENCE.match(text):
        text = fenced.group(1).strip()
    if text.startswith('"'):
        try:
            value = json.loads(text, strict=False)
        except ValueError:  # quotes, but no JSON: inner quotes left as they are, for example
            value = None
        if isinstance(value, str):
            return _without_lone_surrogates(value).strip()
    if inner := _QUOTED.match(text):
        text = inner.group(1).strip()
    # The request showed some characters as escapes, and a model that forgets the quotes may still keep those.
    text = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text).replace('\\"', '"')
    return _without_lone_surrogates(text)


def _without_lone_surrogates(text: str) -> str:
    """JSON can hold half an emoji, which no tokenizer takes; such an answer counts as empty."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return ""
    return text


def _bag(text: str) -> Counter[str]:
    return Counter(token.word.casefold() for token in split_words(text) if token.word)
