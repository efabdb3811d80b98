"""Builds VELA's backbones from their configuration, and reads and writes checkpoint folders."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from reward.backbones.clip import ClipTowers, load_clip, towers_of_architecture
from reward.backbones.inference import number_format
from reward.checkpoints import (
    WEIGHTS_FILE,
    load_tensors,
    ordinary_loading,
    read_config,
    resolve_checkpoint,
    save_checkpoint,
)
from reward.errors import CheckpointError
from reward.metrics.vela.config import ImageConfig, TextConfig, VelaConfig
from reward.metrics.vela.spec import SPEC

if TYPE_CHECKING:
    from reward.metrics.vela.model import VelaModel

__all__ = ["load_model", "make_decoder", "make_towers", "save_model"]


def make_decoder(
    config: TextConfig, model: nn.Module | None, tokenizer: Any | None, dtype: torch.dtype | None
) -> tuple[nn.Module, Any]:
    """The language model that a text configuration asks for (or the one given) and its tokenizer."""
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    if config.backbone is None:
        if tokenizer is None:
            raise ValueError("a text branch with an architecture of its own needs tokenizer=")
        if model is None:
            settings = dict(config.architecture or {})
            with ordinary_loading():
                model = AutoModel.from_config(AutoConfig.for_model(settings.pop("model_type"), **settings))
        return model, tokenizer
    try:
        with ordinary_loading():
            if model is None:
                model = AutoModel.from_pretrained(config.backbone, dtype=dtype or torch.float32)
            # `tokenizer` is the checkpoint's own, for other branches; a backbone brings its own
            return model, AutoTokenizer.from_pretrained(config.backbone)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot load the language model {config.backbone!r}: {error}") from error


def make_towers(
    config: ImageConfig, clip: nn.Module | None, tokenizer: Any | None, dtype: torch.dtype | None
) -> ClipTowers:
    """The CLIP that an image configuration asks for, or the one given."""
    if isinstance(clip, ClipTowers):
        return clip
    if config.architecture is None:
        if clip is not None:
            raise ValueError("for an image branch with a backbone, pass ClipTowers (from load_clip) as clip")
        return load_clip(config.backbone or "", dtype=dtype)
    if tokenizer is None:
        raise ValueError("an image branch with an architecture of its own needs tokenizer=")
    return towers_of_architecture(config.architecture, tokenizer, clip)


def load_model(
    source: str | os.PathLike[str],
    *,
    revision: str | None,
    device: torch.device | str | None,
    dtype: torch.dtype | str | None,
) -> VelaModel:
    """Loads a checkpoint; see `VelaScorer.from_pretrained`."""
    from reward.metrics.vela.model import VelaModel

    folder = resolve_checkpoint(source, metric=SPEC.name, revision=revision)
    config = VelaConfig.from_dict(read_config(folder, metric=SPEC.name))
    tokenizer = _read_tokenizer(folder) if config.has_own_tokenizer else None
    dtype = number_format(dtype)
    model = VelaModel.from_config(config, tokenizer=tokenizer, dtype=dtype)
    model.load_trained(load_tensors(folder / WEIGHTS_FILE), where=f"VELA checkpoint {os.fspath(source)!r}")
    for branch in (model.text, model.image):
        if branch is not None:
            branch.to(dtype=dtype)  # the head stays in float32: it costs nothing, and scores keep their digits
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return model.to(device).eval()


def _read_tokenizer(folder: Path) -> Any:
    from transformers import PreTrainedTokenizerFast

    if not (folder / "tokenizer.json").is_file():
        raise CheckpointError(f"{str(folder)!r} has no tokenizer.json, which its configuration needs")
    # by class, not AutoTokenizer, which would look for a model_type in our config.json
    return PreTrainedTokenizerFast.from_pretrained(folder)


def save_model(
    model: VelaModel, folder: str | os.PathLike[str], *, dtype: torch.dtype | None = None, card: str | None = None
) -> None:
    """Writes a checkpoint folder; see `VelaScorer.save_pretrained`."""
    folder = Path(folder)
    tensors = model.trained_tensors()
    if dtype is not None:
        tensors = {key: value.to(dtype) if value.is_floating_point() else value for key, value in tensors.items()}
    if model.tokenizer is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            model.tokenizer.save_pretrained(folder)
        except OSError as error:
            raise CheckpointError(f"checkpoint folder {str(folder)!r} cannot be written: {error}") from error
    save_checkpoint(folder, config=model.config.to_dict(), tensors=tensors, card=card or make_card(model.config))


def make_card(config: VelaConfig) -> str:
    """A model card that says what the checkpoint is made of; whoever trained it adds data and figures."""
    tags = "tags: [image-captioning, metric, reward-model]"
    lines = ["---", "library_name: capreward", "license: apache-2.0", tags, "---", "", "# VELA caption metric", ""]
    lines += [f"Scores image captions on {', '.join(config.aspects)}, each in [0, 1].", ""]
    for name, branch in (("Language model", config.text), ("CLIP", config.image)):
        if branch is None:
            lines.append(f"- {name}: none (ablation)")
        else:
            lines.append(f"- {name}: {branch.backbone or 'weights in this checkpoint'}")
    lines += [
        "",
        "```python",
        "from reward import load_scorer",
        "",
        'load_scorer("vela", "<this repository>")',
        "```",
        "",
    ]
    return "\n".join(lines)
