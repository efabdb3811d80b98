"""MinimumBayesRisk: the candidate that agrees best with the others."""

from __future__ import annotations

from functools import partial
from typing import Any

from integrations.hf_generate.best_of_n import BestOfN
from integrations.hf_generate.rows import Call
from integrations.hf_generate.strategy import whole_number
from reward.decoding.mbr import expected_utilities
from reward.decoding.selection import rank
from reward.errors import ConfigError
from reward.functions.wrappers import RatesCaptions, rates_captions

__all__ = ["MinimumBayesRisk"]


class MinimumBayesRisk(BestOfN):
    """Draws n candidates as `BestOfN` does, and returns the one with the largest mean utility against all of them.

    With a reward, only the `keep` candidates that it likes best may win. `last.rewards` holds the mean utilities, None
    for candidates that the reward has dropped; `last.scored` also counts pairs that a metric compared.

    Args:
        reward: None for plain minimum Bayes risk.
        n, processor, shared: as for `BestOfN`. References are for the reward only.
        utility, aggregate: see `reward.decoding.mbr.expected_utilities`. A metric compares n * n pairs without the
            latter.
        keep: candidates that the reward leaves; half of n, rounded up, where it is not given.

    Raises:
        ConfigError: a value is of the wrong type or range, or `keep` comes without a reward.
        InvalidSampleError: in the call, a utility cannot be computed, or no caption of an image got a reward.

    Example:
        >>> from transformers import PreTrainedTokenizerFast
        >>> from tokenizers import Tokenizer, models
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({})))
        >>> MinimumBayesRisk("length", n=16, processor=tokenizer)
        MinimumBayesRisk(n=16, keep=8, aggregate=False, chunk=None)
    """

    _shown: tuple[str, ...] = ("n", "keep", "aggregate", "chunk")

    def __init__(
        self,
        reward: RatesCaptions | Any = None,
        n: int = 16,
        processor: Any = None,
        *,
        utility: Any = "unigram",
        keep: int | None = None,
        aggregate: bool = False,
        **shared: Any,
    ) -> None:
        self.utility = utility if utility == "unigram" else rates_captions(utility)
        super().__init__(utility if reward is None else reward, n, processor, **shared)
        if keep is not None and (reward is None or whole_number(keep, "keep") > self.n):
            raise ConfigError(f"keep={keep} needs a reward that says which candidates are kept, and at most n={self.n}")
        self.keep = None if reward is None else keep or -(-self.n // 2)
        self.aggregate = aggregate
        self._returns = "n" if self.keep is None else "keep"

    def _rate(self, call: Call, captions: list[list[str]]) -> tuple[list[list[float | None]], list[int]]:
        may_win = [list(range(len(group))) for group in captions]
        if self.keep is not None:
            may_win = [rank(group)[: self.keep] for group in call.ratings(captions)]
        compare = partial(expected_utilities, utility=self.utility, aggregate=self.aggregate)
        rated = [
            compare(group, hypotheses, image=image)
            for group, hypotheses, image in zip(captions, may_win, call.ratings.images, strict=True)
        ]
        scored = [known + more for known, (_, more) in zip(call.ratings.scored, rated, strict=True)]
        return [scores for scores, _ in rated], scored
