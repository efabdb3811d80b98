"""Decoding in parts: what each begins with, the greedy rows of the first, and their sequences put together."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from transformers import LogitsProcessor

from reward.errors import ConfigError


class GreedyRows(LogitsProcessor):
    """Leaves the first row of each prompt its likeliest token only, so that sampling it is greedy decoding."""

    def __init__(self, rows_per_prompt: int) -> None:
        self.rows_per_prompt = rows_per_prompt

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        greedy = scores[:: self.rows_per_prompt]
        likeliest = greedy.argmax(dim=-1, keepdim=True)
        # One token has all the probability; the scores before are the model's, and others may hold them.
        scores = scores.clone()
        scores[:: self.rows_per_prompt] = torch.full_like(greedy, -torch.inf).scatter(1, likeliest, 0.0)
        return scores


def fresh_copies(processors: Any, memo: dict[int, Any]) -> Any:
    """Deep copies of logits processors or stopping criteria, in a list of the same type; networks are not copied."""
    copies = type(processors)()
    for processor in processors:
        # A model that guides, say; `deepcopy` takes what the memo holds as its own copy.
        for value in getattr(processor, "__dict__", {}).values():
            if isinstance(value, torch.nn.Module):
                memo[id(value)] = value
        try:
            copies.append(copy.deepcopy(processor, memo))
        except Exception as error:  # of whatever kind: it comes from the attributes of a user's class
            raise ConfigError(
                f"chunk decodes in parts, each with copies of logits processors and stopping criteria, and "
                f"{type(processor).__name__} cannot be copied ({error}): leave out chunk, or give it a __deepcopy__"
            ) from error
    return copies


def join_parts(parts: Sequence[torch.Tensor], prompts: int, pad: Any) -> torch.Tensor:
    """The sequences of all parts, prompt by prompt, filled up at the end."""
    length = max(part.shape[1] for part in parts)
    blocks = []
    for part in parts:
        filled = torch.nn.functional.pad(part, (0, length - part.shape[1]), value=int(pad))
        blocks.append(filled.reshape(prompts, -1, length))
    return torch.cat(blocks, dim=1).flatten(0, 1)
