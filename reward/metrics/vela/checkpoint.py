"""Loads VELA checkpoints, and checks first that their files fit each other."""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch
from torch import nn

from reward.backbones.clip_config import build_clip
from reward.backbones.fit import check_fit, float32_by_default, foreign_errors
from reward.backbones.language import decoder_of
from reward.backbones.pretrained import build_decoder, parse_dtype, read_tokenizer, usable_device
from reward.checkpoints.folders import CONFIG_FILE, WEIGHTS_FILE, read_config, resolve_checkpoint
from reward.checkpoints.weight_files import load_tensors, read_header
from reward.errors import CheckpointError
from reward.metrics.vela import SPEC
from reward.metrics.vela.backbones import add_lora
from reward.metrics.vela.config import VelaConfig
from reward.metrics.vela.model import VelaModel


@float32_by_default()
def load_model(
    source: str | os.PathLike[str],
    *,
    revision: str | None,
    device: torch.device | str | None,
    dtype: torch.dtype | str | None,
    trust_remote_code: bool = False,
) -> VelaModel:
    """Loads a checkpoint; see `VelaScorer.from_pretrained`."""
    dtype, device = parse_dtype(dtype), usable_device(device)
    folder = resolve_checkpoint(source, metric=SPEC.name, revision=revision)
    where = f"VELA checkpoint {os.fspath(source)!r}"
    config = VelaConfig.from_dict(read_config(folder, metric=SPEC.name))
    shapes = read_header(folder / WEIGHTS_FILE).shapes
    _check_branches(config, shapes, where)
    tokenizer = read_tokenizer(folder) if config.has_own_tokenizer else None
    if tokenizer is not None:
        _check_vocabulary(config, shapes, len(tokenizer), where)
    with foreign_errors(f"{where}: its {CONFIG_FILE}"):
        model = VelaModel.from_config(config, tokenizer=tokenizer, dtype=dtype, trust_remote_code=trust_remote_code)
    model.load_trained(load_tensors(folder / WEIGHTS_FILE), where=where)
    for branch in (model.text, model.image):
        if branch is not None:
            branch.to(dtype=dtype)  # the head stays in float32, which keeps the scores precise
    return model.to(device).eval()


def _check_branches(config: VelaConfig, shapes: Mapping[str, tuple[int, ...]], where: str) -> None:
    """Compares the architectures of a configuration with the header of the weights, before they take memory."""
    text, image = config.text, config.image
    if text is not None and text.architecture is not None:
        architecture, lora = text.architecture, text.lora

        def make() -> nn.Module:
            decoder = decoder_of(build_decoder(architecture))
            return decoder if lora is None else add_lora(decoder, lora)

        at = f"{where}: text.architecture{'' if lora is None else ' with text.lora'} in its {CONFIG_FILE}"
        check_fit(make, shapes, where=at, prefix="text.decoder.")
    if image is not None and image.architecture is not None:
        model_cfg = image.architecture["model_cfg"]
        at = f"{where}: image.architecture in its {CONFIG_FILE}"
        check_fit(lambda: build_clip(model_cfg), shapes, where=at, prefix="image.towers.clip.")


def _check_vocabulary(config: VelaConfig, shapes: Mapping[str, tuple[int, ...]], tokens: int, where: str) -> None:
    """Refuses a tokenizer with more tokens than a branch has embeddings, on which scoring would fail later."""
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
