"""Greedy captions against the best of N: chosen by VELA, and by the oracle itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import PreTrainedModel, set_seed

from integrations.demo.captioner import MAX_NEW_TOKENS, caption_texts, prompt_inputs, write_captions
from integrations.demo.quality import compare_systems, judge_captions, mean_quality
from integrations.hf_generate import BestOfN
from reward.decoding.candidates import RatesCaptions
from reward.metaeval import Interval, bootstrap_weights
from reward.scenes import Scene

__all__ = ["ChoicePart", "choose_best", "measure_choice"]

_CAPTIONS_AT_A_TIME = 128


@dataclass
class ChoicePart:
    """Best-of-n on held-out scenes.

    Args:
        scenes: number of scenes.
        n: candidates a scene.
        means: {system: {measure: mean over scenes}}.
        differences: {"system - system": {measure: paired difference}}.
        gap_closed: share of the way from greedy to the oracle's choice, in F1, that the reward's choice goes; None if
            the oracle finds nothing better than greedy.
        captions: {system: one caption a scene}.
        candidates: the n candidates of each scene.
        rewards: their rewards.
    """

    scenes: int
    n: int
    means: dict[str, dict[str, Interval]]
    differences: dict[str, dict[str, Interval]]
    gap_closed: float | None
    captions: dict[str, list[str]]
    candidates: list[list[str]] = field(repr=False)
    rewards: list[list[float | None]] = field(repr=False)


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
    model.eval()
    chosen: list[str] = []
    candidates: list[list[str]] = []
    rewards: list[list[float | None]] = []
    sampling = {"do_sample": True, "temperature": 1.0, "top_k": 0}  # from the whole vocabulary, as GRPO does
    step = max(1, _CAPTIONS_AT_A_TIME // n)
    for start in range(0, len(images), step):
        part = slice(start, start + step)
        inputs = prompt_inputs(processor, images[part])
        strategy = BestOfN(
            reward,
            n=n,
            processor=processor,
            images=images[part],
            references=None if references is None else references[part],
        )
        with torch.inference_mode():
            best = model.generate(**inputs, custom_generate=strategy, **sampling, max_new_tokens=max_new_tokens)
        chosen += caption_texts(processor, inputs, best)
        assert strategy.last is not None  # it has just been called
        candidates += strategy.last.captions
        rewards += strategy.last.rewards
    return chosen, candidates, rewards


def measure_choice(
    model: PreTrainedModel,
    processor: Any,
    images: Sequence[Image.Image],
    references: Sequence[Sequence[str]] | None,
    scenes: Sequence[Scene | str],
    reward: RatesCaptions,
    *,
    n: int,
    greedy: Sequence[str] | None = None,
    seed: int = 0,
    max_new_tokens: int = MAX_NEW_TOKENS,
    resamples: int = 1000,
) -> ChoicePart:
    """Compares greedy captions, single samples, the reward's choice of n, and the oracle's choice of the same n.

    Args:
        model, processor: the captioner.
        images, references, scenes: N scenes; references None for none.
        reward: chooses, such as `VelaReward()`.
        n: candidates a scene.
        greedy: greedy captions, if they are known already.
        seed: of the sampling.
        max_new_tokens: longest caption.
        resamples: of the bootstrap.
    """
    if greedy is None:
        greedy = [group[0] for group in write_captions(model, processor, images, max_new_tokens=max_new_tokens)]
    chosen, candidates, rewards = choose_best(
        model, processor, images, references, reward, n=n, seed=seed, max_new_tokens=max_new_tokens
    )
    by_oracle = []
    for group, scene in zip(candidates, scenes, strict=True):
        f1 = judge_captions(group, [scene] * len(group))["f1"]
        by_oracle.append(group[int(np.argmax(f1))])
    vela, oracle = f"best of {n} by VELA", f"best of {n} by the oracle"
    captions = {"greedy": list(greedy), vela: chosen, oracle: by_oracle}
    quality = {name: judge_captions(texts, scenes) for name, texts in captions.items()}
    quality = {
        "greedy": quality["greedy"],
        "one sample": mean_quality(candidates, scenes),
        vela: quality[vela],
        oracle: quality[oracle],
    }
    pairs = [(vela, "greedy"), (vela, "one sample"), (oracle, vela)]
    means, differences = compare_systems(quality, pairs, bootstrap_weights(len(scenes), resamples=resamples))
    way = means[oracle]["f1"].value - means["greedy"]["f1"].value
    gained = means[vela]["f1"].value - means["greedy"]["f1"].value
    return ChoicePart(
        len(scenes), n, means, differences, gained / way if way > 0 else None, captions, candidates, rewards
    )
