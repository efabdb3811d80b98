"""Reads published BEiT-3 weights and BEiTScore checkpoint folders."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional as F

from reward.backbones.fit import check_fit, float32_by_default, on_meta
from reward.backbones.pretrained import parse_dtype, usable_device
from reward.checkpoints.folders import CONFIG_FILE, WEIGHTS_FILE, read_config, resolve_checkpoint
from reward.checkpoints.weight_files import load_strict, load_tensors, read_header, refuse_integers
from reward.errors import CheckpointError
from reward.metrics.beitscore import SPEC
from reward.metrics.beitscore.config import PRESETS, BeitScoreConfig
from reward.metrics.beitscore.encoder import FIRST_POSITION
from reward.metrics.beitscore.model import BeitScoreModel
from reward.metrics.beitscore.tokenizer import BeitScoreTokenizer

_ENCODER, _POOLER, _HEAD = "beit3.", "pooler.", "head."
_VISION_TABLE = "beit3.encoder.embed_positions.A.weight"
_TEXT_TABLE = "beit3.encoder.embed_positions.B.weight"
_PATCH_WEIGHT = "beit3.vision_embed.proj.weight"
_TOKENS = "beit3.text_embed.weight"
_FFN_WEIGHT = "beit3.encoder.layers.0.ffn.A.fc1.weight"
_BEFORE_PATCHES = FIRST_POSITION + 1  # two reserved rows and the CLS token's


@dataclass(frozen=True)
class LoadReport:
    """What `load_beit3` did with the keys of a published checkpoint.

    Args:
        used: keys that were loaded into the model.
        unused: keys of heads that BEiTScore does not have, which were dropped.
        missing: keys of the model that the file lacks; they have random weights and must be trained.
        interpolated: used keys that were resized for another number of patches.
    """

    used: tuple[str, ...]
    unused: tuple[str, ...]
    missing: tuple[str, ...]
    interpolated: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{len(self.used)} keys used ({len(self.interpolated)} interpolated), {len(self.unused)} dropped, "
            f"{len(self.missing)} new: {', '.join(self.missing)}"
        )


def load_beit3(
    path: str | os.PathLike[str], *, config: BeitScoreConfig | None = None
) -> tuple[BeitScoreModel, LoadReport]:
    """Starts a BEiTScore model from published BEiT-3 weights; its score head is new and must be trained.

    Every key of the encoder must be present. The pooler is loaded if the file has one, as checkpoints for question
    answering do; otherwise it is new as well. The file's own heads are dropped. For another image size, give a
    configuration: the table of patch positions is then interpolated (bicubic), as in BEiT-3 itself.

    Args:
        path: `.pth` in the published layout (a dict under the key `model`; tensors and plain containers only), or
            `.safetensors` with the same keys.
        config: sizes; None reads them from the shapes. The number of heads is not visible in the shapes: it is known
            for the published widths, and is otherwise read from `heads` in the metadata of a safetensors file.

    Returns:
        The model in eval mode, float32, on the CPU; and a report of its keys.

    Raises:
        CheckpointError: the file is not readable or a pickle that would run code, keys of the encoder are missing,
            unknown or of another shape, or the sizes cannot be determined.

    Example:
        >>> model, report = load_beit3("tests/golden/beit3_tiny_weights.safetensors")
        >>> model.config.image_size, model.config.layers, report.missing
        (32, 2, ('head.0.weight', 'head.0.bias', 'head.2.weight', 'head.2.bias'))
    """
    path = Path(path)
    where = f"BEiT-3 checkpoint {str(path)!r}"
    tensors = load_tensors(path)
    if config is None:
        config = _config_of(tensors, path)
    weights = {key: value for key, value in tensors.items() if key.startswith((_ENCODER, _POOLER))}
    unused = tuple(key for key in tensors if key not in weights)
    refuse_integers(weights, where=where)
    # Published files have images of 224, 384 or 480 pixels, and each patch has a row of its own in the table.
    interpolated: tuple[str, ...] = ()
    table = weights.get(_VISION_TABLE)
    if table is not None and len(table) != _BEFORE_PATCHES + config.patches:
        weights[_VISION_TABLE] = _interpolate(table, config.image_size // config.patch_size, path)
        interpolated = (_VISION_TABLE,)

    # A model without initial weights is quicker to make than one with random weights that are then overwritten.
    with on_meta(needs_transformers=False):
        model = BeitScoreModel(config)
    _allocate(model)
    new = _draw_weights(model.head, _HEAD)
    if not any(key.startswith(_POOLER) for key in weights):
        new |= _draw_weights(model.pooler, _POOLER)
    load_strict(model, {**weights, **new}, where=where)
    return model.eval(), LoadReport(tuple(weights), unused, tuple(new), interpolated)


def _allocate(model: BeitScoreModel) -> None:
    """Moves a model from "meta" to the CPU, as `to_empty` does, for which PyTorch would load parts of its compiler."""
    memory = {}
    for key, value in model.state_dict().items():
        memory[key] = torch.empty(value.shape, dtype=value.dtype, device="cpu")
    model.load_state_dict(memory, assign=True)


def _draw_weights(module: torch.nn.Module, prefix: str) -> dict[str, torch.Tensor]:
    """Draws the weights of a part of the model anew, and gives them under their keys in the model."""
    for layer in module.modules():
        if isinstance(layer, (torch.nn.Linear, torch.nn.LayerNorm)):
            layer.reset_parameters()
    return {f"{prefix}{key}": value for key, value in module.state_dict().items()}


def _config_of(tensors: Mapping[str, torch.Tensor], path: Path) -> BeitScoreConfig:
    """The configuration that follows from the shapes of a BEiT-3 checkpoint."""
    for key in (_VISION_TABLE, _TEXT_TABLE, _PATCH_WEIGHT, _TOKENS, _FFN_WEIGHT):
        if key not in tensors:
            raise CheckpointError(f"{str(path)!r} is not a BEiT-3 checkpoint in its published layout: it lacks {key}")
    vocab_size, width = tensors[_TOKENS].shape
    patch = tensors[_PATCH_WEIGHT].shape[-1]
    layers = 1 + max(int(key.split(".")[3]) for key in tensors if key.startswith("beit3.encoder.layers."))
    return BeitScoreConfig(
        hidden_size=width,
        layers=layers,
        heads=_heads_of(width, path),
        ffn_size=len(tensors[_FFN_WEIGHT]),
        image_size=patch * _side(tensors[_VISION_TABLE], path),
        patch_size=patch,
        vocab_size=vocab_size,
        text_positions=len(tensors[_TEXT_TABLE]),
    )


def _heads_of(width: int, path: Path) -> int:
    """The number of attention heads, which no shape shows: from the file's metadata, else of a published width."""
    heads = None
    if path.suffix == ".safetensors":
        heads = read_header(path).metadata.get("heads")
    if heads is not None:
        if not heads.isdecimal():
            raise CheckpointError(f"{str(path)!r}: the metadata state heads={heads!r}, which is not a number")
        return int(heads)
    # A matrix of d x d has one shape for any number of heads, and a wrong number gives wrong scores without an error.
    for preset in PRESETS.values():
        if preset.hidden_size == width:
            return preset.heads
    raise CheckpointError(
        f"{str(path)!r} has width {width}, which is no published size of BEiT-3, so its number of attention heads is "
        "not known: pass config=BeitScoreConfig(..., heads=...), or state heads in the safetensors metadata"
    )


def _side(table: torch.Tensor, path: Path) -> int:
    """Patches along one side of the square that a position table belongs to."""
    patches = len(table) - _BEFORE_PATCHES
    side = math.isqrt(max(0, patches))
    if side < 1 or side * side != patches:
        raise CheckpointError(
            f"{str(path)!r}: {_VISION_TABLE} has {len(table)} rows, which is not a square number of patches plus "
            f"{_BEFORE_PATCHES} more"
        )
    return side


def _interpolate(table: torch.Tensor, side: int, path: Path) -> torch.Tensor:
    """A table of positions (R, d) for a square of `side` patches a side, float32; rows before the patches stay."""
    old_side = _side(table, path)
    grid = table[_BEFORE_PATCHES:].float().view(1, old_side, old_side, -1).permute(0, 3, 1, 2)  # (1, d, side, side)
    grid = F.interpolate(grid, size=(side, side), mode="bicubic", align_corners=False)
    return torch.cat([table[:_BEFORE_PATCHES].float(), grid.flatten(2)[0].T])


@float32_by_default()
def load_model(
    checkpoint: str | os.PathLike[str],
    *,
    revision: str | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | str | None = None,
) -> tuple[BeitScoreModel, BeitScoreTokenizer]:
    """Loads a checkpoint; see `TrainedScorer.from_pretrained`."""
    if Path(checkpoint).is_file():
        raise CheckpointError(
            f"{os.fspath(checkpoint)!r} is a file; a BEiTScore checkpoint is a folder. Published BEiT-3 weights have "
            "no trained score head: start from them with reward.metrics.beitscore.checkpoint.load_beit3, and train "
            "(`capreward train beitscore`)"
        )
    dtype, device = parse_dtype(dtype), usable_device(device)
    folder = resolve_checkpoint(checkpoint, model=SPEC.name, revision=revision)
    where = f"BEiTScore checkpoint {os.fspath(checkpoint)!r}"
    config = BeitScoreConfig.from_dict(read_config(folder, metric=SPEC.name))
    tokenizer = BeitScoreTokenizer.from_folder(folder, max_tokens=config.max_text_tokens)
    if tokenizer.size > config.vocab_size:
        raise CheckpointError(
            f"{where}: its tokenizer has {tokenizer.size} tokens and its table only {config.vocab_size} rows"
        )
    shapes = read_header(folder / WEIGHTS_FILE).shapes
    config_name = f"{where}: its {CONFIG_FILE}"
    model = check_fit(lambda: BeitScoreModel(config), shapes, where=config_name, needs_transformers=False)
    _allocate(model)
    load_strict(model, load_tensors(folder / WEIGHTS_FILE), where=where)
    if dtype is not None:
        model.beit3.to(dtype)
        model.pooler.to(dtype)  # the head stays in float32, which keeps the scores precise
    return model.to(device).eval(), tokenizer
