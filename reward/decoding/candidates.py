"""Rewards of the candidate captions of one image, each distinct caption scored once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from reward.errors import InvalidSampleError
from reward.samples import CaptionSample, ImageLike, is_wordless

__all__ = ["RatesCaptions", "rate_candidates"]


class RatesCaptions(Protocol):
    """What chooses among captions: MetricReward and its aspects, or any object with this method."""

    def rewards(self, samples: Sequence[CaptionSample]) -> list[float | None]:
        """One number a sample, in order, None where there is none; larger is better."""
        ...


def rate_candidates(
    candidates: Sequence[Sequence[str]],
    images: Sequence[ImageLike | None],
    references: Sequence[Sequence[str] | None],
    reward: RatesCaptions,
) -> list[list[float | None]]:
    """Rewards of the candidates of several images, in one call of the reward.

    Args:
        candidates: the captions of each image. Repeated ones are scored once; those without a word (no letter, no
            number) get None, so that they lose to every caption with one.
        images: one an image's list of captions, or None for metrics that need none.
        references: reference captions of each image, None or empty for none.
        reward: gives the rewards, such as `VelaReward()`.

    Returns:
        Lists of the shape of `candidates`.

    Raises:
        InvalidSampleError: lengths differ, or a candidate is no string.

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

    rated: list[Any] = reward.rewards(samples) if samples else []
    if len(rated) != len(samples):
        raise InvalidSampleError(f"the reward gave {len(rated)} numbers for {len(samples)} captions")
    return [
        [rated[place[caption]] if caption in place else None for caption in captions]
        for captions, place in zip(candidates, places, strict=True)
    ]
