"""Loads a CLIP of any layout: open_clip's, transformers', or the original one of CLIP and Long-CLIP."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from reward.backbones.clip import ClipTokenizer, ClipTowers, OpenClipTowers
from reward.backbones.clip_config import build_clip, load_open_clip
from reward.backbones.clip_original import load_original
from reward.backbones.clip_transformers import TRANSFORMERS_WEIGHTS, load_transformers_clip
from reward.backbones.fit import float32_by_default
from reward.backbones.language import PlainTextEncoder
from reward.backbones.pretrained import read_tokenizer
from reward.checkpoints.folders import (
    CONFIG_FILE,
    OPEN_CLIP_CONFIG,
    WEIGHT_SUFFIXES,
    WEIGHTS_FILE,
    config_folder,
    hub_folder,
    read_config,
    resolve_checkpoint,
)
from reward.checkpoints.weight_files import load_strict, load_tensors
from reward.errors import CheckpointError, ConfigError

_ACTIVATIONS = ("quick_gelu", "gelu")
_OPENAIS_NAME = re.compile(r"ViT-[BL]/\d\d")
_LONG_CLIP_FILE = "longclip*.pt"  # as the authors of Long-CLIP name theirs
_EMBEDDED_PREFIX = "image.towers.clip."  # of the weights of the CLIP in the embedded VELA


def towers_of_architecture(architecture: dict[str, Any], tokenizer: Any) -> OpenClipTowers:
    """Builds towers with random weights from a checkpoint's configuration; the caller must load or train them.

    Args:
        architecture: `{"model_cfg", "preprocess_cfg"}` as in an open_clip_config.json, and `"tokenizer"` with the ids
            `{"start", "end", "pad"}`.
        tokenizer: a `transformers` tokenizer.
    """
    model_cfg = architecture["model_cfg"]
    context_length = model_cfg["text_cfg"]["context_length"]
    texts = ClipTokenizer(PlainTextEncoder(tokenizer), **architecture["tokenizer"], context_length=context_length)
    return OpenClipTowers(build_clip(model_cfg), texts, architecture.get("preprocess_cfg"))


@float32_by_default()
def load_clip(
    source: str | os.PathLike[str],
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    activation: str | None = None,
) -> ClipTowers:
    """Loads the towers of a CLIP model, in eval mode.

    Args:
        source: one of
            - a model of transformers: a folder of `save_pretrained` with its processor, or `"org/name"` on the Hub;
            - an open_clip model on the Hub, `"hf-hub:org/name"` or `"org/name"`. Where a repository has both layouts,
              this one is read;
            - an architecture of open_clip with a tag of its weights, `"ViT-B-32:openai"`, see
              `open_clip.list_pretrained()`;
            - a folder with `open_clip_config.json` and `open_clip_model.safetensors`, plain or as `"local-dir:path"`;
            - a CLIP or Long-CLIP checkpoint in its original key layout: a `.pt` or `.safetensors` file, or a folder
              that holds one; or a repository of the Hub with one file longclip*.pt. A file of PAC-S must have the name
              that its authors gave it, because only the name of openClip_ViT-L-14.pth says that it is LAION's CLIP.
        device, dtype: of the weights; by default the CPU and float32.
        activation: of a checkpoint in the original layout, `"quick_gelu"` or `"gelu"`. Its weights do not say; needed
            where what is known of the file does not either.

    Returns:
        The towers; features of `encode_image` and `encode_text` are not normalised.

    Raises:
        CheckpointError: there is no such checkpoint, its weights do not fit, or its activation is not known. No weight
            is ever left at a random value.
        ConfigError: no such activation, or one for a checkpoint that states its own.

    Example:
        >>> towers = load_clip("tests/golden/longclip_tiny_weights.safetensors")
        >>> towers.context_length, towers.image_size, towers.embed_dim
        (248, 32, 32)
    """
    name = os.fspath(source)
    if activation not in (None, *_ACTIVATIONS):
        raise ConfigError(f"activation must be one of {', '.join(_ACTIVATIONS)}, got {activation!r}")
    checkpoint, read = _checkpoint_and_reader(name)
    if activation is None:
        towers = read(checkpoint)
    elif read is load_original:
        towers = load_original(checkpoint, activation)
    else:
        raise ConfigError(f"CLIP {name!r} is no file in the original layout: it states its activation itself")
    if getattr(towers.clip, "logit_bias", None) is not None:
        towers.scale_and_bias = towers.clip.logit_scale.exp().item(), towers.clip.logit_bias.item()
    return towers.to(device=device, dtype=dtype or torch.float32).eval()


def _checkpoint_and_reader(name: str) -> tuple[str, Callable[[str], ClipTowers]]:
    """The file, folder or id that a name means, and the function that reads its layout."""
    path = name.removeprefix("local-dir:")
    if os.path.isfile(path):
        return path, load_original
    if _OPENAIS_NAME.fullmatch(name):
        raise CheckpointError(f"{name!r} is OpenAI's own name of a CLIP: write {name.replace('/', '-')}:openai")
    if ":" in path:  # "hf-hub:org/name", or an architecture of open_clip and a tag
        return name, load_open_clip
    folder = config_folder(path if path == name else Path(path))
    if (folder / OPEN_CLIP_CONFIG).is_file():
        return path, load_open_clip
    # A config.json may also lie beside a file in the original layout, and says nothing of that.
    files = sorted(file for file in folder.glob("*") if file.suffix in WEIGHT_SUFFIXES)
    is_of_transformers = not files or any(any(folder.glob(pattern)) for pattern in TRANSFORMERS_WEIGHTS)
    if (folder / CONFIG_FILE).is_file() and is_of_transformers:
        return path, load_transformers_clip
    if not files and not os.path.exists(path):  # a repository, of which only configurations are fetched so far
        folder = hub_folder(name, "CLIP", files=(_LONG_CLIP_FILE,))
        files = sorted(folder.glob(_LONG_CLIP_FILE))
    if len(files) != 1:
        names = ", ".join(file.name for file in files) or "none"
        raise CheckpointError(
            f"{name!r} holds no {OPEN_CLIP_CONFIG} and no {CONFIG_FILE}; a folder with a checkpoint in the original "
            f"layout must hold exactly one weight file, but it holds: {names}"
        )
    return str(files[0]), load_original


@float32_by_default()
def load_shipped_clip(*, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> ClipTowers:
    """Loads the small CLIP of the scenes, in eval mode: for trials and tests, not for photos.

    Args:
        device, dtype: as in `load_clip`.

    Example:
        >>> load_shipped_clip().embed_dim
        256
    """
    folder = resolve_checkpoint("embedded", model="vela")
    architecture = read_config(folder, metric="vela")["image"]["architecture"]
    towers = towers_of_architecture(architecture, read_tokenizer(folder))
    weights = {}
    for key, tensor in load_tensors(folder / WEIGHTS_FILE).items():
        if key.startswith(_EMBEDDED_PREFIX):
            weights[key.removeprefix(_EMBEDDED_PREFIX)] = tensor
    load_strict(towers.clip, weights, where=f"the CLIP in {folder}")
    return towers.to(device=device, dtype=dtype or torch.float32).eval()
