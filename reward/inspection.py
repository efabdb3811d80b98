"""What a foreign checkpoint holds: its tensors by role, read from the file's header alone."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reward.errors import CheckpointError
from reward.tensors import read_header

__all__ = ["ROLES", "TensorFacts", "group_tensors", "inspect_safetensors", "lora_summary", "role_of"]

# In this order: the first that fits names the role. An adapter's tensors also have the name of what they adapt.
_PATTERNS = {
    "adapter": r"lora_|\blora\b|adapter|ia3_|prompt_encoder",
    "mode embedding": r"mode\w*emb|emb\w*mode|(^|\.)modes?(\.|$)",
    "CLIP": r"clip|visual\b|vision_model|resblocks|text_model\.|logit_scale|positional_embedding|token_embedding|"
    r"ln_final|text_projection|visual_projection",
    "language model": r"embed_tokens|lm_head|self_attn|(^|\.)layers\.\d+\.|rotary_emb|(^|\.)(llm|language_model)\.",
    "head": r"head|regress|rank|estimator|classif|scor|proj|mlp|(^|\.)(fc|linear|dense|out|output|layer)\w*(\.|$)",
}
ROLES = (*_PATTERNS, "other")
_BITS = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "U64": 64, "U32": 32, "U16": 16}


@dataclass(frozen=True)
class TensorFacts:
    """Name, shape and type (such as `BF16`) of a tensor, and the part of the model that its name speaks of."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: str

    @property
    def numbers(self) -> int:
        """How many numbers it has."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def bytes(self) -> int:
        """Its size in the file."""
        return self.numbers * _BITS.get(self.dtype, 8) // 8  # all others, such as F8_E4M3 and BOOL, have 8 bits


def role_of(name: str) -> str:
    """The part of a model that a tensor's name speaks of: one of `ROLES`. A guess, by habits of naming.

    Example:
        >>> role_of("llm.model.layers.3.self_attn.q_proj.lora_A.weight"), role_of("mode_embedding.weight")
        ('adapter', 'mode embedding')
        >>> role_of("clip.visual.conv1.weight"), role_of("regressor.0.weight"), role_of("step")
        ('CLIP', 'head', 'other')
    """
    return next((role for role, pattern in _PATTERNS.items() if re.search(pattern, name.lower())), "other")


def inspect_safetensors(path: str | os.PathLike[str]) -> tuple[list[TensorFacts], dict[str, str]]:
    """Facts of all tensors of a `.safetensors` file, in the file's order, and its metadata. No weights are read.

    Raises:
        CheckpointError: there is no such file, it is of another kind, or it is damaged or cut off.
    """
    path = Path(path)
    if path.is_dir():
        files = ", ".join(sorted(file.name for file in path.glob("*.safetensors"))) or "none"
        raise CheckpointError(f"{str(path)!r} is a folder: name one of its .safetensors files ({files})")
    if not path.is_file():
        raise CheckpointError(f"there is no file {str(path)!r}")
    if path.suffix != ".safetensors":
        raise CheckpointError(f"{str(path)!r} is no .safetensors file; others can run code when they are read")
    header = read_header(path)
    facts = [TensorFacts(name, shape, header.types[name], role_of(name)) for name, shape in header.shapes.items()]
    return facts, header.metadata


def group_tensors(tensors: Sequence[TensorFacts]) -> list[tuple[str, list[TensorFacts]]]:
    """Tensors of one role, type and shape whose names differ in numbers only, as (name with `*`, tensors), by role.

    Example:
        >>> layers = [TensorFacts(f"layers.{i}.weight", (2, 2), "F32", "language model") for i in range(3)]
        >>> [(name, len(group)) for name, group in group_tensors(layers)]
        [('layers.*.weight', 3)]
    """
    groups: dict[tuple[Any, ...], list[TensorFacts]] = {}
    for each in tensors:
        key = (ROLES.index(each.role), re.sub(r"(?<![^.])\d+(?![^.])", "*", each.name), each.dtype, each.shape)
        groups.setdefault(key, []).append(each)
    ordered = sorted(groups.items(), key=lambda item: item[0][0])  # stable: within a role, the order of the file
    return [(key[1] if len(group) > 1 else group[0].name, group) for key, group in ordered]


def lora_summary(tensors: Sequence[TensorFacts]) -> dict[str, list[int]]:
    """{adapted layer: ranks} of the LoRA matrices; the scale alpha is not in a file of weights.

    Example:
        >>> lora_summary([TensorFacts("layers.0.q_proj.lora_A.default.weight", (4, 64), "F32", "adapter")])
        {'q_proj': [4]}
    """
    ranks: dict[str, set[int]] = {}
    for each in tensors:
        found = re.search(r"(\w+)\.lora_A\b", each.name)
        if found and len(each.shape) == 2:
            ranks.setdefault(found[1], set()).add(each.shape[0])
    return {layer: sorted(found) for layer, found in sorted(ranks.items())}
