"""Training of VELA: presets, a network from settings, batches of judgements, and the checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own

from reward.backbones.clip import ClipTowers
from reward.backbones.language import END, PAD, START, make_tokenizer, pad_rows
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
    plain = dict(settings)
    plain.pop("gradient_checkpointing", None)
    tokenizer_settings = plain.pop("tokenizer", None)
    tokenizer = None
    for name in ("text", "image"):
        branch = plain.get(name)
        if not isinstance(branch, Mapping) or branch.get("architecture") is None:
            continue
        if tokenizer is None:  # the first branch from scratch; a second one shares its tokenizer
            if set(tokenizer_settings or {}) != {"vocab_size"}:
                raise ConfigError('a branch trained from scratch needs the setting "tokenizer": {"vocab_size": ...}')
            tokenizer = make_tokenizer(texts(), tokenizer_settings["vocab_size"])
        plain[name] = {**branch, "architecture": _with_vocabulary(name, branch["architecture"], tokenizer)}
    try:
        config = VelaConfig.from_dict(plain)
    except CheckpointError as error:
        raise ConfigError(f"model settings: {error}") from error
    return _prepare(VelaModel.from_config(config, tokenizer=tokenizer), settings, precision)


def load_for_training(folder: Path, settings: Mapping[str, Any], *, precision: str = "fp32") -> VelaModel:
    """Loads a checkpoint folder to train it further; of the settings, only `gradient_checkpointing` is used."""
    return _prepare(checkpoint.load_model(folder, revision=None, device="cpu", dtype=None), settings, precision)


def _prepare(model: VelaModel, settings: Mapping[str, Any], precision: str) -> VelaModel:
    """The model as it is trained: whether states are recomputed, what is frozen, and in which type."""
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
            if branch is None or branch.config.backbone is None:
                continue
            for parameter in branch.parameters():
                if not parameter.requires_grad:
                    parameter.data = parameter.data.to(dtype)
    return model


def _with_vocabulary(
    branch: str, architecture: Mapping[str, Any], tokenizer: PreTrainedTokenizerFast
) -> dict[str, Any]:
    """The architecture of a branch, `"text"` or `"image"`, with size and control tokens of the tokenizer."""
    size = len(tokenizer)
    start, end, pad = tokenizer.convert_tokens_to_ids([START, END, PAD])
    if branch == "text":
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
        # Labels come first, because the Trainer takes the batch size from the first tensor.
        batch = {"labels": torch.tensor([float(row["target"]) for row in rows]), "aspect": torch.tensor(aspects)}
        if self._prompts is not None:
            token_rows = []
            for sample, aspect in zip(samples, aspects, strict=True):
                prompt = self._prompts(sample.candidate, sample.references, self._aspects[aspect])
                token_rows.append(prompt.prefix + prompt.candidate + prompt.tail)
            batch["input_ids"], batch["attention_mask"] = pad_rows(token_rows)
        if self._towers is not None:
            batch |= self._pairs(self._towers, samples)
        return batch

    @staticmethod
    def _pairs(towers: ClipTowers, samples: Sequence[CaptionSample]) -> dict[str, torch.Tensor]:
        """The S different pairs of image and caption, and which of them each sample has."""
        numbers: dict[tuple[str, str], int] = {}  # of the pairs, by image key and caption
        pixels = []
        pairs = []
        for sample in samples:
            assert sample.image is not None  # the data set was checked
            key = (image_key(sample.image), sample.candidate)
            if key not in numbers:
                numbers[key] = len(numbers)
                pixels.append(towers.preprocess(load_image(sample.image)))
            pairs.append(numbers[key])
        clip_ids, _ = towers.tokenize([candidate for _, candidate in numbers])
        return {"pixels": torch.stack(pixels), "clip_ids": clip_ids, "sample": torch.tensor(pairs)}


make_collator = VelaCollator  # see `reward.training.stage.MetricTraining`


def save_model(model: VelaModel, folder: Path, *, card: str) -> None:
    """Writes a checkpoint folder with a model card; see `VelaScorer.save_pretrained` for the other files."""
    VelaScorer(model).save_pretrained(folder, card=card)
