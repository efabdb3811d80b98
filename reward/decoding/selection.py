"""Choosing among captions by their rewards: rates candidates, ranks them, and finds the best of each group."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from reward.data.cells import to_list
from reward.data.samples import CaptionSample, ImageLike, is_wordless, read_references
from reward.data.written_captions import caption_in
from reward.errors import InvalidSampleError
from reward.rewards.combined_reward import AsyncReward, CombinedReward
from reward.rewards.metric_reward import MetricReward
from reward.rewards.rating import RatesCaptions, rates_captions, strips_thinking

_WORDLESS = "..."  # stands for all captions without a word, also for the empty one, which would be no sample


def rerank(
    candidates: Iterable[str],
    *,
    image: ImageLike | None = None,
    references: Sequence[str] = (),
    reward: RatesCaptions | Any,
) -> list[int]:
    """Indices of the candidates of one image, best first.

    Ties keep their order; empty captions and captions that cannot be scored come last. For the rewards themselves, or
    several images at once, see `rate_candidates`.

    Args:
        candidates: captions of the image; an iterator is read to its end.
        image: as for `reward.data.images.load_image`; None for metrics that need none.
        references: reference captions, may be empty.
        reward: such as `VelaReward()`; or a metric's name (loaded anew at every call), a scorer, or a reward function
            with a trainer's call, see `reward.rewards.rating.rates_captions`.

    Raises:
        InvalidSampleError: a candidate or reference is no string, or no candidate with a word got a reward.

    Example:
        >>> from reward.rewards.metric_reward import MetricReward
        >>> rerank(["A star.", "A red star."], reward=MetricReward("length"))
        [1, 0]
    """
    rater = rates_captions(reward)
    captions = shown_captions(_checked([candidates]), rater)
    rewards = rate_captions(captions, [image], [references], rater)
    [to_choose_by] = rewards_of_words(captions, rewards)
    return rank(to_choose_by)


def rate_candidates(
    candidates: Sequence[Sequence[str]],
    images: Sequence[ImageLike | None],
    references: Sequence[Sequence[str] | None],
    reward: RatesCaptions | Any,
) -> list[list[float | None]]:
    """Rewards of the candidates of several images, in one call of the reward.

    Where no caption of an image got a reward, there is nothing to choose by, and this raises. It does not if all
    captions of an image are empty: then the model has written nothing, and they are equally bad.

    Args:
        candidates: the captions of each image. Repeated ones are scored once. Reasoning (`<think>...</think>`) is cut
            first, unless the reward has `strip_thinking=False`.
        images: one per image's list of captions, or None for metrics that need none.
        references: reference captions of each image, None or empty for none.
        reward: gives the rewards, such as `VelaReward()`; for what else it may be, see
            `reward.rewards.rating.rates_captions`.

    Returns:
        Lists of the shape of `candidates`. A caption without a word (no letter, no number) has the lowest reward, as in
        training; that of an object which is no reward of this library has None. To choose, see `rewards_of_words`.

    Raises:
        InvalidSampleError: lengths differ, a candidate is no string, or an image has captions and none of them got a
            reward.

    Example:
        >>> from reward.rewards.metric_reward import MetricReward
        >>> rate_candidates([["A red star.", "A star.", ""]], [None], [()], MetricReward("length"))
        [[3.0, 2.0, 0.0]]
    """
    rater = rates_captions(reward)
    captions = shown_captions(_checked(to_list(candidates, "candidates")), rater)
    return rate_captions(captions, to_list(images, "images"), to_list(references, "references"), rater)


def rate_captions(
    candidates: Sequence[Sequence[str]],
    images: Sequence[ImageLike | None],
    references: Sequence[Sequence[str] | None],
    rater: RatesCaptions,
) -> list[list[float | None]]:
    """`rate_candidates` for candidates of `shown_captions` and a reward of `rates_captions`."""
    if not len(candidates) == len(images) == len(references):
        raise InvalidSampleError(
            f"got candidates of {len(candidates)} images, {len(images)} images, references of {len(references)} images"
        )
    # Only rewards of this library know the lowest of a metric; other objects are never shown a caption without a word.
    rates_wordless = isinstance(rater, (MetricReward, CombinedReward, AsyncReward))

    groups: list[list[str]] = []
    samples: dict[tuple[int, str], CaptionSample] = {}  # {(number of the image, caption): its sample}
    for number, captions in enumerate(candidates):
        groups.append([_WORDLESS if is_wordless(caption) else caption for caption in captions])
        for caption in dict.fromkeys(groups[number]):
            if caption != _WORDLESS or rates_wordless:
                samples[number, caption] = CaptionSample(caption, images[number], read_references(references[number]))
    values = rater.rewards(list(samples.values())) if samples else []
    if len(values) != len(samples):
        raise InvalidSampleError(f"the reward gave {len(values)} numbers for {len(samples)} captions")
    reward_of = dict(zip(samples, values, strict=True))

    rewards: list[list[float | None]] = []
    for number, captions in enumerate(groups):
        rewards.append([reward_of.get((number, caption)) for caption in captions])
        with_word = [caption for caption in dict.fromkeys(captions) if caption != _WORDLESS]
        numbers = [reward_of[number, caption] for caption in with_word]
        if with_word and all(reward is None or math.isnan(reward) for reward in numbers):
            first = samples[number, with_word[0]]
            reason = rater.reason(first) if hasattr(rater, "reason") else None
            raise InvalidSampleError(
                f"no caption of image {number} (of {len(with_word)} different ones) has a reward, so there is nothing "
                f"to choose by. The first, {first.candidate!r:.80}: {reason or 'the reward gave None and no reason'}"
            )
    return rewards


def rewards_of_words(
    candidates: Sequence[Sequence[str]], rewards: Sequence[Sequence[float | None]]
) -> list[list[float | None]]:
    """The rewards to choose by: None for a caption without a word, which loses to every caption with one.

    `candidates` are the captions of each image, as `shown_captions` gives them, and `rewards` theirs.
    """
    to_choose_by: list[list[float | None]] = []
    for captions, image_rewards in zip(candidates, rewards, strict=True):
        pairs = zip(captions, image_rewards, strict=True)
        to_choose_by.append([None if is_wordless(caption) else reward for caption, reward in pairs])
    return to_choose_by


def shown_captions(candidates: Sequence[Sequence[str]], reward: Any) -> list[list[str]]:
    """The captions in what a model wrote, see `caption_in`.

    A reward with `strip_thinking=False` is shown all that was written.
    """
    if not strips_thinking(reward):
        return [list(texts) for texts in candidates]
    groups = []
    for texts in candidates:
        groups.append([caption_in(text) for text in texts])
    return groups


def distinct_share(candidates: Sequence[Sequence[str]]) -> float | None:
    """The share of candidates that are no repetition of another of their image; None where no image has several."""
    several = [captions for captions in candidates if len(captions) > 1]
    if not several:
        return None
    return sum(len(set(captions)) for captions in several) / sum(map(len, several))


def _checked(candidates: Sequence[Any]) -> list[list[str]]:
    """The candidates of each image as a list of texts."""
    lists = [to_list(captions, "candidates") for captions in candidates]
    for captions in lists:
        for caption in captions:
            if not isinstance(caption, str):
                raise InvalidSampleError(f"candidate must be a string, got {type(caption).__name__}: {caption!r:.80}")
    return lists


def rank(rewards: Sequence[float | None]) -> list[int]:
    """Indices of the rewards, best first.

    Equal rewards keep their order; None and NaN come last, in their order.

    Args:
        rewards: N numbers, or None where there is none; larger is better.

    Example:
        >>> rank([0.2, None, 0.9, 0.9])
        [2, 3, 0, 1]
    """
    scored = []
    unscored = []
    for index, reward in enumerate(rewards):
        if reward is None or math.isnan(reward):
            unscored.append(index)
        else:
            scored.append((-float(reward), index))
    return [index for _, index in sorted(scored)] + unscored
