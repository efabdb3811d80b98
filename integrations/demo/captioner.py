"""Captions of many images by a vision-language model: greedy, sampled, or the best of several by a reward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image
from transformers import PreTrainedModel, set_seed

from integrations.hf_generate import BestOfN
from integrations.hf_generate.best_of_n import RatedCandidates
from reward.decoding.captioners import EMBEDDED_PROMPT, prompt_inputs

PROMPT = EMBEDDED_PROMPT
MAX_NEW_TOKENS = 90  # a caption that states every fact of a scene has at most 85 tokens
_BATCH = 128  # captions that are written at a time


def write_captions(
    model: PreTrainedModel,
    processor: Any,
    images: Sequence[Image.Image],
    *,
    samples: int = 1,
    greedy: bool = False,
    **sizes: Any,
) -> list[list[str]]:
    """Captions of each image: `samples` of them, or the greedy one; `sizes` are further arguments of `best_of`."""
    n = 1 if greedy else samples
    return best_of(model, processor, images, None, "length", n=n, do_sample=not greedy, **sizes).captions


def best_of(
    model: PreTrainedModel,
    processor: Any,
    images: Sequence[Image.Image],
    references: Sequence[Sequence[str]] | None,
    reward: Any,
    *,
    n: int,
    do_sample: bool = True,
    seed: int = 0,
    max_new_tokens: int = MAX_NEW_TOKENS,
    prompt: str = PROMPT,
) -> RatedCandidates:
    """The n sampled captions of each image, their rewards, and the best, by `generate(custom_generate=BestOfN(...))`.

    They are sampled at temperature 1 from the whole vocabulary.

    Args:
        model, processor: the captioner.
        images, references: N images, and their references or None.
        reward: whatever `BestOfN` takes.
        n: captions of an image.
        do_sample: False for the greedy caption, with `n=1`.
        seed: of the sampling.
        max_new_tokens: longest caption.
        prompt: what the captioner is asked.
    """
    set_seed(seed)
    strategy = BestOfN(reward, n=n, processor=processor)
    sampling = {"do_sample": do_sample, "temperature": 1.0, "top_k": 0, "max_new_tokens": max_new_tokens}
    rated = RatedCandidates([], [], [])
    step = max(1, _BATCH // n)
    # A batch holds n captions of each of its images.
    for start in range(0, len(images), step):
        part = slice(start, start + step)
        inputs = prompt_inputs(processor, images[part], prompt).to(model.device)
        columns = {"images": images[part], "references": None if references is None else references[part]}
        with torch.inference_mode():
            model.generate(**inputs, custom_generate=strategy, **sampling, **columns)
        assert strategy.last is not None  # it has just been called
        rated.captions.extend(strategy.last.captions)
        rated.rewards.extend(strategy.last.rewards)
        rated.chosen.extend(strategy.last.chosen)
    return rated
