"""Hidden states of prompts from a causal language model; what prompts begin with, or end in, is computed once.

The prompts of a call share most of their tokens: the candidates of an image follow the same description of the task,
and the aspects of a candidate differ in the last few tokens. A token of a causal model sees only what is before it, so
the keys and values of a shared beginning are the same in every prompt. They are computed once and copied for each
continuation; the states are equal to those of whole prompts up to rounding.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from reward.backbones.language import default_token_budget, pad_rows, token_budget_batches


def pool_states(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """[mean of the states ; last state] in float32, shape (B, 2 * d), of right-padded states (B, L, d)."""
    return _mean_and_last(_sum(hidden, mask), _last(hidden, mask), mask.sum(1))


def _sum(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    # Padded positions may hold NaN, so they are replaced, not multiplied by 0.
    return hidden.float().masked_fill(mask[..., None] == 0, 0).sum(1)


def _last(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    rows = torch.arange(len(hidden), device=hidden.device)
    return hidden[rows, mask.sum(1) - 1].float()


def _mean_and_last(total: torch.Tensor, last: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    return torch.cat([total / count[:, None], last], dim=1)


class Prefixes(NamedTuple):
    """What the model keeps of B prefixes of up to P tokens, padded on the left so that all end in the last column."""

    cache: Any  # the model's keys and values
    mask: torch.Tensor  # (B, P) int64, 1 where a token is
    total: torch.Tensor  # (B, d) float32, the sum of the last hidden states, of which the mean is made

    def rows(self, numbers: Sequence[int]) -> Prefixes:
        """A copy for continuations: the prefixes of these numbers, of which some may come twice."""
        index = torch.tensor(numbers, device=self.mask.device)
        return Prefixes(cache_rows(self.cache, index), self.mask[index], self.total[index])


# The aspects of a candidate differ in their last few tokens. These all go into one row behind the candidate. A mask
# hides them from each other, and the positions of each go on from the candidate, so it sees what it would see alone.
class BranchedRows(NamedTuple):
    """Rows of tokens that end in several ways: a trunk, and branches that see the trunk and not each other."""

    ids: torch.Tensor  # (B, L) int64, trunk and branches one after the other, padded on the right
    positions: torch.Tensor  # (B, L) int64; every branch goes on where the trunk ends
    branch: torch.Tensor  # (B, L) int64, 0 in the trunk, k in branch k, -1 in the padding

    @classmethod
    def of(
        cls, trunks: Sequence[Sequence[int]], branches: Sequence[Sequence[int]], *, device: torch.device | str = "cpu"
    ) -> BranchedRows:
        """Rows of B trunks, all with the same branches; none is empty.

        Example:
            >>> rows = BranchedRows.of([[5, 6]], [[7], [8, 9]])
            >>> rows.ids.tolist(), rows.positions.tolist(), rows.branch.tolist()
            ([[5, 6, 7, 8, 9]], [[0, 1, 2, 2, 3]], [[0, 0, 1, 2, 2]])
        """
        rows_of_ids, rows_of_positions, rows_of_numbers = [], [], []
        for trunk in trunks:
            ids = list(trunk)
            positions = list(range(len(trunk)))
            numbers = [0] * len(trunk)
            for number, branch in enumerate(branches, 1):
                ids += branch
                positions += range(len(trunk), len(trunk) + len(branch))
                numbers += [number] * len(branch)
            rows_of_ids.append(ids)
            rows_of_positions.append(positions)
            rows_of_numbers.append(numbers)
        return cls(
            pad_rows(rows_of_ids, device=device)[0],
            pad_rows(rows_of_positions, device=device)[0],
            pad_rows(rows_of_numbers, value=-1, device=device)[0],
        )

    def attention_mask(self, dtype: torch.dtype, prefix_mask: torch.Tensor) -> torch.Tensor:
        """What each token sees after prefixes (B, P), added to the logits of attention: 0 or the lowest number.

        Returns:
            (B, 1, L, P + L).
        """
        length = self.ids.shape[1]
        key, query = self.branch[:, None, :], self.branch[:, :, None]
        causal = torch.ones(length, length, dtype=torch.bool, device=self.ids.device).tril()
        seen = causal & ((key == 0) | (key == query))  # padding sees itself, so that no row is empty
        seen_prefix = (prefix_mask != 0)[:, None].expand(-1, length, -1)
        hidden = ~torch.cat([seen_prefix, seen], dim=2)
        mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
        return mask.masked_fill(hidden, torch.finfo(dtype).min)[:, None]

    def pool(self, hidden: torch.Tensor, branches: int, prefixes: Prefixes) -> torch.Tensor:
        """[mean of the states ; last state] of prefix, trunk and branch together, float32, (B, branches, 2 * d).

        Args:
            hidden: states (B, L, d) of these rows.
            branches: how many there are; to read it from `branch` would make the CPU wait for a GPU.
            prefixes: the B prefixes before the rows.
        """
        rows = torch.arange(len(hidden), device=hidden.device)
        pooled = []
        for number in range(1, branches + 1):
            in_branch = self.branch == number
            mask = ((self.branch == 0) | in_branch).long()
            # argmax finds the first place of the highest count, which is the last token of the branch.
            last = hidden[rows, in_branch.long().cumsum(1).argmax(1)].float()
            total = _sum(hidden, mask) + prefixes.total
            count = mask.sum(1) + prefixes.mask.sum(1)
            pooled.append(_mean_and_last(total, last, count))
        return torch.stack(pooled, dim=1)


class CausalStates:
    """Encodes (prefix, suffix) pairs with a causal language model, each distinct prefix once.

    Args:
        decoder: a causal decoder of transformers without head; see `decoder_of`.
    """

    # Prefixes go through the model in waves, which leave their keys and values and the sum of their states. Each pair
    # takes a copy of its prefix's row of these, and goes on from there with its suffix.

    def __init__(self, decoder: nn.Module) -> None:
        self.decoder = decoder
        parameters = inspect.signature(decoder.forward).parameters
        # Without position ids, left padding would shift positions. Without a cache, nothing can be shared. Both are
        # revised when the model's first cache is seen.
        self.shares_prefixes = "position_ids" in parameters and "past_key_values" in parameters
        # Branches need a row of the attention mask for every token, which flash attention does not take.
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
        budget = default_token_budget(self._device) if token_budget is None else token_budget
        results: dict[int, torch.Tensor] = {}  # by the index of the pair
        for indices, states in self._encode_shared(pairs, branches, budget, max_rows):
            results.update(zip(indices, states, strict=True))
        rest = [index for index in range(len(pairs)) if index not in results]
        if rest and branches:
            # Where suffixes cannot be shared, each branch is a prompt.
            ends: list[tuple[Sequence[int], Sequence[int]]] = []
            for index in rest:
                prefix, suffix = pairs[index]
                for branch in branches:
                    ends.append((prefix, [*suffix, *branch]))
            states = self.encode(ends, token_budget=budget, max_rows=max_rows)
            results.update(zip(rest, states.unflatten(0, (len(rest), len(branches))), strict=True))
        elif rest:
            prompts = [[*pairs[index][0], *pairs[index][1]] for index in rest]
            for batch in token_budget_batches(list(map(len, prompts)), budget, max_rows):
                ids, mask = pad_rows([prompts[number] for number in batch], device=self._device)
                hidden = self.decoder(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
                for number, state in zip(batch, pool_states(hidden, mask), strict=True):
                    results[rest[number]] = state
        return torch.stack([results[index] for index in range(len(pairs))])

    @property
    def _device(self) -> torch.device:
        return next(self.decoder.parameters()).device

    def _encode_shared(
        self,
        pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
        branches: Sequence[Sequence[int]],
        budget: int,
        max_rows: int | None,
    ) -> Iterator[tuple[list[int], torch.Tensor]]:
        """Yields (indices of pairs, their states) for the pairs whose prefix is worth sharing, if the model can."""
        if not (self.shares_suffixes if branches else self.shares_prefixes):
            return
        groups: dict[tuple[int, ...], list[int]] = {}
        for index, (prefix, _) in enumerate(pairs):
            groups.setdefault(tuple(prefix), []).append(index)
        # The prefix of a single pair is read together with its suffix, which takes the CPU half the time of two passes.
        # With branches, even a single pair has several continuations.
        fewest_pairs = 1 if branches else 2
        shared = [prefix for prefix, indices in groups.items() if prefix and len(indices) >= fewest_pairs]
        branch_tokens = sum(map(len, branches))
        for wave in token_budget_batches(list(map(len, shared)), budget, max_rows):
            prefixes = self._read_prefixes([shared[number] for number in wave])
            if prefixes is None:
                self.shares_prefixes = self.shares_suffixes = False
                return
            # Of each pair that continues a prefix of the wave: its index, the prefix's row, and the tokens to read.
            indices, rows, lengths = [], [], []
            for row, number in enumerate(wave):
                for index in groups[shared[number]]:
                    indices.append(index)
                    rows.append(row)
                    lengths.append(prefixes.mask.shape[1] + branch_tokens + len(pairs[index][1]))
            for batch in token_budget_batches(lengths, budget, max_rows):
                batch_indices = [indices[number] for number in batch]
                batch_prefixes = prefixes.rows([rows[number] for number in batch])
                suffixes = [pairs[index][1] for index in batch_indices]
                if branches:
                    states = self._read_branches(batch_prefixes, suffixes, branches)
                else:
                    states = self._read_suffixes(batch_prefixes, suffixes)
                yield batch_indices, states

    def _read_prefixes(self, prefixes: Sequence[tuple[int, ...]]) -> Prefixes | None:
        """What the model keeps of prefixes; None if its cache cannot be shared."""
        ids, mask = pad_rows(prefixes, side="left", device=self._device)
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        output = self.decoder(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True)
        cache = getattr(output, "past_key_values", None)
        if not can_share(cache):
            return None
        return Prefixes(cache, mask, _sum(output.last_hidden_state, mask))

    def _read_suffixes(self, prefixes: Prefixes, suffixes: Sequence[Sequence[int]]) -> torch.Tensor:
        """States (B, 2 * d) of B prefixes with their suffixes."""
        ids, mask = pad_rows(suffixes, device=self._device)
        start = prefixes.mask.sum(1, keepdim=True)
        # Padding repeats the last position, because a learned position table may end there.
        last = mask.sum(1, keepdim=True) - 1
        positions = start + torch.minimum(torch.arange(ids.shape[1], device=self._device), last)
        hidden = self.decoder(
            input_ids=ids,
            attention_mask=torch.cat([prefixes.mask, mask], dim=1),
            position_ids=positions,
            past_key_values=prefixes.cache,
            use_cache=True,
        ).last_hidden_state
        total = prefixes.total + _sum(hidden, mask)
        return _mean_and_last(total, _last(hidden, mask), start.squeeze(1) + mask.sum(1))

    def _read_branches(
        self, prefixes: Prefixes, trunks: Sequence[Sequence[int]], branches: Sequence[Sequence[int]]
    ) -> torch.Tensor:
        """States (B, K, 2 * d) of B prefixes with their trunks, each with K branches."""
        rows = BranchedRows.of(trunks, branches, device=self._device)
        dtype = next(self.decoder.parameters()).dtype
        hidden = self.decoder(
            input_ids=rows.ids,
            attention_mask=rows.attention_mask(dtype, prefixes.mask),
            position_ids=prefixes.mask.sum(1, keepdim=True) + rows.positions,
            past_key_values=prefixes.cache,
            use_cache=True,
        ).last_hidden_state
        return rows.pool(hidden, len(branches), prefixes)


def can_share(cache: Any) -> bool:
    """Whether several continuations can share a cache: it must hold every token that was read."""
    from transformers.cache_utils import DynamicCache, DynamicLayer

    # Sliding-window layers drop old tokens, and recurrent states cannot skip padding.
    return isinstance(cache, DynamicCache) and all(type(layer) is DynamicLayer for layer in cache.layers)


def cache_rows(cache: Any, rows: torch.Tensor) -> Any:
    """A copy of some rows of a cache, which can grow without changing `cache`."""
    part = copy.copy(cache)
    part.layers = [copy.copy(layer) for layer in cache.layers]
    part.batch_select_indices(rows)
    return part
