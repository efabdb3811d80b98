"""Mean and last hidden state of prompts under a causal language model; a shared prefix is computed once."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

__all__ = ["CausalStates", "can_share", "decoder_of", "pad_left", "pad_right", "pool_states", "rows_of"]


def decoder_of(model: nn.Module) -> nn.Module:
    """The network that gives hidden states: `model` without its language-modelling head."""
    return getattr(model, getattr(model, "base_model_prefix", ""), model)


def pad_right(
    rows: Sequence[Sequence[int]], *, device: torch.device | str = "cpu"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids (B, L), int64, filled up with 0 behind, and their mask (B, L), int64, 1 where a token is."""
    return _pad(rows, device, left=False)


def pad_left(rows: Sequence[Sequence[int]], *, device: torch.device | str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    """Ids (B, L), int64, filled up with 0 in front, and their mask (B, L), int64, 1 where a token is."""
    return _pad(rows, device, left=True)


def _pad(rows: Sequence[Sequence[int]], device: Any, *, left: bool) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(len(row) for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    mask = torch.zeros(len(rows), width, dtype=torch.long)
    for index, row in enumerate(rows):
        at = slice(width - len(row), width) if left else slice(0, len(row))
        ids[index, at] = torch.tensor(row, dtype=torch.long)
        mask[index, at] = 1
    return ids.to(device), mask.to(device)


def pool_states(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """[mean of the states ; last state] in float32, shape (B, 2 * d), of right-padded states (B, L, d)."""
    return _joined(_sum(hidden, mask), _last(hidden, mask), mask.sum(1))


def _sum(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    # padded positions may hold anything, even NaN, so they are replaced and not multiplied by 0
    return hidden.float().masked_fill(mask[..., None] == 0, 0).sum(1)


def _last(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    rows = torch.arange(len(hidden), device=hidden.device)
    return hidden[rows, mask.sum(1) - 1].float()


def _joined(total: torch.Tensor, last: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    return torch.cat([total / count[:, None], last], dim=1)


class CausalStates:
    """Runs a causal LM over (prefix, suffix) pairs, each distinct prefix once.

    The states of a prefix do not depend on what follows, so its keys and values are computed once and given to every
    suffix: the same numbers up to rounding. Prefixes of several groups run together, padded on the left; suffixes
    are padded on the right.

    Args:
        decoder: a transformers decoder without head; see `decoder_of`. It must be causal.
    """

    def __init__(self, decoder: nn.Module) -> None:
        self.decoder = decoder
        parameters = inspect.signature(decoder.forward).parameters
        # Without position ids, padding on the left would shift positions; without a cache, nothing can be shared.
        self.shares_prefixes = "position_ids" in parameters and "past_key_values" in parameters

    def encode(
        self,
        pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
        *,
        token_budget: int,
        max_rows: int | None = None,
    ) -> torch.Tensor:
        """Encodes each prefix + suffix as one prompt.

        Args:
            pairs: token ids; each suffix has at least one token.
            token_budget: most tokens of a forward pass, counting padding and, for suffixes, their prefixes.
            max_rows: most prompts of a forward pass.

        Returns:
            [mean of all M states ; state M], float32, shape (len(pairs), 2 * d), in the order of `pairs`.
        """
        from reward.scoring.batching import token_budget_batches

        groups: dict[tuple[int, ...], list[int]] = {}
        for index, (prefix, _) in enumerate(pairs):
            groups.setdefault(tuple(prefix), []).append(index)
        results: dict[int, torch.Tensor] = {}
        shared = [prefix for prefix in groups if prefix and self.shares_prefixes]
        for wave in token_budget_batches([len(prefix) for prefix in shared], token_budget, max_rows):
            prefixes = [shared[index] for index in wave]
            if not self._encode_wave(pairs, prefixes, groups, results, token_budget, max_rows):
                self.shares_prefixes = False
                break
        rest = [index for index in range(len(pairs)) if index not in results]
        whole = [[*pairs[index][0], *pairs[index][1]] for index in rest]
        for batch in token_budget_batches([len(row) for row in whole], token_budget, max_rows):
            ids, mask = pad_right([whole[item] for item in batch], device=self._device)
            hidden = self.decoder(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
            self._keep(results, [rest[item] for item in batch], pool_states(hidden, mask))
        return torch.stack([results[index] for index in range(len(pairs))])

    @property
    def _device(self) -> torch.device:
        return next(self.decoder.parameters()).device

    def _encode_wave(
        self,
        pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
        prefixes: list[tuple[int, ...]],
        groups: dict[tuple[int, ...], list[int]],
        results: dict[int, torch.Tensor],
        token_budget: int,
        max_rows: int | None,
    ) -> bool:
        """Encodes every prompt that starts with one of `prefixes`; False if the model's cache cannot be shared."""
        from reward.scoring.batching import token_budget_batches

        ids, prefix_mask = pad_left(prefixes, device=self._device)
        positions = (prefix_mask.cumsum(1) - 1).clamp(min=0)
        output = self.decoder(input_ids=ids, attention_mask=prefix_mask, position_ids=positions, use_cache=True)
        cache = getattr(output, "past_key_values", None)
        if not can_share(cache):
            return False
        prefix_sum = _sum(output.last_hidden_state, prefix_mask)
        members = [(row, index) for row, prefix in enumerate(prefixes) for index in groups[prefix]]
        lengths = [ids.shape[1] + len(pairs[index][1]) for _, index in members]
        for batch in token_budget_batches(lengths, token_budget, max_rows):
            rows = torch.tensor([members[item][0] for item in batch], device=self._device)
            indices = [members[item][1] for item in batch]
            suffix_ids, suffix_mask = pad_right([pairs[index][1] for index in indices], device=self._device)
            before = prefix_mask[rows]
            start = before.sum(1, keepdim=True)
            hidden = self.decoder(
                input_ids=suffix_ids,
                attention_mask=torch.cat([before, suffix_mask], dim=1),
                # padding repeats the last position: past it a learned table of positions might end
                position_ids=start
                + torch.minimum(
                    torch.arange(suffix_ids.shape[1], device=self._device), suffix_mask.sum(1, keepdim=True) - 1
                ),
                past_key_values=rows_of(cache, rows),
                use_cache=True,
            ).last_hidden_state
            total = prefix_sum[rows] + _sum(hidden, suffix_mask)
            count = start.squeeze(1) + suffix_mask.sum(1)
            self._keep(results, indices, _joined(total, _last(hidden, suffix_mask), count))
        return True

    @staticmethod
    def _keep(results: dict[int, torch.Tensor], indices: Sequence[int], states: torch.Tensor) -> None:
        results.update(zip(indices, states, strict=True))


def can_share(cache: Any) -> bool:
    """Whether a model's cache can be given to several continuations and holds every token it read."""
    from transformers.cache_utils import DynamicCache, DynamicLayer

    # Sliding layers drop what is out of the window, padding included; recurrent states cannot skip padding.
    return isinstance(cache, DynamicCache) and all(type(layer) is DynamicLayer for layer in cache.layers)


def rows_of(cache: Any, rows: torch.Tensor) -> Any:
    """A cache of the chosen rows, which can grow without changing `cache`."""
    chosen = copy.copy(cache)
    chosen.layers = [copy.copy(layer) for layer in cache.layers]
    chosen.batch_select_indices(rows)
    return chosen
