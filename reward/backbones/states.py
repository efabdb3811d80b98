"""Hidden states of prompts from a causal language model; what prompts begin with, or end in, is computed once."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from reward.backbones.language import default_token_budget, pad_rows, token_budget_batches


def pool_states(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """[mean of the states ; last state] in float32, shape (B, 2 * d), of right-padded states (B, L, d)."""
    return _joined(_sum(hidden, mask), _last(hidden, mask), mask.sum(1))


def _sum(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    # padded positions may hold NaN, so they are replaced, not multiplied by 0
    return hidden.float().masked_fill(mask[..., None] == 0, 0).sum(1)


def _last(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    rows = torch.arange(len(hidden), device=hidden.device)
    return hidden[rows, mask.sum(1) - 1].float()


def _joined(total: torch.Tensor, last: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    return torch.cat([total / count[:, None], last], dim=1)


class BranchedRows(NamedTuple):
    """Rows of tokens that end in several ways: a trunk, and branches that see the trunk and not each other.

    Args:
        ids: (B, L) int64, trunk and branches one after the other, padded on the right.
        positions: (B, L) int64; each branch goes on where the trunk ends.
        branch: (B, L) int64, 0 in the trunk, k in branch k, -1 in the padding.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    branch: torch.Tensor

    @classmethod
    def of(
        cls, trunks: Sequence[Sequence[int]], branches: Sequence[Sequence[int]], *, device: torch.device | str = "cpu"
    ) -> BranchedRows:
        """B trunks, all with the same branches; none is empty.

        Example:
            >>> rows = BranchedRows.of([[5, 6]], [[7], [8, 9]])
            >>> rows.ids.tolist(), rows.positions.tolist(), rows.branch.tolist()
            ([[5, 6, 7, 8, 9]], [[0, 1, 2, 2, 3]], [[0, 0, 1, 2, 2]])
        """
        ids = [[*trunk, *(token for branch in branches for token in branch)] for trunk in trunks]
        positions = [
            [*range(len(trunk)), *(len(trunk) + place for branch in branches for place in range(len(branch)))]
            for trunk in trunks
        ]
        numbers = [number for number, branch in enumerate(branches, 1) for _ in branch]
        marks = [[*[0] * len(trunk), *numbers] for trunk in trunks]
        return cls(
            pad_rows(ids, device=device)[0],
            pad_rows(positions, device=device)[0],
            pad_rows(marks, value=-1, device=device)[0],
        )

    def attention_mask(self, dtype: torch.dtype) -> torch.Tensor:
        """What each token sees, (B, 1, L, L), added to the attention's logits: 0 or the lowest number."""
        length = self.ids.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=self.ids.device).tril()
        key, query = self.branch[:, None, :], self.branch[:, :, None]
        seen = causal & ((key == 0) | (key == query))  # padding sees itself, so that no row is empty
        return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill(~seen, torch.finfo(dtype).min)[
            :, None
        ]

    def pool(self, hidden: torch.Tensor, branches: int, total: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        """[mean of the states ; last state] of trunk and branch together, float32, (B, branches, 2 * d).

        Args:
            hidden: states (B, L, d).
            branches: how many there are; to read it from `branch` would make the CPU wait for a GPU.
            total, count: sum (B, d) and number (B,) of the states before the trunk.
        """
        pooled, rows = [], torch.arange(len(hidden), device=hidden.device)
        for number in range(1, branches + 1):
            mine = self.branch == number
            mask = ((self.branch == 0) | mine).long()
            last = hidden[rows, mine.long().cumsum(1).argmax(1)].float()
            pooled.append(_joined(_sum(hidden, mask) + total, last, mask.sum(1) + count))
        return torch.stack(pooled, dim=1)


class CausalStates:
    """Encodes (prefix, suffix) pairs with a causal language model, each distinct prefix once.

    The states of a prefix do not depend on what follows. So its keys and values are computed once and shared by its
    suffixes, with equal results up to rounding. Prefixes are batched with padding on the left, suffixes with padding on
    the right.

    Args:
        decoder: a causal decoder of transformers without head; see `decoder_of`.
    """

    def __init__(self, decoder: nn.Module) -> None:
        self.decoder = decoder
        parameters = inspect.signature(decoder.forward).parameters
        # Without position ids, left padding would shift positions. Without a cache, nothing can be shared.
        self.shares_prefixes = "position_ids" in parameters and "past_key_values" in parameters
        # A mask of its own for each row is what flash attention does not take.
        attention = getattr(getattr(decoder, "config", None), "_attn_implementation", None)
        self.shares_suffixes = self.shares_prefixes and attention in ("sdpa", "eager")

    def encode(
        self,
        pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
        *,
        branches: Sequence[Sequence[int]] = (),
        token_budget: int | None = None,
        max_rows: int | None = None,
    ) -> torch.Tensor:
        """Encodes each prefix + suffix as one prompt, or with branches each prefix + suffix + branch.

        Args:
            pairs: token ids; each suffix has at least one token.
            branches: token ids of the K ends that each pair has. Prefix and suffix are then computed once for all.
            token_budget: most tokens of a forward pass, counting padding and, for suffixes, their prefixes; None takes
                `default_token_budget`.
            max_rows: most prompts of a forward pass.

        Returns:
            [mean of all M states ; state M], float32, in the order of `pairs`: shape (len(pairs), 2 * d), or with
            branches (len(pairs), K, 2 * d).
        """
        token_budget = default_token_budget(self._device) if token_budget is None else token_budget
        groups: dict[tuple[int, ...], list[int]] = {}
        for index, (prefix, _) in enumerate(pairs):
            groups.setdefault(tuple(prefix), []).append(index)
        results: dict[int, torch.Tensor] = {}
        # a prefix of one pair is read together with its suffix, which takes the CPU half the time of two passes
        fewest, shares = (1, self.shares_suffixes) if branches else (2, self.shares_prefixes)
        shared = [prefix for prefix, own in groups.items() if prefix and len(own) >= fewest and shares]
        for wave in token_budget_batches([len(prefix) for prefix in shared], token_budget, max_rows):
            prefixes = [shared[index] for index in wave]
            if not self._encode_wave(pairs, branches, prefixes, groups, results, token_budget, max_rows):
                self.shares_prefixes = self.shares_suffixes = False
                break
        rest = [index for index in range(len(pairs)) if index not in results]
        if rest and branches:
            ends = [(pairs[index][0], [*pairs[index][1], *branch]) for index in rest for branch in branches]
            flat = self.encode(ends, token_budget=token_budget, max_rows=max_rows)
            self._keep(results, rest, flat.unflatten(0, (len(rest), -1)))
            rest = []
        whole = [[*pairs[index][0], *pairs[index][1]] for index in rest]
        for batch in token_budget_batches([len(row) for row in whole], token_budget, max_rows):
            ids, mask = pad_rows([whole[item] for item in batch], device=self._device)
            hidden = self.decoder(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
            self._keep(results, [rest[item] for item in batch], pool_states(hidden, mask))
        return torch.stack([results[index] for index in range(len(pairs))])

    @property
    def _device(self) -> torch.device:
        return next(self.decoder.parameters()).device

    def _encode_wave(
        self,
        pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
        branches: Sequence[Sequence[int]],
        prefixes: list[tuple[int, ...]],
        groups: dict[tuple[int, ...], list[int]],
        results: dict[int, torch.Tensor],
        token_budget: int,
        max_rows: int | None,
    ) -> bool:
        """Encodes every prompt that starts with one of `prefixes`; False if the model's cache cannot be shared."""
        states = self._read(prefixes)
        if states is None:
            return False
        cache, prefix_sum, prefix_mask = states
        members = [(row, index) for row, prefix in enumerate(prefixes) for index in groups[prefix]]
        longest = prefix_mask.shape[1] + sum(map(len, branches))
        lengths = [longest + len(pairs[index][1]) for _, index in members]
        for batch in token_budget_batches(lengths, token_budget, max_rows):
            rows = torch.tensor([members[item][0] for item in batch], device=self._device)
            indices = [members[item][1] for item in batch]
            if branches:
                made = BranchedRows.of([pairs[index][1] for index in indices], branches, device=self._device)
                ends = self._read_branches(
                    made, len(branches), rows_of(cache, rows), prefix_mask[rows], prefix_sum[rows]
                )
                self._keep(results, indices, ends)
                continue
            suffix_ids, suffix_mask = pad_rows([pairs[index][1] for index in indices], device=self._device)
            before = prefix_mask[rows]
            start = before.sum(1, keepdim=True)
            hidden = self.decoder(
                input_ids=suffix_ids,
                attention_mask=torch.cat([before, suffix_mask], dim=1),
                # padding repeats the last position, because a learned position table may end there
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

    def _read_branches(
        self, made: BranchedRows, branches: int, cache: Any, before: torch.Tensor, total: torch.Tensor
    ) -> torch.Tensor:
        """States (B, branches, 2 * d) of rows after B prefixes: their cache, mask (B, P) and sum of states (B, d)."""
        own = made.attention_mask(next(self.decoder.parameters()).dtype)
        padding = torch.zeros_like(before, dtype=own.dtype).masked_fill(before == 0, torch.finfo(own.dtype).min)
        hidden = self.decoder(
            input_ids=made.ids,
            attention_mask=torch.cat([padding[:, None, None].expand(-1, -1, own.shape[2], -1), own], dim=3),
            position_ids=before.sum(1, keepdim=True) + made.positions,
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state
        return made.pool(hidden, branches, total, before.sum(1))

    def _read(self, prefixes: Sequence[tuple[int, ...]]) -> tuple[Any, torch.Tensor, torch.Tensor] | None:
        """The model's cache, the sum of the last states (B, d) and the mask (B, L) of B prefixes, padded on the left.

        None if the cache cannot be shared.
        """
        ids, mask = pad_rows(prefixes, side="left", device=self._device)
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        output = self.decoder(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True)
        cache = getattr(output, "past_key_values", None)
        return (cache, _sum(output.last_hidden_state, mask), mask) if can_share(cache) else None

    @staticmethod
    def _keep(results: dict[int, torch.Tensor], indices: Sequence[int], states: torch.Tensor) -> None:
        results.update(zip(indices, states, strict=True))


def can_share(cache: Any) -> bool:
    """Whether several continuations can share a cache: it must hold every token that was read."""
    from transformers.cache_utils import DynamicCache, DynamicLayer

    # Sliding-window layers drop old tokens, and recurrent states cannot skip padding.
    return isinstance(cache, DynamicCache) and all(type(layer) is DynamicLayer for layer in cache.layers)


def rows_of(cache: Any, rows: torch.Tensor) -> Any:
    """A copy of some rows of a cache, which can grow without changing `cache`."""
    chosen = copy.copy(cache)
    chosen.layers = [copy.copy(layer) for layer in cache.layers]
    chosen.batch_select_indices(rows)
    return chosen
