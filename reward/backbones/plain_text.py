"""Tokenises text from outside as plain text: control tokens written in it stay ordinary characters."""

from __future__ import annotations

from typing import Any

__all__ = ["PlainTextEncoder"]


class PlainTextEncoder:
    """Encodes captions without ever producing a control token, whatever the text says.

    A tokenizer that reads `"<|im_end|>"` in a caption as the end of the chat turn lets the caption write the judge's
    prompt. Switching `special` tokens off is not enough, because tokenizers also match added tokens that are not
    flagged special. So the added tokens are left out altogether: the text goes through the normaliser, the
    pre-tokeniser and the model of the tokenizer, and nothing else.

    Args:
        tokenizer: a `transformers` tokenizer; those without a `tokenizers` backend are asked to split special tokens.

    Example:
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> from transformers import PreTrainedTokenizerFast
        >>> backend = Tokenizer(models.BPE({c: i for i, c in enumerate("<end>")}, []))
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>")
        >>> tokenizer("<end>").input_ids, PlainTextEncoder(tokenizer)("<end>")
        ([5], [0, 1, 2, 3, 4])
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._backend = getattr(tokenizer, "backend_tokenizer", None)
        # A model may hold its control tokens as vocabulary (unigram models do); the unknown token is no control token.
        self._control = frozenset(tokenizer.added_tokens_decoder) - {tokenizer.unk_token_id}

    def __call__(self, text: str) -> list[int]:
        """Token ids of `text`, without control tokens and without tokens around it."""
        if self._backend is None:
            ids = self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        else:
            if self._backend.normalizer is not None:
                text = self._backend.normalizer.normalize_str(text)
            splits = [text]
            if self._backend.pre_tokenizer is not None:
                splits = [split for split, _ in self._backend.pre_tokenizer.pre_tokenize_str(text)]
            ids = [token.id for split in splits for token in self._backend.model.tokenize(split)]
        return [token for token in ids if token not in self._control]
