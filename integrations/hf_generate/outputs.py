"""What BestOfN hands back: all candidates with their rewards, and output objects with the chosen rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache
from transformers.generation.utils import GenerateDecoderOnlyOutput, GenerateEncoderDecoderOutput

from reward.decoding.selection import distinct_share

__all__ = [
    "BestOfNDecoderOnlyOutput",
    "BestOfNEncoderDecoderOutput",
    "RatedCandidates",
    "chosen_output",
    "select_rows",
]


@dataclass
class BestOfNDecoderOnlyOutput(GenerateDecoderOnlyOutput):
    """What `return_dict_in_generate=True` gives; `reward_scores` (rows,) float32, NaN where there is none."""

    reward_scores: torch.Tensor | None = None


@dataclass
class BestOfNEncoderDecoderOutput(GenerateEncoderDecoderOutput):
    """The same for encoder-decoders; as in transformers, what the encoder gave has one row a prompt."""

    reward_scores: torch.Tensor | None = None


@dataclass(frozen=True)
class RatedCandidates:
    """All candidates of the last call.

    Args:
        captions: B lists of captions, without reasoning (`<think>...</think>`) unless the reward asks for it.
        rewards: B lists of what the choice was made by, None for empty captions and those that could not be scored.
        chosen: B lists of k indices into the lists above, best first.
        thinking_cut: from how many captions reasoning was cut.
    """

    captions: list[list[str]]
    rewards: list[list[float | None]]
    chosen: list[list[int]]
    thinking_cut: int = 0

    @property
    def distinct(self) -> float | None:
        """The share of candidates that are no repetition of another of their image; None with one an image."""
        return distinct_share(self.captions)

    @property
    def best(self) -> list[list[tuple[str, float | None]]]:
        """B lists of the k captions that `generate` returned, best first, each with its reward."""
        parts = zip(self.captions, self.rewards, self.chosen, strict=True)
        return [[(captions[place], rewards[place]) for place in chosen] for captions, rewards, chosen in parts]


def chosen_output(
    output: GenerateDecoderOnlyOutput | GenerateEncoderDecoderOutput, index: torch.Tensor, rewards: list[float | None]
) -> BestOfNDecoderOnlyOutput | BestOfNEncoderDecoderOutput:
    """The output object with the chosen rows only."""
    chosen: dict[str, Any] = {}
    for name, value in output.items():
        # tensors of the encoder have one row a prompt, as transformers does not expand them
        chosen[name] = value if name.startswith("encoder_") else select_rows(value, index)
    scores = torch.tensor([float("nan") if reward is None else reward for reward in rewards], device=index.device)
    kind = BestOfNEncoderDecoderOutput if isinstance(output, GenerateEncoderDecoderOutput) else BestOfNDecoderOnlyOutput
    return kind(**chosen, reward_scores=scores)


def select_rows(value: Any, index: torch.Tensor) -> Any:
    """Rows of a tensor, of a cache, which is changed, or of all in a tuple; others as they are."""
    if isinstance(value, torch.Tensor):
        return value.index_select(0, index.to(value.device))
    if isinstance(value, Cache):
        value.reorder_cache(index)
        return value
    if isinstance(value, tuple):
        return tuple(select_rows(item, index) for item in value)
    return value
