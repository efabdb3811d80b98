"""Training of BEiTScore: presets, a network from settings, batches of captions, and the checkpoint."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own
from torch import nn

from reward.backbones.language import make_tokenizer
from reward.data.images import image_key, load_image
from reward.errors import ConfigError
from reward.metrics.beitscore import checkpoint
from reward.metrics.beitscore.config import BeitScoreConfig
from reward.metrics.beitscore.model import BeitScoreModel, BeitScoreOutput
from reward.metrics.beitscore.scorer import BeitScoreScorer
from reward.metrics.beitscore.tokenizer import BeitScoreTokenizer

logger = logging.getLogger(__name__)

_SETTINGS = ("beit3", "config", "gradient_checkpointing", "tokenizer")  # of `model` in a preset

LOSSES = ("mse", "l1", "bce")
# The file says which values are the paper's.
PRESETS: Mapping[str, Mapping[str, Any]] = yaml.safe_load((Path(__file__).parent / "presets.yaml").read_text("utf-8"))


class BeitScoreNetwork(nn.Module):
    """A model with the tokenizer it is trained with.

    Weights that no score depends on are frozen: the token for masked patches, and what the last layer does to the text
    stream after its attention, because the score is read from the image's CLS state.

    Args:
        model: the network.
        tokenizer: its tokenizer.
    """

    def __init__(self, model: BeitScoreModel, tokenizer: BeitScoreTokenizer) -> None:
        super().__init__()
        self.model = model
        self.tokenizer = tokenizer
        model.beit3.vision_embed.mask_token.requires_grad_(False)
        last: Any = model.beit3.encoder.layers[-1]
        attention = last.self_attn
        unread: list[Any] = [attention.q_proj, attention.inner_attn_ln, attention.out_proj]
        unread += [last.final_layer_norm, last.ffn, model.beit3.encoder.layer_norm]
        for module in unread:
            module.B.requires_grad_(False)

    def forward(
        self, image: torch.Tensor, text_ids: torch.Tensor, text_padding_mask: torch.Tensor, aspect: torch.Tensor
    ) -> BeitScoreOutput:
        """See `BeitScoreModel.forward`. `aspect` is ignored, because there is only one."""
        output: BeitScoreOutput = self.model(image, text_ids, text_padding_mask)
        return output


class BeitScoreCollator:
    """Makes padded batches for `BeitScoreNetwork.forward`; equal images are decoded once.

    Args:
        network: its tokenizer and preprocessing are used.
    """

    def __init__(self, network: BeitScoreNetwork) -> None:
        self._tokenizer = network.tokenizer
        self._model = network.model

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """A batch of B rows.

        Args:
            rows: {"sample": CaptionSample, "aspect": whole number, "target": in [0, 1]}.

        Returns:
            labels (B,), aspect (B,), image (B, 3, S, S), text_ids and text_padding_mask (B, L).
        """
        pixels: dict[str, torch.Tensor] = {}  # by image key
        keys = []
        for row in rows:
            image = row["sample"].image
            key = image_key(image)
            if key not in pixels:
                pixels[key] = self._model.preprocess(load_image(image))
            keys.append(key)
        ids, padding, _ = self._tokenizer([row["sample"].candidate for row in rows])
        return {
            # Labels come first, because the Trainer takes the batch size from the first tensor.
            "labels": torch.tensor([float(row["target"]) for row in rows]),
            "aspect": torch.tensor([int(row["aspect"]) for row in rows]),
            "image": torch.stack([pixels[key] for key in keys]),
            "text_ids": ids,
            "text_padding_mask": padding,
        }


def make_model(
    settings: Mapping[str, Any], *, texts: Callable[[], Sequence[str]], precision: str = "fp32"
) -> BeitScoreNetwork:
    """A BEiTScore network to train.

    Args:
        settings: `beit3`: path of published BEiT-3 weights to start from, or None; `config`: fields of
            `BeitScoreConfig`, with `beit3` those that differ from the file, such as drop_path or image_size;
            `tokenizer`: {"spm": path of beit3.spm}, or {"vocab_size": n} for a new one;
            `gradient_checkpointing`: whether states are recomputed in the backward pass, which saves memory.
        texts: returns the captions that a new tokenizer is trained on.
        precision: has no effect, because no weights are frozen and trained weights stay in float32.

    Raises:
        ConfigError: a setting is unknown, or settings contradict each other.
        CheckpointError: a file cannot be loaded.
    """
    unknown = sorted(set(settings) - set(_SETTINGS))
    if unknown:
        raise ConfigError(f"model settings: unknown {', '.join(unknown)}; known: {', '.join(_SETTINGS)}")
    path, changes = settings.get("beit3"), dict(settings.get("config") or {})
    spm, vocab_size = _tokenizer_settings(settings.get("tokenizer"))
    if path is None and vocab_size is not None:
        fast = make_tokenizer(texts(), vocab_size)
        model = BeitScoreModel(BeitScoreConfig(**{**changes, "vocab_size": len(fast)}))
        tokenizer = BeitScoreTokenizer.from_fast(fast, max_tokens=model.config.max_text_tokens)
    elif path is None or spm is None:
        raise ConfigError(
            "BEiT-3's weights and its sentencepiece file go together: set model.beit3 to the checkpoint's path and "
            "model.tokenizer.spm to that of beit3.spm (the preset paper needs both; tiny trains from scratch)"
        )
    else:
        model = _warm_start(Path(path), changes)
        tokenizer = BeitScoreTokenizer.from_spm(spm, max_tokens=model.config.max_text_tokens)
        if tokenizer.size > model.config.vocab_size:
            raise ConfigError(
                f"{spm} has {tokenizer.size} tokens, but {path} only has {model.config.vocab_size}: they do not belong "
                "together"
            )
    model.beit3.gradient_checkpointing = bool(settings.get("gradient_checkpointing"))
    return BeitScoreNetwork(model, tokenizer)


def _tokenizer_settings(settings: Any) -> tuple[str | None, int | None]:
    """The sentencepiece file, or the size of a new vocabulary; the other one is None."""
    stated = {key: value for key, value in (settings or {}).items() if value is not None}
    if set(stated) == {"spm"}:
        return stated["spm"], None
    if set(stated) == {"vocab_size"}:
        return None, stated["vocab_size"]
    if not stated and "spm" in (settings or {}):
        raise ConfigError("the preset paper starts from published files: set model.beit3 and model.tokenizer.spm")
    raise ConfigError(f'model.tokenizer must be {{"spm": path}} or {{"vocab_size": number}}, got {settings!r}')


def _warm_start(path: Path, changes: Mapping[str, Any]) -> BeitScoreModel:
    """A model from published weights, with settings that differ from those of the file."""
    model, report = checkpoint.load_beit3(path)
    config = dataclasses.replace(model.config, **changes)
    if config != model.config:
        model, report = checkpoint.load_beit3(path, config=config)
    logger.info("%s: %s", path, report)
    return model


def load_for_training(folder: Path, settings: Mapping[str, Any], *, precision: str = "fp32") -> BeitScoreNetwork:
    """Loads a checkpoint folder to train it further; of the settings, only `gradient_checkpointing` is used."""
    model, tokenizer = checkpoint.load_model(folder, device="cpu")
    model.beit3.gradient_checkpointing = bool(settings.get("gradient_checkpointing"))
    return BeitScoreNetwork(model, tokenizer)


make_collator = BeitScoreCollator  # see `reward.training.stage.MetricTraining`


def save_model(model: BeitScoreNetwork, folder: Path, *, card: str) -> None:
    """Writes a checkpoint folder with a model card; see `BeitScoreScorer.save_pretrained` for the other files."""
    BeitScoreScorer(model.model, model.tokenizer).save_pretrained(folder, card=card)
