"""Captions in tokens of open_clip's tokenizer: their length, and where two of them first differ."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reward.backbones.clip import ClipTokenizer

CLIP_TOKENS = 77  # positions of OpenAI's CLIP; counted from the start token as number 0, it never reads token 77


def first_different_token(correct: str, incorrect: str) -> int | None:
    """Number of the first token of open_clip's tokenizer in which two captions differ; the start token is number 0.

    None if they have the same tokens: the tokenizer ignores case and repeated blanks.

    Example:
        >>> first_different_token("A red star.", "a blue star."), first_different_token("A star.", "a  star.")
        (2, None)
    """
    first, second = _clip_ids(correct), _clip_ids(incorrect)
    if first == second:
        return None
    for number, (token, counterpart) in enumerate(zip(first, second, strict=False), 1):
        if token != counterpart:
            return number
    return 1 + min(len(first), len(second))


def clip_length(caption: str) -> int:
    """Number of tokens of a caption by open_clip's tokenizer, start token included and end token not.

    Example:
        >>> clip_length("A red star.")
        5
    """
    return 1 + len(_clip_ids(caption))


def _clip_ids(caption: str) -> list[int]:
    return _clip_tokenizer().ids.encode(caption)


@functools.cache
def _clip_tokenizer() -> ClipTokenizer:
    from open_clip.tokenizer import SimpleTokenizer

    from reward.backbones.clip import make_bpe_tokenizer

    return make_bpe_tokenizer(SimpleTokenizer())
