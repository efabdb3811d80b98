"""Trains a small byte-level tokenizer, for networks that are trained from scratch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from reward.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, START, END = "<pad>", "<start>", "<end>"


def make_tokenizer(texts: Sequence[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Trains a byte-level BPE tokenizer, which can encode any text. The end token has the highest id.

    Args:
        texts: captions to learn from.
        vocab_size: largest number of tokens, control tokens included.

    Example:
        >>> tokenizer = make_tokenizer(["a red star", "a red ring"], 300)
        >>> tokenizer.decode(tokenizer("a red ring")["input_ids"])
        'a red ring'
        >>> tokenizer.convert_tokens_to_ids("<end>") == len(tokenizer) - 1
        True
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    if vocab_size < 300:
        raise ConfigError(f"tokenizer vocab_size must be at least 300, got {vocab_size}: the bytes alone take 256")
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - 1,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[PAD, START],
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    # Added last: open_clip pools at the highest id.
    backend.add_special_tokens([END])
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token=PAD, bos_token=START, eos_token=END)
