"""AdaptiveBestOfN: draws candidates until one more is not expected to be worth it."""

from __future__ import annotations

from typing import Any

from integrations.hf_generate.rows import Call, Row
from integrations.hf_generate.strategy import Drawn, Strategy, whole_number
from reward.decoding.choosing import expected_gain
from reward.errors import ConfigError
from reward.functions.wrappers import RatesCaptions

__all__ = ["AdaptiveBestOfN"]


class AdaptiveBestOfN(Strategy):
    """Best of at most n, with fewer candidates for images where more would gain little.

    Candidates are drawn in rounds. After each, an image gets no more once one more candidate is expected to raise its
    best reward by less than `threshold`, taking its rewards for normally distributed:
    `reward.decoding.choosing.expected_gain`. `last.captions` holds the candidates that were used, image by image.

    For `generate`, images and what is refused see `BlockwiseBestOfN`, except that processors that remember are fine.

    Args:
        reward, processor, shared: as for `BestOfN`: images, references and chunk.
        n: candidates per image, at most.
        threshold: smallest gain that a candidate is drawn for, in units of the reward; 0 draws all n.
        minimum: candidates of the first round; at least 2, and at least k with `num_return_sequences=k`.
        batch: candidates of each later round.

    Raises:
        ConfigError: a value is of the wrong type or range; in the call, an option that is not supported.
        InvalidSampleError: in the call, no caption of an image got a reward.

    Example:
        >>> from transformers import PreTrainedTokenizerFast
        >>> from tokenizers import Tokenizer, models
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({})))
        >>> AdaptiveBestOfN("length", n=16, processor=tokenizer, threshold=0.5)
        AdaptiveBestOfN(n=16, threshold=0.5, minimum=4, batch=4, chunk=None)
    """

    _shown: tuple[str, ...] = ("n", "threshold", "minimum", "batch", "chunk")

    def __init__(
        self,
        reward: RatesCaptions | Any,
        n: int,
        processor: Any,
        *,
        threshold: float = 0.01,
        minimum: int = 4,
        batch: int = 4,
        **shared: Any,
    ) -> None:
        super().__init__(reward, n, processor, **shared)
        if not threshold >= 0:
            raise ConfigError(f"threshold must be at least 0, in units of the reward, got {threshold!r:.80}")
        self.minimum, self.batch, self.threshold = (
            whole_number(minimum, "minimum"),
            whole_number(batch, "batch"),
            threshold,
        )
        if self.minimum < 2:
            raise ConfigError("minimum must be at least 2: one reward says nothing about what another would gain")

    def _draw(self, call: Call) -> Drawn:
        starts, rows = call.starts(), list[Row]()
        wanted, count = starts, min(max(self.minimum, call.k), self.n)
        while wanted:
            rows += call.write([start for start in wanted for _ in range(count)])
            pool = call.grouped(rows)
            count = min(self.batch, self.n - max(map(len, pool)))
            gains = [expected_gain(rewards) for rewards in call.ratings(self._captions(call, pool))]
            wanted = [start for start in wanted if count and gains[start.prompt] >= self.threshold]
        return self._finished(call, pool)
