"""CLIP and Long-CLIP in their original layout, and what was trained on from them: PAC-S and PAC-S++."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from reward.backbones.clip import OpenClipTowers, make_bpe_tokenizer
from reward.backbones.clip_config import build_clip
from reward.backbones.fit import foreign_errors
from reward.checkpoints.weight_files import load_strict, load_tensors, refuse_integers
from reward.errors import CheckpointError

_CLIPS_POSITIONS = 20  # Long-CLIP has the first 20 text positions of CLIP, and learns a second table for the others
_NOT_WEIGHTS = ("input_resolution", "context_length", "vocab_size")  # sizes that OpenAI's files hold among the weights
_KEYS_OF_A_CLIP = (
    "visual.conv1.weight",
    "visual.positional_embedding",
    "visual.proj",
    "positional_embedding",
    "text_projection",
    "token_embedding.weight",
)
# How the authors of PAC-S begin the names of files that they trained on from LAION's CLIP, and from OpenAI's.
_LAION_PREFIX = "openClip_"
_OPENAI_PREFIXES = ("clip_ViT-", "PAC++_clip_")


def load_original(checkpoint: str, activation: str | None = None) -> OpenClipTowers:
    """Loads the towers of a weight file, in float32.

    Args:
        checkpoint: a file in the layout of OpenAI's CLIP, with whose key names Long-CLIP and PAC-S are published.
        activation: see `reward.backbones.load_clip`.

    Raises:
        CheckpointError: it is damaged or no CLIP, or says not with which activation it was trained.
    """
    from open_clip import SimpleTokenizer

    file = Path(checkpoint)
    where = repr(str(file))
    with foreign_errors(where):
        stored = load_tensors(file)
        refuse_integers({key: tensor for key, tensor in stored.items() if key not in _NOT_WEIGHTS}, where=where)
        tensors = _without_lora(stored)
    if not all(key in tensors for key in _KEYS_OF_A_CLIP):
        raise CheckpointError(
            f"{where} is not a CLIP as OpenAI and Long-CLIP publish theirs; for an open_clip model "
            "name the folder that holds its open_clip_config.json"
        )
    with foreign_errors(where):  # shapes of which no CLIP can be made
        model_cfg, state = _of_original_layout(tensors)
        model_cfg["quick_gelu"] = _is_quick(file, stored, activation)
        clip = build_clip(model_cfg)
    load_strict(clip, state, where=str(file))
    texts = make_bpe_tokenizer(SimpleTokenizer(context_length=model_cfg["text_cfg"]["context_length"]))
    preprocess_cfg = None  # the mean and deviation of OpenAI's pixels
    if file.name.startswith(_LAION_PREFIX):
        preprocess_cfg = {"mean": [0.5] * 3, "std": [0.5] * 3}
    return OpenClipTowers(clip, texts, preprocess_cfg)


def _is_quick(file: Path, stored: Mapping[str, torch.Tensor], activation: str | None) -> bool:
    """Whether a checkpoint in the original layout was trained with QuickGELU: weights of both have the same names.

    The argument wins. Else the file shows it: Long-CLIP and OpenAI's own files hold a second table of positions or
    sizes among the weights, and those of PAC-S have the names of its authors.
    """
    if activation is not None:
        return activation == "quick_gelu"
    if "positional_embedding_res" in stored or any(name in stored for name in _NOT_WEIGHTS):
        return True
    if file.name.startswith(_LAION_PREFIX):
        return False
    if file.name.startswith(_OPENAI_PREFIXES):
        return True
    raise CheckpointError(
        f"{str(file)!r} does not say with which activation it was trained, and with the other its scores are wrong: "
        "give activation='quick_gelu' (OpenAI's weights and what was trained on from them) or activation='gelu' (most "
        "of open_clip's own); for a command --set activation=gelu"
    )


def _without_lora(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights that PAC-S++ runs with: LoRA, with alpha 1, is added to those of attention and of `conv1`.

    Those of the MLPs hold theirs already, as the authors' code reads its checkpoints. Without LoRA nothing changes.
    """
    merged = {key: tensor for key, tensor in tensors.items() if "lora_" not in key}
    for key, weight in merged.items():
        # The factors of out_proj.weight are out_proj.lora_A and lora_B; those of in_proj_weight, in_proj_weight_lora_A.
        stem = key.replace("in_proj_weight", "in_proj_weight_").removesuffix("weight") + "lora_"
        if f"{stem}A" in tensors and ".mlp." not in key:
            first, second = tensors[f"{stem}A"].float(), tensors[f"{stem}B"].float()
            rank = len(first)
            if weight.ndim == 4:  # a convolution, whose first factor has the rank once for each row of the kernel
                rank //= weight.shape[-1]
            merged[key] = weight.float() + (second @ first).view_as(weight) / rank
    return merged


def _of_original_layout(tensors: Mapping[str, torch.Tensor]) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Turns a state dict in OpenAI's layout, which Long-CLIP shares, into open_clip's `model_cfg` and state dict.

    Text position i of Long-CLIP is `positional_embedding[i]` for i < 20 and `positional_embedding_res[i]` after that.
    Both are merged into one table, which gives a plain CLIP of open_clip with QuickGELU. Weights become fp32; the
    reader of open_clip would round fp32 files to fp16. A head is 64 wide, as in every published CLIP.
    """
    state = {key: tensor.float() for key, tensor in tensors.items() if key not in _NOT_WEIGHTS}
    second = state.pop("positional_embedding_res", None)
    if second is not None:
        first = state["positional_embedding"]
        if second.shape != first.shape:
            raise CheckpointError(
                f"positional_embedding {tuple(first.shape)} and positional_embedding_res {tuple(second.shape)} differ"
            )
        state["positional_embedding"] = torch.cat([first[:_CLIPS_POSITIONS], second[_CLIPS_POSITIONS:]])
    vision_width, _, patch_size, _ = state["visual.conv1.weight"].shape
    grid = round((state["visual.positional_embedding"].shape[0] - 1) ** 0.5)
    context_length, text_width = state["positional_embedding"].shape
    model_cfg = {
        "embed_dim": state["text_projection"].shape[1],
        "quick_gelu": True,
        "vision_cfg": {
            "image_size": grid * patch_size,
            "layers": _count_layers(state, "visual.transformer.resblocks."),
            "width": vision_width,
            "head_width": min(vision_width, 64),
            "patch_size": patch_size,
        },
        "text_cfg": {
            "context_length": context_length,
            "vocab_size": state["token_embedding.weight"].shape[0],
            "width": text_width,
            "heads": max(1, text_width // 64),
            "layers": _count_layers(state, "transformer.resblocks."),
        },
    }
    return model_cfg, state


def _count_layers(state: Mapping[str, torch.Tensor], prefix: str) -> int:
    return sum(key.startswith(prefix) and key.endswith(".attn.in_proj_weight") for key in state)
