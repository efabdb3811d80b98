"""Greedy captions against the best of N: chosen by rewards, and by the oracle itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image
from transformers import PreTrainedModel, set_seed

from integrations.demo.captioner import MAX_NEW_TOKENS, decoded_batches, write_captions
from integrations.demo.quality import compare_systems, judge_captions, mean_quality
from integrations.hf_generate import BestOfN
from reward.decoding.selection import rank, rate_candidates
from reward.metaeval import Interval, bootstrap_weights
from reward.rewards.rating import RatesCaptions
from reward.scenes import Scene

__all__ = ["ChoicePart", "choose_best", "measure_choice"]


@dataclass
class ChoicePart:
    """Best-of-n on held-out scenes.

    Args:
        scenes: number of scenes.
        n: candidates per scene.
        means: {system: {measure: mean over scenes}}.
        differences: {"system - system": {measure: paired difference}}.
        gap_closed: {reward: share of the way from greedy to the oracle's choice, in F1, that its choice goes}; empty if
            the oracle finds nothing better than greedy.
        captions: {system: one caption per scene}.
        candidates: the n candidates of each scene.
        rewards: {reward: their rewards}.
    """

    scenes: int
    n: int
    means: dict[str, dict[str, Interval]]
    differences: dict[str, dict[str, Interval]]
    gap_closed: dict[str, float]
    captions: dict[str, list[str]]
    candidates: list[list[str]] = field(repr=False)
    rewards: dict[str, list[list[float | None]]] = field(repr=False)


def choose_best(
    model: PreTrainedModel,
    processor: Any,
    images: Sequence[Image.Image],
    references: Sequence[Sequence[str]] | None,
    reward: RatesCaptions,
    *,
    n: int,
    seed: int = 0,
    max_new_tokens: int = MAX_NEW_TOKENS,
) -> tuple[list[str], list[list[str]], list[list[float | None]]]:
    """The best of n sampled captions of each image, by `generate(custom_generate=BestOfN(...))`.

    Returns:
        The chosen caption of each image, all candidates, and their rewards.
    """
    set_seed(seed)
    strategy = BestOfN(reward, n=n, processor=processor)
    sampling = {"do_sample": True, "temperature": 1.0, "top_k": 0}  # from the whole vocabulary, as GRPO does

    def options(part: slice) -> dict[str, Any]:
        known = None if references is None else references[part]
        given = {"custom_generate": strategy, "images": images[part], "references": known}
        return {**given, **sampling, "max_new_tokens": max_new_tokens}

    chosen: list[str] = []
    candidates: list[list[str]] = []
    rewards: list[list[float | None]] = []
    for best in decoded_batches(model, processor, images, n, options):
        assert strategy.last is not None  # it has just been called
        chosen += best
        candidates += strategy.last.captions
        rewards += strategy.last.rewards
    return chosen, candidates, rewards


def measure_choice(
    model: PreTrainedModel,
    processor: Any,
    images: Sequence[Image.Image],
    references: Sequence[Sequence[str]] | None,
    scenes: Sequence[Scene | str],
    rewards: Mapping[str, RatesCaptions],
    *,
    n: int,
    greedy: Sequence[str] | None = None,
    seed: int = 0,
    max_new_tokens: int = MAX_NEW_TOKENS,
    resamples: int = 1000,
) -> ChoicePart:
    """Compares greedy captions, single samples, each reward's choice of n, and the oracle's choice of the same n.

    Args:
        model, processor: the captioner.
        images, references, scenes: N scenes; references None for none.
        rewards: {name: chooses}, such as {"VELA": VelaReward()}; all choose among the same candidates.
        n: candidates per scene.
        greedy: greedy captions, if they are known already.
        seed: of the sampling.
        max_new_tokens: longest caption.
        resamples: of the bootstrap.
    """
    if greedy is None:
        greedy = [group[0] for group in write_captions(model, processor, images, max_new_tokens=max_new_tokens)]
    (first, reward), *others = rewards.items()
    chosen, candidates, rated = choose_best(
        model, processor, images, references, reward, n=n, seed=seed, max_new_tokens=max_new_tokens
    )
    captions, numbers = {"greedy": list(greedy), f"best of {n} by {first}": chosen}, {first: rated}
    for name, reward in others:
        known = [()] * len(images) if references is None else references
        numbers[name] = rate_candidates(candidates, images, known, reward)
        captions[f"best of {n} by {name}"] = [
            group[rank(own)[0]] for group, own in zip(candidates, numbers[name], strict=True)
        ]
    oracle = f"best of {n} by the oracle"
    captions[oracle] = []
    for group, scene in zip(candidates, scenes, strict=True):
        f1 = judge_captions(group, [scene] * len(group))["f1"]
        captions[oracle].append(group[int(np.argmax(f1))])
    quality = {name: judge_captions(texts, scenes) for name, texts in captions.items()}
    quality = {"greedy": quality.pop("greedy"), "one sample": mean_quality(candidates, scenes), **quality}
    choices = [f"best of {n} by {name}" for name in rewards]
    pairs = [(choice, other) for choice in choices for other in ("greedy", "one sample")]
    pairs += [(oracle, choice) for choice in choices]
    pairs += [(choices[0], choice) for choice in choices[1:]]
    means, differences = compare_systems(quality, pairs, bootstrap_weights(len(scenes), resamples=resamples))
    start = means["greedy"]["f1"].value
    way = means[oracle]["f1"].value - start
    gone = {name: means[choice]["f1"].value - start for name, choice in zip(rewards, choices, strict=True)}
    gap_closed = {name: distance / way for name, distance in gone.items()} if way > 0 else {}
    return ChoicePart(len(scenes), n, means, differences, gap_closed, captions, candidates, numbers)
