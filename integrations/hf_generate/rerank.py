"""Ranking captions that exist already, such as the outputs of several models, by a reward."""

from __future__ import annotations

from collections.abc import Sequence

from reward.decoding.candidates import RatesCaptions, rate_candidates
from reward.decoding.selection import rank
from reward.samples import ImageLike

__all__ = ["rerank"]


def rerank(
    candidates: Sequence[str],
    *,
    image: ImageLike | None = None,
    references: Sequence[str] = (),
    reward: RatesCaptions,
) -> list[int]:
    """Indices of the candidates of one image, best first.

    Ties keep their order; empty captions and captions that cannot be scored come last. For the rewards themselves, or
    several images at once, see `reward.decoding.candidates.rate_candidates`.

    Args:
        candidates: captions of the image.
        image: path, bytes, PIL image; None for metrics that need none.
        references: reference captions, may be empty.
        reward: such as `VelaReward()`.

    Raises:
        InvalidSampleError: a candidate or reference is no string.

    Example:
        >>> from reward.functions.metric_reward import MetricReward
        >>> rerank(["A star.", "A red star."], reward=MetricReward("length"))
        [1, 0]
    """
    return rank(rate_candidates([candidates], [image], [references], reward)[0])
