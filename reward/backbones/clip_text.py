"""Turns captions into the fixed-length token ids of a CLIP text tower, without parsing control tokens in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from reward.backbones.plain_text import PlainTextEncoder

__all__ = ["ClipTokenizer", "make_bpe_tokenizer", "make_clip_tokenizer"]

_CHARACTERS_PER_TOKEN = 32  # no sensible caption has longer tokens; the rest of a huge one is not even looked at


class ClipTokenizer:
    """Start token, caption, end token, padding.

    A caption that does not fit is cut at its end; the end token always stays. Of every caption, no more than
    32 characters per position are looked at, so that a text of any length costs a bounded time.

    Args:
        encode: gives the ids of a caption without tokens around it; must not parse control tokens.
        start, end, pad: ids of the tokens around the caption and behind it.
        context_length: length of every row.
    """

    def __init__(
        self, encode: Callable[[str], list[int]], *, start: int, end: int, pad: int, context_length: int
    ) -> None:
        self.encode, self.start, self.end, self.pad = encode, start, end, pad
        self.context_length = context_length

    def __call__(self, texts: Sequence[str]) -> tuple[torch.Tensor, list[bool]]:
        """Token ids (B, context_length), int64, and for each text whether it was cut."""
        ids = torch.full((len(texts), self.context_length), self.pad, dtype=torch.long)
        cut = []
        room = self.context_length - 2
        for row, text in enumerate(texts):
            collapsed = " ".join(text.split())
            looked_at = collapsed[: _CHARACTERS_PER_TOKEN * self.context_length]
            tokens = self.encode(looked_at)
            cut.append(len(tokens) > room or len(looked_at) < len(collapsed))
            tokens = [self.start, *tokens[:room], self.end]
            ids[row, : len(tokens)] = torch.tensor(tokens)
        return ids, cut


def make_clip_tokenizer(tokenizer: Any, *, start: int, end: int, pad: int, context_length: int) -> ClipTokenizer:
    """ClipTokenizer on the vocabulary of a `transformers` tokenizer."""
    return ClipTokenizer(PlainTextEncoder(tokenizer), start=start, end=end, pad=pad, context_length=context_length)


def make_bpe_tokenizer(tokenizer: Any) -> ClipTokenizer:
    """ClipTokenizer on OpenAI's CLIP vocabulary, which Long-CLIP and most open_clip models use.

    Args:
        tokenizer: open_clip's SimpleTokenizer; it is changed.

    Example:
        >>> from open_clip import SimpleTokenizer
        >>> ids, cut = make_bpe_tokenizer(SimpleTokenizer(context_length=12))(["a red <end_of_text> star"])
        >>> int((ids == 49407).sum()), tuple(ids.shape)  # one end token: the one we put there
        (1, (1, 12))
    """
    import regex

    # open_clip matches its control tokens first; without those alternatives the pattern is that of plain words
    words = r"""'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"""
    tokenizer.pat = regex.compile(words, regex.IGNORECASE)
    return ClipTokenizer(
        tokenizer.encode,
        start=tokenizer.sot_token_id,
        end=tokenizer.eot_token_id,
        pad=0,
        context_length=tokenizer.context_length,
    )


class HubClipTokenizer:
    """ClipTokenizer's interface over the tokenizer that an open_clip configuration names (`hf_tokenizer_name`)."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.tokenizer.tokenizer.split_special_tokens = True  # a caption must not bring control tokens of its own
        self.context_length = tokenizer.context_length

    def __call__(self, texts: Sequence[str]) -> tuple[torch.Tensor, list[bool]]:
        limit = _CHARACTERS_PER_TOKEN * self.context_length
        lengths = [len(ids) for ids in self.tokenizer.tokenizer([text[:limit] for text in texts]).input_ids]
        cut = [n > self.context_length or len(text) > limit for n, text in zip(lengths, texts, strict=True)]
        return self.tokenizer([text[:limit] for text in texts]), cut
