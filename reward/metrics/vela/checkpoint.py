"""Builds VELA's backbones from their configuration, and reads and writes checkpoint folders."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from reward.backbones.clip import ClipTowers, build_clip, load_clip, towers_of_architecture
from reward.backbones.fit import check_fit, foreign_errors, tensor_shapes
from reward.backbones.hidden_states import decoder_of
from reward.backbones.inference import number_format, usable_device
from reward.backbones.pretrained import build_decoder, load_pretrained, read_tokenizer
from reward.checkpoints import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    load_tensors,
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
    config: TextConfig,
    model: nn.Module | None,
    tokenizer: Any | None,
    dtype: torch.dtype | None,
    trust_remote_code: bool = False,
) -> tuple[nn.Module, Any]:
    """The language model that a text configuration asks for (or the one given) and its tokenizer."""
    from transformers import AutoModel, AutoTokenizer

    if config.backbone is None:
        if tokenizer is None:
            raise ValueError("a text branch with an architecture of its own needs tokenizer=")
        return model or build_decoder(config.architecture or {}), tokenizer
    if model is None:
        return load_pretrained(
            config.backbone,
            AutoModel,
            AutoTokenizer,
            "language model",
            dtype=dtype,
            trust_remote_code=trust_remote_code,
        )
    with foreign_errors(f"tokenizer of {config.backbone!r}"):
        # `tokenizer` is the checkpoint's own, for other branches; a backbone brings its own
        return model, AutoTokenizer.from_pretrained(config.backbone, trust_remote_code=bool(trust_remote_code))


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
    trust_remote_code: bool = False,
) -> VelaModel:
    """Loads a checkpoint; see `VelaScorer.from_pretrained`."""
    from reward.metrics.vela.model import VelaModel

    dtype, device = number_format(dtype), usable_device(device)
    folder = resolve_checkpoint(source, metric=SPEC.name, revision=revision)
    where = f"VELA checkpoint {os.fspath(source)!r}"
    config = VelaConfig.from_dict(read_config(folder, metric=SPEC.name))
    shapes = tensor_shapes(folder / WEIGHTS_FILE)
    _check_branches(config, shapes, where)
    tokenizer = read_tokenizer(folder) if config.has_own_tokenizer else None
    if tokenizer is not None:
        _check_vocabulary(config, shapes, len(tokenizer), where)
    with foreign_errors(f"{where}: its {CONFIG_FILE}"):
        model = VelaModel.from_config(config, tokenizer=tokenizer, dtype=dtype, trust_remote_code=trust_remote_code)
    model.load_trained(load_tensors(folder / WEIGHTS_FILE), where=where)
    for branch in (model.text, model.image):
        if branch is not None:
            branch.to(dtype=dtype)  # the head stays in float32: it costs nothing, and scores keep their digits
    return model.to(device).eval()


def _check_branches(config: VelaConfig, shapes: Mapping[str, tuple[int, ...]], where: str) -> None:
    """Compares what is built from the configuration with the header of the weights, before it takes memory."""
    from reward.metrics.vela.text_branch import add_lora

    text, image = config.text, config.image
    if text is not None and text.architecture is not None:
        architecture, lora = text.architecture, text.lora

        def make() -> nn.Module:
            decoder = decoder_of(build_decoder(architecture))
            return decoder if lora is None else add_lora(decoder, lora)

        at = f"{where}: text.architecture{'' if lora is None else ' with text.lora'} in its {CONFIG_FILE}"
        settings = {**architecture, "lora": {"r": lora.r}} if lora is not None else architecture
        check_fit(make, shapes, settings=settings, where=at, prefix="text.decoder.")
    elif text is not None and text.lora is not None:
        ranks = {shape[0] for key, shape in shapes.items() if ".lora_A." in key}
        if ranks != {text.lora.r}:
            raise CheckpointError(
                f"{where}: text.lora.r={text.lora.r} in its {CONFIG_FILE} does not fit the adapters in {WEIGHTS_FILE}, "
                f"whose rank is {', '.join(map(str, sorted(ranks))) or 'none: there are none'}"
            )
    if image is not None and image.architecture is not None:
        model_cfg = image.architecture["model_cfg"]
        at = f"{where}: image.architecture in its {CONFIG_FILE}"
        check_fit(lambda: build_clip(model_cfg), shapes, settings=model_cfg, where=at, prefix="image.towers.clip.")


def _check_vocabulary(config: VelaConfig, shapes: Mapping[str, tuple[int, ...]], tokens: int, where: str) -> None:
    """Refuses a tokenizer whose ids the branches' own tables do not hold: scoring would stop at the first such word."""
    own = {"text.": config.text, "image.": config.image}
    for prefix, branch in own.items():
        if branch is None or branch.architecture is None:
            continue
        tables = ("embed_tokens.weight", "wte.weight", "token_embedding.weight", "word_embeddings.weight")
        rows = [shape[0] for name, shape in shapes.items() if name.startswith(prefix) and name.endswith(tables)]
        if rows and tokens > rows[0]:
            raise CheckpointError(
                f"{where}: its tokenizer.json has {tokens} tokens, but the {prefix[:-1]} branch has room for {rows[0]}"
            )


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
