"""R2C: the language-model branch, which reads references and candidate under the rubric of one aspect at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from reward.backbones.hidden_states import CausalStates, decoder_of, pool_states
from reward.backbones.plain_text import PlainTextEncoder
from reward.metrics.vela.config import LoraSettings, TextConfig
from reward.metrics.vela.prompts import REFERENCE_MARK, REFERENCE_SEPARATOR, PromptLayout

__all__ = ["PromptTokenizer", "PromptTokens", "TextBranch", "add_lora"]


_POSITION_TABLES = ("wpe", "embed_positions", "position_embeddings")  # GPT-2, OPT, and others without rotation


class PromptTokens(NamedTuple):
    """One prompt: the ids before the candidate, the candidate's, those after it, and whether any text was cut."""

    prefix: list[int]
    candidate: list[int]
    tail: list[int]
    truncated: bool


_FEWEST_TOKENS = 8  # of a reference: less of it says nothing


class PromptTokenizer:
    """Turns captions into prompts.

    Args:
        tokenizer: a `transformers` tokenizer.
        config: prompts and room.

    Raises:
        ValueError: a rubric leaves no room for a reference in `max_prefix_tokens`, or nothing follows the candidate.
    """

    def __init__(self, tokenizer: Any, config: TextConfig) -> None:
        self.tokenizer, self.config = tokenizer, config
        self._plain = PlainTextEncoder(tokenizer)
        framed = tokenizer if config.chat_template else None
        self._mark, self._separator = self._parsed(REFERENCE_MARK), self._parsed(REFERENCE_SEPARATOR)
        self._own: dict[tuple[str, bool], tuple[list[int], ...]] = {}
        for aspect, prompt in config.prompts.items():
            for with_references in (False, True):
                layout = PromptLayout.of(prompt, with_references=with_references, tokenizer=framed)
                parts = tuple(self._parsed(part) for part in (layout.start or "", layout.middle, layout.tail))
                self._own[aspect, with_references] = parts
                self._check(aspect, parts, len(self._mark) + _FEWEST_TOKENS if with_references else 0)

    def _check(self, aspect: str, parts: tuple[list[int], ...], smallest_reference: int) -> None:
        start, middle, tail = parts
        if not tail:
            raise ValueError(f"the prompt of {aspect!r} has nothing after the candidate: it needs a cue")
        needed = len(start) + len(middle) + smallest_reference
        if needed > self.config.max_prefix_tokens:
            raise ValueError(
                f"the rubric of {aspect!r} and the smallest piece of a reference take {needed} tokens, more than "
                f"max_prefix_tokens={self.config.max_prefix_tokens}"
            )

    def _parsed(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    def prefix(self, references: Sequence[str], aspect: str) -> tuple[list[int], bool]:
        """Ids of everything before the candidate, and whether a reference was cut.

        References that do not fit are cut at their ends, the longest first. If that would leave a reference with
        fewer than 8 tokens, the last ones are left out instead.
        """
        start, middle, _ = self._own[aspect, bool(references)]
        room = self.config.max_prefix_tokens - len(start) - len(middle)
        ids, cut = self._references(tuple(references), room)
        return [*start, *ids, *middle], cut

    def _references(self, references: tuple[str, ...], room: int) -> tuple[list[int], bool]:
        if not references:
            return [], False
        texts = [self._plain(text) for text in references]
        marks = len(self._mark) + len(self._separator)
        room += len(self._separator)  # which the first reference does without
        cut = sum(len(ids) + marks for ids in texts) > room
        if cut:
            texts = texts[: max(1, room // (marks + _FEWEST_TOKENS))]
            longest = _common_limit([len(ids) for ids in texts], room - marks * len(texts))
            texts = [ids[:longest] for ids in texts]
        joined: list[int] = []
        for position, ids in enumerate(texts):
            joined += [*(self._separator if position else ()), *self._mark, *ids]
        return joined, cut

    def candidate(self, text: str) -> tuple[list[int], bool]:
        """Ids of the candidate, and whether its end was cut."""
        ids = self._plain(text)
        room = self.config.max_candidate_tokens
        return ids[:room], len(ids) > room

    def tail(self, aspect: str) -> list[int]:
        """Ids of everything after the candidate."""
        return list(self._own[aspect, True][2])

    def __call__(self, candidate: str, references: Sequence[str], aspect: str) -> PromptTokens:
        """The prompt of one candidate under one aspect's rubric."""
        return self.many([(candidate, references)], [aspect])[0][0]

    def many(self, texts: Sequence[tuple[str, Sequence[str]]], aspects: Sequence[str]) -> list[list[PromptTokens]]:
        """Prompts of (candidate, references) pairs under several aspects; shared texts are tokenised once."""
        candidates: dict[str, tuple[list[int], bool]] = {}
        prefixes: dict[tuple[tuple[str, ...], str], tuple[list[int], bool]] = {}
        rows = []
        for candidate, references in texts:
            references = tuple(references)
            if candidate not in candidates:
                candidates[candidate] = self.candidate(candidate)
            ids, cut = candidates[candidate]
            row = []
            for aspect in aspects:
                if (references, aspect) not in prefixes:
                    prefixes[references, aspect] = self.prefix(references, aspect)
                prefix, prefix_cut = prefixes[references, aspect]
                row.append(PromptTokens(prefix, ids, self.tail(aspect), prefix_cut or cut))
            rows.append(row)
        return rows


def _common_limit(lengths: Sequence[int], room: int) -> int:
    """The longest limit under which all texts, each cut to it, fit into the room."""
    if sum(lengths) <= room:
        return max(lengths, default=0)
    left = room
    for position, length in enumerate(sorted(lengths)):
        share = left // (len(lengths) - position)
        if length > share:
            return share
        left -= length
    raise AssertionError("texts that fit were handled above")


def add_lora(decoder: nn.Module, settings: LoraSettings) -> nn.Module:
    """Puts fresh low-rank adapters (which change nothing yet) into a decoder; all its other weights are frozen.

    The adapters are kept in float32, so that half-precision backbones can be trained.
    """
    from peft import LoraConfig, inject_adapter_in_model
    from peft.tuners.tuners_utils import cast_adapter_dtype

    lora = LoraConfig(
        r=settings.r,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=list(settings.target_modules),
    )
    decoder = inject_adapter_in_model(lora, decoder)
    cast_adapter_dtype(decoder, adapter_name="default")
    return decoder


def _check_room(decoder: nn.Module, prompts: PromptTokenizer) -> None:
    """Refuses prompts longer than a learned table of positions, which would stop a run in its middle."""
    config = prompts.config
    longest = max(len(prompts.tail(aspect)) for aspect in config.prompts)
    needed = config.max_prefix_tokens + config.max_candidate_tokens + longest
    for name, module in decoder.named_modules():
        is_table = isinstance(module, nn.Embedding) and name.rsplit(".", 1)[-1] in _POSITION_TABLES
        if is_table and module.num_embeddings < needed:
            raise ValueError(
                f"the language model has {module.num_embeddings} positions, but max_prefix_tokens="
                f"{config.max_prefix_tokens} and max_candidate_tokens={config.max_candidate_tokens} with {longest} "
                f"tokens after them take {needed}: lower these two"
            )


class TextBranch(nn.Module):
    """g_r2c = [mean of the last hidden states over the whole prompt ; the last token's], size 2 * d.

    Args:
        model: a causal LM of transformers, with or without its head (which is not used).
        tokenizer: its tokenizer.
        config: prompts and room.
    """

    def __init__(self, model: nn.Module, tokenizer: Any, config: TextConfig) -> None:
        super().__init__()
        self.config = config
        self.decoder: Any = decoder_of(model)
        if config.backbone is not None:
            self.decoder.requires_grad_(False)
        if config.lora is not None:
            self.decoder = add_lora(self.decoder, config.lora)
        self.prompts = PromptTokenizer(tokenizer, config)
        _check_room(self.decoder, self.prompts)
        self.size = 2 * self.decoder.config.get_text_config().hidden_size
        self._states = CausalStates(self.decoder)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """One padded batch, differentiable.

        Args:
            input_ids, attention_mask: (B, L), padded on the right.

        Returns:
            g_r2c (B, 2 * d), float32, and the last hidden states (B, L, d).
        """
        hidden = self.decoder(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).last_hidden_state
        return pool_states(hidden, attention_mask), hidden

    def encode(
        self, prompts: Sequence[PromptTokens], *, token_budget: int = 8192, max_rows: int | None = None
    ) -> torch.Tensor:
        """g_r2c (N, 2 * d) of prompts, each distinct prefix computed once; see `CausalStates`."""
        pairs = [(prompt.prefix, [*prompt.candidate, *prompt.tail]) for prompt in prompts]
        return self._states.encode(pairs, token_budget=token_budget, max_rows=max_rows)
