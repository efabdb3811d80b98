"""Choosing among captions by their rewards: rates candidates, ranks them, and finds the best of each group."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from reward.data.cells import to_list
from reward.data.samples import CaptionSample, ImageLike, is_wordless
from reward.data.written_captions import caption_in
from reward.errors import ConfigError, InvalidSampleError
from reward.rewards.async_reward import AsyncReward
from reward.rewards.combined_reward import CombinedReward
from reward.rewards.metric_reward import MetricReward
from reward.rewards.rating import RatesCaptions, rates_captions, strips_thinking

logger = logging.getLogger(__name__)

_WORDLESS = "..."  # stands for the captions without a word, of which an empty one would be no sample


def rerank(
    candidates: Iterable[str],
    *,
    image: ImageLike | None = None,
    references: Sequence[str] = (),
    reward: RatesCaptions | Any,
    temperature: float = 0.0,
    seed: int | None = None,
) -> list[int]:
    """Indices of the candidates of one image, best first.

    Ties keep their order; empty captions and captions that cannot be scored come last. If all captions are empty, they
    keep their order; if there are others and none of them can be scored, this raises. For the rewards themselves, or
    several images at once, see `rate_candidates`.

    Args:
        candidates: captions of the image; an iterator is read to its end.
        image: path, bytes, PIL image, array, ... as for `reward.data.images.load_image`; None for metrics that need
            none.
        references: reference captions, may be empty.
        reward: such as `VelaReward()`; or a metric's name (loaded anew at every call), a scorer, or a reward function
            with a trainer's call, see `reward.rewards.rating.rates_captions`.
        temperature, seed: above 0, the order is drawn, see `soft_rank`.

    Raises:
        InvalidSampleError: a candidate or reference is no string, or no candidate got a reward.

    Example:
        >>> from reward.rewards.metric_reward import MetricReward
        >>> rerank(["A star.", "A red star."], reward=MetricReward("length"))
        [1, 0]
    """
    captions = to_list(candidates, "candidates")
    rater = rates_captions(reward)
    rewards = rate_candidates([captions], [image], [references], rater)
    to_choose_by = rewards_of_words(shown_captions([captions], rater), rewards)
    return soft_rank(to_choose_by[0], temperature, np.random.default_rng(seed))


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
    candidates = [to_list(captions, "candidates") for captions in to_list(candidates, "candidates")]
    images, references = to_list(images, "images"), to_list(references, "references")
    if not len(candidates) == len(images) == len(references):
        raise InvalidSampleError(
            f"got candidates of {len(candidates)} images, {len(images)} images, references of {len(references)} images"
        )
    rater = rates_captions(reward)
    candidates = shown_captions(candidates, rater)
    samples: list[CaptionSample] = []
    places: list[dict[str, int]] = []  # of each image, {caption with a word: its sample}
    wordless: dict[int, int] = {}  # {image: the sample that stands for its captions without a word}
    for number, (captions, image, known) in enumerate(zip(candidates, images, references, strict=True)):
        given = {"image": image, "references": () if known is None else known}
        place: dict[str, int] = {}
        for caption in captions:
            if isinstance(caption, str) and is_wordless(caption):
                if isinstance(rater, (MetricReward, CombinedReward, AsyncReward)) and number not in wordless:
                    wordless[number] = len(samples)
                    samples.append(CaptionSample(_WORDLESS, **given))
            elif not isinstance(caption, str) or caption not in place:
                samples.append(CaptionSample(caption, **given))
                place[caption] = len(samples) - 1
        places.append(place)
    share = distinct_share(candidates)
    if share is not None:
        logger.info("distinct captions among the candidates: %.0f %%", 100 * share)

    rated: list[Any] = rater.rewards(samples) if samples else []
    if len(rated) != len(samples):
        raise InvalidSampleError(f"the reward gave {len(rated)} numbers for {len(samples)} captions")
    for number, place in enumerate(places):
        if place and all(_descending(rated[index])[0] for index in place.values()):
            raise InvalidSampleError(_nothing_scored(number, list(place), samples[min(place.values())], rater))
    rewards: list[list[float | None]] = []
    for number, captions in enumerate(candidates):
        lowest = rated[wordless[number]] if number in wordless else None
        rewards.append([rated[places[number][text]] if text in places[number] else lowest for text in captions])
    return rewards


def rewards_of_words(
    candidates: Sequence[Sequence[str]], rewards: Sequence[Sequence[float | None]]
) -> list[list[float | None]]:
    """The rewards to choose by: None for a caption without a word, which loses to every caption with one.

    Args:
        candidates: the captions of each image, see `shown_captions`.
        rewards: theirs, as `rate_candidates` gives them.

    Example:
        >>> rewards_of_words([["...", "A star."]], [[0.0, 0.0]])
        [[None, 0.0]]
    """
    chosen_by: list[list[float | None]] = []
    for captions, values in zip(candidates, rewards, strict=True):
        pairs = zip(captions, values, strict=True)
        chosen_by.append([None if is_wordless(caption) else value for caption, value in pairs])
    return chosen_by


def shown_captions(candidates: Sequence[Sequence[str]], reward: Any) -> list[list[str]]:
    """The captions in what a model wrote (`caption_in`); from how many something was cut is logged.

    A reward with `strip_thinking=False` is shown all that was written.

    Example:
        >>> shown_captions([["<think>Red?</think>A red star.", "A star."]], reward=None)
        [['A red star.', 'A star.']]
    """
    written = [list(captions) for captions in candidates]
    if not strips_thinking(reward):
        return written
    shown = [[caption_in(each) if isinstance(each, str) else each for each in captions] for captions in written]
    cut = sum(a != b for old, new in zip(written, shown, strict=True) for a, b in zip(old, new, strict=True))
    if cut:
        logger.info("reasoning or marks (<think>, ...) were cut from %d of %d candidates", cut, sum(map(len, shown)))
    return shown


def distinct_share(candidates: Sequence[Sequence[str]]) -> float | None:
    """The share of candidates that are no repetition of another of their image; None where no image has several.

    Example:
        >>> distinct_share([["A star.", "A star.", "A dog.", "A cat."], ["A red star."]])
        0.75
    """
    several = [captions for captions in candidates if len(captions) > 1]
    return sum(len(set(captions)) for captions in several) / sum(map(len, several)) if several else None


def _nothing_scored(number: int, captions: list[str], first: CaptionSample, rater: RatesCaptions) -> str:
    reason = rater.reason(first) if hasattr(rater, "reason") else None
    return (
        f"no caption of image {number} (of {len(captions)} different ones) has a reward, so there is nothing to choose "
        f"by. The first, {first.candidate!r:.80}: {reason or 'the reward gave None and no reason'}"
    )


def rank(rewards: Sequence[float | None]) -> list[int]:
    """Indices of the rewards, best first.

    Equal rewards keep their order; None and NaN come last, in their order, so that a candidate that could not be scored
    loses to every one that could.

    Args:
        rewards: N numbers, or None where there is none; larger is better.

    Example:
        >>> rank([0.2, None, 0.9, 0.9])
        [2, 3, 0, 1]
    """
    return sorted(range(len(rewards)), key=lambda index: _descending(rewards[index]))


def soft_rank(rewards: Sequence[float | None], temperature: float, rng: np.random.Generator | None = None) -> list[int]:
    """An order in which each place goes to a candidate with p proportional to exp(reward / temperature).

    The first place is soft best-of-n (Verdun et al. 2025): temperature 0 is best-of-n, an infinite one a fair lot.
    Candidates without a reward come last. Rewards on different scales need different temperatures.

    Args:
        rewards: N numbers, or None where there is none.
        temperature: at least 0, in units of the reward.
        rng: draws the order.

    Raises:
        ConfigError: the temperature is below 0.

    Example:
        >>> soft_rank([0.2, None, 0.9], temperature=0)
        [2, 0, 1]
    """
    if not temperature >= 0:
        raise ConfigError(f"temperature must be at least 0, got {temperature}")
    if temperature == 0:
        return rank(rewards)
    rng = np.random.default_rng() if rng is None else rng
    noise = rng.gumbel(size=len(rewards))  # the largest of x + Gumbel noise is a draw from softmax(x)
    return rank([None if r is None else r / temperature + g for r, g in zip(rewards, noise, strict=True)])


def _descending(reward: float | None) -> tuple[bool, float]:
    if reward is None or math.isnan(reward):
        return True, 0.0
    return False, -float(reward)
