"""Rewards of the candidate captions of one image, each distinct caption scored once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from reward.errors import InvalidSampleError
from reward.functions.wrappers import RatesCaptions, rates_captions
from reward.samples import CaptionSample, ImageLike, is_wordless

__all__ = ["rate_candidates"]


def rate_candidates(
    candidates: Sequence[Sequence[str]],
    images: Sequence[ImageLike | None],
    references: Sequence[Sequence[str] | None],
    reward: RatesCaptions | Any,
) -> list[list[float | None]]:
    """Rewards of the candidates of several images, in one call of the reward.

    Captions that got no reward lose to all others. Where no caption of an image got one, there is nothing to choose by,
    and this raises. It does not if all captions of an image are empty: then the model has written nothing, and they are
    equally bad.

    Args:
        candidates: the captions of each image. Repeated ones are scored once; those without a word (no letter, no
            number) get None, so that they lose to every caption with one.
        images: one an image's list of captions, or None for metrics that need none.
        references: reference captions of each image, None or empty for none.
        reward: gives the rewards, such as `VelaReward()`; for what else it may be, see
            `reward.functions.wrappers.rates_captions`.

    Returns:
        Lists of the shape of `candidates`.

    Raises:
        InvalidSampleError: lengths differ, a candidate is no string, or an image has captions and none of them got a
            reward. The message then gives the reason for the first of them.
        ConfigError: the reward is nothing that rates captions.

    Example:
        >>> from reward.functions.metric_reward import MetricReward
        >>> rate_candidates([["A red star.", "A star.", ""]], [None], [()], MetricReward("length"))
        [[3.0, 2.0, None]]
    """
    if not len(candidates) == len(images) == len(references):
        raise InvalidSampleError(
            f"got candidates of {len(candidates)} images, {len(images)} images, references of {len(references)} images"
        )
    samples: list[CaptionSample] = []
    places: list[dict[str, int]] = []
    for captions, image, known in zip(candidates, images, references, strict=True):
        place: dict[str, int] = {}
        for caption in captions:
            if isinstance(caption, str) and (caption in place or is_wordless(caption)):
                continue
            samples.append(CaptionSample(caption, image=image, references=() if known is None else known))
            place[caption] = len(samples) - 1
        places.append(place)

    rater = rates_captions(reward)
    rated: list[Any] = rater.rewards(samples) if samples else []
    if len(rated) != len(samples):
        raise InvalidSampleError(f"the reward gave {len(rated)} numbers for {len(samples)} captions")
    for number, place in enumerate(places):
        if place and all(_is_missing(rated[index]) for index in place.values()):
            raise InvalidSampleError(_nothing_scored(number, list(place), samples[min(place.values())], rater))
    return [
        [rated[place[caption]] if caption in place else None for caption in captions]
        for captions, place in zip(candidates, places, strict=True)
    ]


def _is_missing(reward: float | None) -> bool:
    return reward is None or math.isnan(reward)


def _nothing_scored(number: int, captions: list[str], first: CaptionSample, rater: RatesCaptions) -> str:
    reason = rater.reason(first) if hasattr(rater, "reason") else None
    return (
        f"no caption of image {number} (of {len(captions)} different ones) has a reward, so there is nothing to choose "
        f"by. The first, {first.candidate!r:.80}: {reason or 'the reward gave None and no reason'}"
    )
