"""Causal language models: captions as token ids, new tokenizers, padded batches, and a model at rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from reward.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, START, END = "<pad>", "<start>", "<end>"  # control tokens of `make_tokenizer`
CHARACTERS_PER_TOKEN = 32  # no sensible caption has longer tokens; the rest of a very long text is not read
_REMEMBERED_TEXTS = 16_384
_REMEMBERED_WORDS = 65_536
_LONGEST_REMEMBERED_WORD = 64  # characters


class Remembered:
    """A function of a text that remembers its results; they are no part of its state, so they are not pickled.

    Args:
        work: the function; nobody may change what it returns, which is never None.
        most: texts that are remembered; with one more, all are forgotten.

    Example:
        >>> length = Remembered(len, 2)
        >>> length("a star"), length("a star")
        (6, 6)
    """

    def __init__(self, work: Callable[[str], Any], most: int = _REMEMBERED_TEXTS) -> None:
        self.work, self.most = work, most
        self._results: dict[str, Any] = {}

    def __call__(self, text: str) -> Any:
        result = self._results.get(text)
        if result is None:
            if len(self._results) >= self.most:
                self._results.clear()
            result = self.work(text)
            self._results[text] = result
        return result

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_results": {}}


class PlainTextEncoder:
    """Tokenises a caption without ever producing a control token, whatever the text says.

    If a tokenizer reads `"<|im_end|>"` in a caption as the end of the chat turn, the caption can rewrite the prompt.
    Switching special tokens off is not enough, because tokenizers also match added tokens that are not marked as
    special. So the text only goes through the tokenizer's normaliser, pre-tokeniser and model, which know none of them.

    Args:
        tokenizer: a `transformers` tokenizer. One without a `tokenizers` backend is told to split special tokens.
        before: put before each text.

    Example:
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> from transformers import PreTrainedTokenizerFast
        >>> backend = Tokenizer(models.BPE({c: i for i, c in enumerate("<end>")}, []))
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>")
        >>> tokenizer("<end>").input_ids, PlainTextEncoder(tokenizer)("<end>")
        ([5], [0, 1, 2, 3, 4])
    """

    def __init__(self, tokenizer: Any, *, before: str = "") -> None:
        self._tokenizer, self._before = tokenizer, before
        self._backend = getattr(tokenizer, "backend_tokenizer", None)
        # Unigram models have control tokens in their vocabulary. The unknown token is not a control token.
        self._control = frozenset(tokenizer.added_tokens_decoder) - {tokenizer.unk_token_id}
        self._words = Remembered(self._ids_of_word, _REMEMBERED_WORDS)

    def __call__(self, text: str) -> list[int]:
        """Token ids of `text`, without control tokens and without tokens around it."""
        text = self._before + text
        ids: list[int] = []
        if self._backend is None:
            ids = self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        else:
            if self._backend.normalizer is not None:
                text = self._backend.normalizer.normalize_str(text)
            words = [(text, None)]
            if self._backend.pre_tokenizer is not None:
                words = self._backend.pre_tokenizer.pre_tokenize_str(text)
            for word, _ in words:
                ids_of_word = self._words if len(word) <= _LONGEST_REMEMBERED_WORD else self._ids_of_word
                ids += ids_of_word(word)
        return [token for token in ids if token not in self._control]

    def _ids_of_word(self, word: str) -> list[int]:
        backend: Any = self._backend
        return [token.id for token in backend.model.tokenize(word)]


class CaptionIds:
    """Token ids of a caption between a start and an end token, and whether it was cut to fit; both are remembered.

    White space is collapsed to single blanks. A caption that is too long is cut at its end, and the end token stays.
    At most 32 characters for each token that fits are read, so the time is bounded for texts of any length.

    Args:
        encode: gives the ids of a text without start and end token; must not parse control tokens.
        start, end: ids of the two tokens.
        most_tokens: most ids of a row, start and end included.

    Example:
        >>> CaptionIds(lambda text: [ord(letter) for letter in text], start=1, end=2, most_tokens=5)("a  red")
        ([1, 97, 32, 114, 2], True)
    """

    def __init__(self, encode: Callable[[str], list[int]], *, start: int, end: int, most_tokens: int) -> None:
        self.encode, self.start, self.end, self.most_tokens = encode, start, end, most_tokens
        self._most_characters = CHARACTERS_PER_TOKEN * most_tokens
        self._rows = Remembered(self._make_row)

    def __call__(self, text: str) -> tuple[list[int], bool]:
        """The ids, which nobody may change, and the flag."""
        make_row = self._rows if len(text) <= self._most_characters else self._make_row
        row: tuple[list[int], bool] = make_row(text)
        return row

    def _make_row(self, text: str) -> tuple[list[int], bool]:
        collapsed = " ".join(text.split())
        ids = self.encode(collapsed[: self._most_characters])
        room = self.most_tokens - 2
        was_cut = len(ids) > room or len(collapsed) > self._most_characters
        return [self.start, *ids[:room], self.end], was_cut


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


def pad_rows(
    rows: Sequence[Sequence[int]], *, side: str = "right", value: int = 0, device: torch.device | str = "cpu"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pads rows of token ids to the longest row.

    Args:
        rows: B rows.
        side: where padding goes, `"left"` or `"right"`.
        value: id of the padding.
        device: of the result.

    Returns:
        Ids (B, L) and mask (B, L), both int64; the mask is 1 where a token is and 0 where padding is.

    Example:
        >>> ids, mask = pad_rows([[5, 6], [7]], side="left")
        >>> ids.tolist(), mask.tolist()
        ([[5, 6], [0, 7]], [[1, 1], [0, 1]])
    """
    if not rows:
        return torch.empty(0, 0, dtype=torch.long), torch.empty(0, 0, dtype=torch.long)
    tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
    ids = pad_sequence(tensors, batch_first=True, padding_value=value, padding_side=side)
    mask = pad_sequence([torch.ones_like(row) for row in tensors], batch_first=True, padding_side=side)
    return ids.to(device), mask.to(device)


def default_token_budget(device: torch.device) -> int:
    """Most tokens of a forward pass: a GPU wants much work at once, since the CPU needs time to start each piece."""
    return 8192 if device.type == "cpu" else 32_768


def check_token_budget(budget: int | None) -> None:
    """A budget of tokens is a whole number of at least 1, or None; called before a network is loaded.

    Example:
        >>> check_token_budget("8192")
        Traceback (most recent call last):
        ...
        reward.errors.ConfigError: token_budget must be a whole number of at least 1, got '8192'
    """
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int) or budget < 1):
        raise ConfigError(f"token_budget must be a whole number of at least 1, got {budget!r}")


def token_budget_batches(lengths: Sequence[int], budget: int, max_items: int | None = None) -> list[list[int]]:
    """Sorts items by length and packs them into batches whose padded size stays within a budget.

    Args:
        lengths: tokens of each item.
        budget: most tokens a batch may have, counting padding; an item longer than that gets a batch of its own.
        max_items: most items of a batch.

    Returns:
        Lists of indices into `lengths`, longest items first: if memory runs out, it does so in the first batch.

    Example:
        >>> token_budget_batches([3, 9, 4, 2], budget=9)
        [[1], [2, 0], [3]]
    """
    batches: list[list[int]] = []
    most_items = 0  # of the last batch, by the length of its first and longest item
    for index in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if not batches or len(batches[-1]) >= most_items:
            batches.append([])
            most_items = budget // max(lengths[index], 1)
            if max_items is not None:
                most_items = min(most_items, max_items)
        batches[-1].append(index)
    return batches


def decoder_of(model: nn.Module) -> nn.Module:
    """The decoder of a language model: `model` without its language-modelling head."""
    return getattr(model, getattr(model, "base_model_prefix", ""), model)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[bool]:
    """Puts a model into eval mode with gradient checkpointing off, and every part back as it was, also after an error.

    A trainer leaves its model in training mode. With gradient checkpointing, layers then work without the cache of
    `generate`: each token is written as if it were the first.

    Args:
        model: any network, also one with adapters. One thread at a time: another that uses the model meanwhile sees
            it change.

    Yields:
        Whether a part was in training mode.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Dropout().eval())
        >>> with evaluating(model) as was_training:
        ...     was_training, model.training
        (True, False)
        >>> model[0].training, model[1].training
        (True, False)
    """
    # `model.modules()` takes ten times as long, which counts in each call of a scorer. This list grows while it is gone
    # through: children follow their parents. A module that two others share comes twice, which does no harm.
    modules = [model]
    training, checkpointed = [], []
    flag = "gradient_checkpointing"  # of modules of transformers; the function that checkpoints stays where it is
    for module in modules:
        if module.training:
            training.append(module)
        # It is read from the class, because a module that lacks an attribute is slow to say so.
        if vars(module).get(flag, getattr(type(module), flag, None)) is True:
            checkpointed.append(module)
        for child in module._modules.values():
            if child is not None:
                modules.append(child)
    try:
        if training:
            model.eval()
        for module in checkpointed:
            module.gradient_checkpointing = False  # type: ignore[assignment]  # nn.Module types it as a module
        yield bool(training)
    finally:
        for module in training:
            module.training = True
        for module in checkpointed:
            module.gradient_checkpointing = True  # type: ignore[assignment]
