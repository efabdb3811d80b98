"""Text-only language models as judges, such as those that rewrite captions without their images."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reward.errors import JudgeError

if TYPE_CHECKING:
    import torch

    from reward.judges.local import LocalJudge


def load_language_model(
    source: str | os.PathLike[str],
    *,
    revision: str | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | str | None = None,
    batch_size: int = 16,
) -> LocalJudge:
    """Loads a causal language model of transformers, such as Qwen3, as a judge of texts without images.

    If the chat template can switch thinking off, it does. A question with an image is a `JudgeError`.

    Args:
        source: folder or Hub id of a model that `AutoModelForCausalLM` knows, tuned for chat.
        revision, device, dtype, batch_size: see `LocalJudge.from_pretrained`.

    Raises:
        CheckpointError: nothing there, no such kind of model, or weights that do not fill the network.
        JudgeError: an encoder-decoder, or a tokenizer without chat template.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from reward.judges.local import LocalJudge, load_parts

    parts = (AutoModelForCausalLM, AutoTokenizer)
    model, tokenizer = load_parts(source, parts, "language model", revision=revision, device=device, dtype=dtype)
    return LocalJudge(model, _TextProcessor(tokenizer), batch_size=batch_size, name=os.fspath(source))


class _TextProcessor:
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
        return self.tokenizer.apply_chat_template(plain, enable_thinking=False, **options)
