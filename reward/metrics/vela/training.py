"""Training of VELA: presets, a network from settings, batches of judgements, and the checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own
from torch import nn

from reward.backbones.language import pad_rows
from reward.backbones.new_tokenizer import END, PAD, START, make_tokenizer
from reward.data.images import image_key, load_image
from reward.errors import CheckpointError, ConfigError
from reward.metrics.vela import checkpoint
from reward.metrics.vela.config import VelaConfig
from reward.metrics.vela.model import VelaModel
from reward.metrics.vela.scorer import VelaScorer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from reward.data.samples import CaptionSample

LOSSES = ("mse", "l1")
# The file says which values are the paper's.
PRESETS: Mapping[str, Mapping[str, Any]] = yaml.safe_load((Path(__file__).parent / "presets.yaml").read_text("utf-8"))


def make_model(
    settings: Mapping[str, Any], *, texts: Callable[[], Sequence[str]], precision: str = "fp32"
) -> VelaModel:
    """A VELA model to train.

    Args:
        settings: the fields of `VelaConfig` as plain values. With an architecture, also
            `tokenizer: {"vocab_size": ...}` for a new tokenizer, whose vocabulary is filled in. With
            `gradient_checkpointing: true`, the language model's states are recomputed in the backward pass, which saves
            memory.
        texts: returns the captions that a new tokenizer is trained on.
        precision: with `"bf16"` and `"fp16"`, frozen backbones have that dtype; trained weights stay in float32.

    Raises:
        ConfigError: a setting is unknown, or settings contradict each other.
        CheckpointError: a backbone cannot be loaded.
    """
    plain = {key: value for key, value in settings.items() if key not in ("tokenizer", "gradient_checkpointing")}
    branches = {name: dict(plain[name]) for name in ("text", "image") if plain.get(name) is not None}
    own = [name for name, branch in branches.items() if branch.get("architecture") is not None]
    tokenizer = None
    if own:
        if set(settings.get("tokenizer") or {}) != {"vocab_size"}:
            raise ConfigError('a branch trained from scratch needs the setting "tokenizer": {"vocab_size": ...}')
        tokenizer = make_tokenizer(texts(), settings["tokenizer"]["vocab_size"])
        for name in own:
            branches[name]["architecture"] = _with_vocabulary(name, branches[name]["architecture"], tokenizer)
    try:
        config = VelaConfig.from_dict({**plain, **branches})
    except CheckpointError as error:
        raise ConfigError(f"model settings: {error}") from error
    return _ready(VelaModel.from_config(config, tokenizer=tokenizer), settings, precision)


def load_for_training(folder: Path, settings: Mapping[str, Any], *, precision: str = "fp32") -> VelaModel:
    """Loads a checkpoint folder to train it further; of the settings, only `gradient_checkpointing` is used."""
    return _ready(checkpoint.load_model(folder, revision=None, device="cpu", dtype=None), settings, precision)


def _ready(model: VelaModel, settings: Mapping[str, Any], precision: str) -> VelaModel:
    """The model as it is trained: what is frozen, and in which type."""
    checkpointing = settings.get("gradient_checkpointing", False)
    if not isinstance(checkpointing, bool):
        raise ConfigError(f"model settings: gradient_checkpointing must be true or false, got {checkpointing!r}")
    if model.text is not None and checkpointing:
        decoder: Any = model.text.decoder
        # older versions of transformers have the second name only
        enable = getattr(decoder, "activation_checkpointing_enable", None) or decoder.gradient_checkpointing_enable
        enable({"use_reentrant": False})
    if model.image is not None and model.image.config.backbone is None:
        # VELA does not use CLIP's logit scale, and DDP waits for a gradient of every trained parameter.
        model.image.towers.clip.logit_scale.requires_grad_(False)
    if precision != "fp32":
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]
        for branch in (model.text, model.image):
            if branch is not None and branch.config.backbone is not None:
                _hold_frozen(branch, dtype)
    return model


def _hold_frozen(branch: nn.Module, dtype: torch.dtype) -> None:
    for parameter in branch.parameters():
        if not parameter.requires_grad:
            parameter.data = parameter.data.to(dtype)


def _with_vocabulary(name: str, architecture: Mapping[str, Any], tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    size = len(tokenizer)
    start, end, pad = tokenizer.convert_tokens_to_ids([START, END, PAD])
    if name == "text":
        return {**architecture, "vocab_size": size, "pad_token_id": pad, "bos_token_id": start, "eos_token_id": end}
    model_cfg = architecture["model_cfg"]
    text_cfg = {**model_cfg["text_cfg"], "vocab_size": size}
    return {
        **architecture,
        "model_cfg": {**model_cfg, "text_cfg": text_cfg},
        "tokenizer": {"start": start, "end": end, "pad": pad},
    }


class VelaCollator:
    """Makes padded batches for `VelaModel.forward`.

    Rows with the same image and caption, which differ in the aspect, share one pass through the image branch.

    Args:
        model: its tokenizers, prompts and preprocessing are used.
    """

    def __init__(self, model: VelaModel) -> None:
        self._aspects = model.config.aspects
        self._prompts = model.text.prompts if model.text is not None else None
        self._towers = model.image.towers if model.image is not None else None

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """A batch of B rows.

        Args:
            rows: {"sample": CaptionSample, "aspect": index of the aspect, "target": rating in [0, 1]}.

        Returns:
            labels (B,), aspect (B,), and as the branches need them input_ids and attention_mask (B, L), pixels
            (S, 3, H, W), clip_ids (S, context_length) and sample (B,).
        """
        samples = [row["sample"] for row in rows]
        aspects = [int(row["aspect"]) for row in rows]
        # labels come first, because the Trainer takes the batch size from the first tensor
        batch = {"labels": torch.tensor([float(row["target"]) for row in rows]), "aspect": torch.tensor(aspects)}
        if self._prompts is not None:
            prompts = [
                self._prompts(sample.candidate, sample.references, self._aspects[aspect])
                for sample, aspect in zip(samples, aspects, strict=True)
            ]
            ids, mask = pad_rows([[*prompt.prefix, *prompt.candidate, *prompt.tail] for prompt in prompts])
            batch |= {"input_ids": ids, "attention_mask": mask}
        if self._towers is not None:
            batch |= self._pairs(samples)
        return batch

    def _pairs(self, samples: Sequence[CaptionSample]) -> dict[str, torch.Tensor]:
        assert self._towers is not None
        places: dict[tuple[str, str], int] = {}
        pixels, rows = [], []
        for sample in samples:
            assert sample.image is not None  # the data set was checked
            key = (image_key(sample.image), sample.candidate)
            if key not in places:
                places[key] = len(places)
                pixels.append(self._towers.preprocess(load_image(sample.image)))
            rows.append(places[key])
        clip_ids, _ = self._towers.tokenize([candidate for _, candidate in places])
        return {"pixels": torch.stack(pixels), "clip_ids": clip_ids, "sample": torch.tensor(rows)}


make_collator = VelaCollator  # see `reward.training.run.MetricTraining`


def save_model(model: VelaModel, folder: Path, *, card: str) -> None:
    """Writes a checkpoint folder with a model card; see `VelaScorer.save_pretrained` for the other files."""
    VelaScorer(model).save_pretrained(folder, card=card)
