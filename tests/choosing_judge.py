"""A toy judge for comparisons: a LLaVA whose answer is 1, 2 or 0, which one depends on the question by chance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from tests.rating_judges import strict_llava

__all__ = ["choosing_llava", "save_choosing_judge"]


def choosing_llava() -> tuple[Any, Any]:
    """Model and processor; nearly all probability goes to the three digits."""
    model, processor = strict_llava("120")
    answers = processor.tokenizer.convert_tokens_to_ids(list("120"))
    with torch.no_grad():
        # direction 0 says that the answer begins: nothing but the three digits may follow
        model.lm_head.weight[:, 0] = -100
        model.lm_head.weight[answers, 0] = 100
    return model, processor


def save_choosing_judge(folder: Path) -> Path:
    """Writes its files as those of any model of transformers."""
    model, processor = choosing_llava()
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
