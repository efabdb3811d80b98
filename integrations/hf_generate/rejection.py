"""SpeculativeRejection: many captions are begun, and the worst are dropped while they are being written."""

from __future__ import annotations

from typing import Any

from integrations.hf_generate.rows import Call, Row
from integrations.hf_generate.strategy import Drawn, Strategy, whole_number
from reward.decoding.choosing import survivors
from reward.errors import ConfigError
from reward.functions.wrappers import RatesCaptions

__all__ = ["SpeculativeRejection"]


class SpeculativeRejection(Strategy):
    """Best of n, of which a share is dropped after every few tokens (Sun et al. 2024).

    After each segment, all remaining captions, finished or not, are rated as they stand, and the best
    round((1 - alpha) * count) are kept. The unfinished ones among them are continued. The best of all finished captions
    is returned, including those that were dropped after they had finished. This helps only if the reward of a beginning
    predicts that of the whole caption; check this first, because metrics were made for whole captions.

    For `generate`, images and what is refused see `BlockwiseBestOfN`; at least k captions stay in with
    `num_return_sequences=k`. `last.captions` holds the finished captions only, `last.tokens` counts the dropped ones.

    Args:
        reward, processor, shared: as for `BestOfN`: images, references and chunk.
        n: captions that are begun for each image.
        alpha: share that is dropped after a segment, from 0 (best of n) to below 1.
        segment: tokens between rejections.
        memory: instead of `segment`, write until the caches of all captions hold so many tokens, prompts included, as
            the paper does: a rejection makes room for longer captions.

    Raises:
        ConfigError: a value is of the wrong type or range; in the call, an option that is not supported, or `memory`
            has no room for the prompts.
        InvalidSampleError: in the call, no caption of an image got a reward.

    Example:
        >>> from transformers import PreTrainedTokenizerFast
        >>> from tokenizers import Tokenizer, models
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({})))
        >>> SpeculativeRejection("length", n=64, processor=tokenizer, segment=8)
        SpeculativeRejection(n=64, alpha=0.5, segment=8, memory=None, chunk=None)
    """

    _shown: tuple[str, ...] = ("n", "alpha", "segment", "memory", "chunk")

    def __init__(
        self,
        reward: RatesCaptions | Any,
        n: int,
        processor: Any,
        *,
        alpha: float = 0.5,
        segment: int = 16,
        memory: int | None = None,
        **shared: Any,
    ) -> None:
        super().__init__(reward, n, processor, **shared)
        survivors([], alpha)  # refuses a wrong one
        self.alpha, self.segment = alpha, whole_number(segment, "segment")
        self.memory = None if memory is None else whole_number(memory, "memory")

    def _draw(self, call: Call) -> Drawn:
        groups = [[start] * self.n for start in call.starts(blocks=True)]  # what is still in
        pool: list[Row] = []
        while live := [row for group in groups for row in group if row.cache is not None]:
            size = self._tokens_to_write(len(live), len(live[0].ids))
            written = call.write(live, lambda tokens, old, size=size: len(tokens) - old >= size)  # type: ignore[misc]
            pool += [row for row in written if row.cache is None]
            finished = [row for group in groups for row in group if row.cache is None]
            groups = call.grouped([*finished, *written])
            for prompt, rewards in enumerate(call.ratings(self._captions(call, groups))):
                if any(row.cache is not None for row in groups[prompt]):
                    kept = survivors(rewards, self.alpha, least=call.k)
                    groups[prompt] = [groups[prompt][place] for place in kept]
        return self._finished(call, call.grouped(pool))

    def _tokens_to_write(self, rows: int, length: int) -> int:
        if self.memory is None:
            return self.segment
        size = self.memory // rows - length
        if size < 1:
            raise ConfigError(
                f"memory={self.memory} has no room for the next token of {rows} captions of {length} tokens, prompts "
                "included: give fewer prompts at a time, a smaller n or more memory"
            )
        return size
