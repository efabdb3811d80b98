"""The embedded captioner: loads it, and writes captions for many images, greedy or sampled."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor, PreTrainedModel, set_seed

from reward.backbones.evaluating import evaluating
from reward.backbones.fit import foreign_errors
from reward.backbones.pretrained import load_pretrained
from reward.checkpoints import resolve_checkpoint
from reward.decoding.captioners import EMBEDDED_PROMPT, prompt_inputs
from reward.decoding.endings import end_tokens, up_to_end
from reward.errors import CheckpointError

__all__ = ["MAX_NEW_TOKENS", "PROMPT", "decoded_batches", "load_captioner", "write_captions"]

PROMPT = EMBEDDED_PROMPT
MAX_NEW_TOKENS = 90  # a caption that states every fact of a scene has at most 85 tokens
_BATCH = 128  # captions that are written at a time


def load_captioner(source: str | os.PathLike[str] = "embedded") -> tuple[PreTrainedModel, Any]:
    """Loads a captioner and its processor, on the CPU, in float32 and eval mode.

    Args:
        source: `"embedded"` (shipped, trained on synthetic scenes), a folder, or a Hub id of a vision-language model
            whose processor has a chat template.

    Raises:
        CheckpointError: nothing there, the Hub cannot be reached, files that do not fit each other, weights that do not
            fill the network, or a model that wants to run code of its own.
    """
    folder = resolve_checkpoint(source, metric="captioner")
    model, processor = load_pretrained(folder, AutoModelForImageTextToText, AutoProcessor, "captioner", strict=True)
    where = f"captioner {os.fspath(source)!r}"
    with foreign_errors(f"{where}: its processor (chat_template.jinja, processor_config.json)"):
        inputs = prompt_inputs(processor, [Image.new("RGB", (32, 32))], PROMPT)
    token = getattr(model.config, "image_token_id", None)
    if token is not None and token not in inputs["input_ids"].unique().tolist():
        raise CheckpointError(
            f"{where}: its config.json puts images at the token {token} (image_token_index), and its prompts have none"
        )
    # transformers before 5.2 builds networks that cannot run, such as one with a text as layer_norm_eps
    with foreign_errors(f"{where}: the network of its config.json"), torch.inference_mode():
        model.eval()(**inputs)
    return model, processor


def decoded_batches(
    model: PreTrainedModel,
    processor: Any,
    images: Sequence[Image.Image],
    each: int,
    options: Callable[[slice], Mapping[str, Any]],
    prompt: str = PROMPT,
) -> Iterator[list[str]]:
    """The captions that `generate` writes about a batch of images, batch by batch.

    Args:
        model, processor: from `load_captioner`.
        images: N images.
        each: captions of an image that are decoded side by side.
        options: further arguments of `generate` for the images of a slice.
        prompt: what the captioner is asked.
    """
    step = max(1, _BATCH // each)
    for start in range(0, len(images), step):
        part = slice(start, start + step)
        inputs = prompt_inputs(processor, images[part], prompt).to(model.device)
        with evaluating(model), torch.inference_mode():
            sequences = model.generate(**inputs, **options(part))
        completions = sequences[:, inputs["input_ids"].shape[1] :].tolist()
        written = up_to_end(completions, end_tokens(processor, model.generation_config))
        texts = processor.batch_decode([ids for ids, _ in written], skip_special_tokens=True)
        yield [text.strip() for text in texts]


def write_captions(
    model: PreTrainedModel,
    processor: Any,
    images: Sequence[Image.Image],
    *,
    samples: int = 1,
    temperature: float | None = None,
    seed: int = 0,
    max_new_tokens: int = MAX_NEW_TOKENS,
    prompt: str = PROMPT,
) -> list[list[str]]:
    """Captions of each image.

    Args:
        model, processor: from `load_captioner`.
        images: N images.
        samples: captions per image.
        temperature: None decodes greedily (then `samples` must be 1), a number samples from the whole vocabulary.
        seed: of the sampling.
        max_new_tokens: longest caption.
        prompt: what the captioner is asked.

    Returns:
        N lists of `samples` captions.
    """
    if temperature is None:
        if samples != 1:
            raise ValueError(f"greedy decoding gives one caption per image, not {samples}")
        decoding: dict[str, Any] = {"do_sample": False}
    else:
        decoding = {"do_sample": True, "temperature": temperature, "top_k": 0, "num_return_sequences": samples}
    set_seed(seed)
    decoding["max_new_tokens"] = max_new_tokens
    batches = decoded_batches(model, processor, images, samples, lambda part: decoding, prompt)
    return [texts[first : first + samples] for texts in batches for first in range(0, len(texts), samples)]
