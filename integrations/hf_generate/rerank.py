"""Ranking captions that exist already, such as the outputs of several models, by a reward."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from reward.decoding.candidates import rate_candidates
from reward.decoding.selection import rank
from reward.errors import InvalidSampleError
from reward.functions.wrappers import RatesCaptions
from reward.samples import ImageLike

__all__ = ["rerank"]


def rerank(
    candidates: Iterable[str],
    *,
    image: ImageLike | None = None,
    references: Sequence[str] = (),
    reward: RatesCaptions | Any,
) -> list[int]:
    """Indices of the candidates of one image, best first.

    Ties keep their order; empty captions and captions that cannot be scored come last. If none of the captions can be
    scored there is no order, and this raises; captions that are all empty keep their order, as equally bad ones do. For
    the rewards themselves, or several images at once, see `reward.decoding.candidates.rate_candidates`.

    Args:
        candidates: captions of the image; an iterator is read to its end.
        image: path, bytes, PIL image, array, ... as for `reward.images.load_image`; None for metrics that need none.
        references: reference captions, may be empty.
        reward: such as `VelaReward()`; or a metric's name (loaded anew at every call), a scorer, or a reward function
            with a trainer's call, see `reward.functions.wrappers.rates_captions`.

    Raises:
        InvalidSampleError: the candidates are one string or have no order, a candidate or reference is no string, or
            no candidate got a reward. The message then gives the reason for the first.
        ConfigError: the reward is nothing that rates captions.

    Example:
        >>> from reward.functions.metric_reward import MetricReward
        >>> rerank(["A star.", "A red star."], reward=MetricReward("length"))
        [1, 0]
    """
    if isinstance(candidates, (str, bytes, Mapping, set, frozenset)) or not isinstance(candidates, Iterable):
        raise InvalidSampleError(f"candidates must be a list of captions, got {type(candidates).__name__}")
    return rank(rate_candidates([list(candidates)], [image], [references], reward)[0])
