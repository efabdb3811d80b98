"""Loads VELA checkpoints, and checks first that their files fit each other."""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch
from torch import nn

from reward.backbones.clip_config import build_clip
from reward.backbones.fit import check_fit, float32_by_default, foreign_errors
from reward.backbones.language import decoder_of
from reward.backbones.lora import add_lora
from reward.backbones.pretrained import build_decoder, parse_dtype, read_tokenizer, usable_device
from reward.checkpoints.folders import CONFIG_FILE, WEIGHTS_FILE, read_config, resolve_checkpoint
from reward.checkpoints.weight_files import load_strict, load_tensors, read_header
from reward.errors import CheckpointError
from reward.metrics.vela import SPEC
from reward.metrics.vela.config import VelaConfig
from reward.metrics.vela.model import VelaModel


@float32_by_default()
def load_model(
    checkpoint: str | os.PathLike[str],
    *,
    revision: str | None,
    device: torch.device | str | None,
    dtype: torch.dtype | str | None,
) -> VelaModel:
    """Loads a checkpoint; see `TrainedScorer.from_pretrained`."""
    dtype, device = parse_dtype(dtype), usable_device(device)
    folder = resolve_checkpoint(checkpoint, model=SPEC.name, revision=revision)
    where = f"VELA checkpoint {os.fspath(checkpoint)!r}"
    # What the small files and the header of the weights say is compared before anything large is read.
    config = VelaConfig.from_dict(read_config(folder, metric=SPEC.name))
    shapes = read_header(folder / WEIGHTS_FILE).shapes
    _check_branches(config, shapes, where)
    tokenizer = read_tokenizer(folder) if config.has_own_tokenizer else None
    if tokenizer is not None:
        _check_vocabulary(config, shapes, len(tokenizer), where)
    with foreign_errors(f"{where}: its {CONFIG_FILE}"):
        model = VelaModel.from_config(config, tokenizer=tokenizer, dtype=dtype)
    _load_trained(model, load_tensors(folder / WEIGHTS_FILE), where)
    # The head stays in float32, which keeps the scores precise.
    for branch in (model.text, model.image):
        if branch is not None:
            branch.to(dtype=dtype)
    return model.to(device).eval()


def _check_branches(config: VelaConfig, shapes: Mapping[str, tuple[int, ...]], where: str) -> None:
    """Compares the architectures of a configuration with the header of the weights, before they take memory."""
    text, image = config.text, config.image
    if text is not None and text.architecture is not None:
        architecture, lora = text.architecture, text.lora

        def make() -> nn.Module:
            decoder = decoder_of(build_decoder(architecture))
            return decoder if lora is None else add_lora(decoder, lora)

        keys = "text.architecture"
        if lora is not None:
            keys += " with text.lora"
        check_fit(make, shapes, where=f"{where}: {keys} in its {CONFIG_FILE}", prefix="text.decoder.")
    if image is not None and image.architecture is not None:
        model_cfg = image.architecture["model_cfg"]
        keys = f"{where}: image.architecture in its {CONFIG_FILE}"
        check_fit(lambda: build_clip(model_cfg), shapes, where=keys, prefix="image.towers.clip.")


def _check_vocabulary(config: VelaConfig, shapes: Mapping[str, tuple[int, ...]], tokens: int, where: str) -> None:
    """Refuses a tokenizer with more tokens than a branch has embeddings, on which scoring would fail later."""
    tables = ("embed_tokens.weight", "wte.weight", "token_embedding.weight", "word_embeddings.weight")
    for branch, settings in (("text", config.text), ("image", config.image)):
        if settings is None or settings.architecture is None:
            continue
        for name, shape in shapes.items():
            if name.startswith(f"{branch}.") and name.endswith(tables) and tokens > shape[0]:
                raise CheckpointError(
                    f"{where}: its tokenizer.json has {tokens} tokens, but the {branch} branch has room for {shape[0]}"
                )


def trained_tensors(model: VelaModel) -> dict[str, torch.Tensor]:
    """The weights of a checkpoint: head, adapters, and all of a branch with its own architecture."""
    branches = {"text": model.config.text, "image": model.config.image}
    tensors = {}
    for key, value in model.state_dict().items():
        branch = branches.get(key.split(".", 1)[0])  # None for the head
        if branch is None or branch.backbone is None or ".lora_" in key:
            tensors[key] = value
    return tensors


def _load_trained(model: VelaModel, tensors: dict[str, torch.Tensor], where: str) -> None:
    """Loads the weights that `trained_tensors` gives; the keys must be exactly those.

    Raises:
        CheckpointError: keys are missing, left over or of another shape.
    """
    # `load_strict` wants every weight of the network, so the backbone's own, loaded already, are given once more.
    trained = trained_tensors(model)
    frozen = {key: value for key, value in model.state_dict().items() if key not in trained}
    for key in tensors:
        if key in frozen:
            raise CheckpointError(f"{where} holds weights of a backbone that the configuration names: {key}, ...")
    load_strict(model, {**frozen, **tensors}, where=where)
