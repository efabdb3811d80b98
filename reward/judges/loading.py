"""Loads the models that answer: those that see, and those that read texts alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reward.backbones.pretrained import load_pretrained, parse_dtype, usable_device
from reward.checkpoints.folders import resolve_checkpoint
from reward.errors import JudgeError

if TYPE_CHECKING:
    import torch


def load_parts(
    checkpoint: str | os.PathLike[str],
    kind: str,
    *,
    revision: str | None,
    device: torch.device | str | None,
    dtype: torch.dtype | str | None,
    must_see: bool = False,
    apart: tuple[str, ...] = (),
) -> tuple[Any, Any]:
    """A vision-language model and its processor, or a language model and its tokenizer as one.

    A folder whose weights do not all have a place in the model is refused: with a head of its own, such as that of a
    reward model, or adapters that are not merged, it is another model than the one that would answer.

    Args:
        checkpoint: a folder or Hub id.
        kind: what the model is called in messages.
        must_see: whether language models are refused.
        apart: how the names of weights of another head begin, which is read apart.

    Raises:
        CheckpointError: nothing there, no such kind of model, or files that do not fit each other.
        ConfigError: no such device or dtype.
    """
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoProcessor, AutoTokenizer

    folder = resolve_checkpoint(checkpoint, metric=kind, revision=revision)
    device = usable_device(device)
    if dtype == "auto":
        dtype = None
    options: dict[str, Any] = {"dtype": parse_dtype(dtype) or "auto", "strict": True, "apart": apart}
    if must_see or not _reads_texts(folder):
        model, processor = load_pretrained(folder, AutoModelForImageTextToText, AutoProcessor, kind, **options)
    else:
        model, tokenizer = load_pretrained(folder, AutoModelForCausalLM, AutoTokenizer, kind, **options)
        processor = TextProcessor(tokenizer)
    return model.to(device), processor


def _reads_texts(folder: Any) -> bool:
    """Whether a folder holds a language model without eyes."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING, AutoConfig

    try:
        kind = type(AutoConfig.from_pretrained(folder, trust_remote_code=False))
    except Exception:  # whatever it is, loading says what is wrong
        return False
    return kind in MODEL_FOR_CAUSAL_LM_MAPPING and kind not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING


class TextProcessor:
    """A tokenizer with the interface of the processor that a judge expects."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.chat_template = tokenizer.chat_template

    def apply_chat_template(self, messages: Sequence[dict[str, Any]], **options: Any) -> Any:
        """Chat templates of text-only models expect the content of a message as a string, not as a list of parts."""
        plain = []
        for message in messages:
            if any(part["type"] != "text" for part in message["content"]):
                raise JudgeError("this model reads no images: leave the image out, or use a vision-language model")
            plain.append({**message, "content": "".join(part["text"] for part in message["content"])})
        return self.tokenizer.apply_chat_template(plain, **options)
