"""VelaModel: both branches and the head; encodings and head are separate calls."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers.utils import ModelOutput

from reward.errors import CheckpointError
from reward.metrics.vela.config import VelaConfig
from reward.metrics.vela.image_branch import ImageBranch
from reward.metrics.vela.text_branch import PromptTokens, TextBranch

__all__ = ["VelaModel", "VelaOutput"]


@dataclass
class VelaOutput(ModelOutput):
    """Output of `VelaModel.forward`.

    Args:
        loss: mean squared error, when labels were given.
        scores: (B,), in [0, 1].
        hidden_states: (B, L, d), when asked for.
    """

    loss: torch.Tensor | None = None
    scores: torch.Tensor | None = None
    hidden_states: torch.Tensor | None = None


class VelaModel(nn.Module):
    """VELA: y_a = sigmoid(w_a . [g_r2c(a) ; g_i2c] + b_a), with one row of weights an aspect
    (or one for all, if the configuration's `head` says so).

    Source: Matsuda et al., "VELA: An LLM-Hybrid-as-a-Judge Approach for Evaluating Long Image Captions", section 4.

    Args:
        config: see VelaConfig.
        text, image: the branches the config states.
        tokenizer: the checkpoint's own, if a branch has an architecture of its own; saved with it.
    """

    def __init__(
        self, config: VelaConfig, text: TextBranch | None, image: ImageBranch | None, tokenizer: Any | None = None
    ) -> None:
        super().__init__()
        if (text is None) != (config.text is None) or (image is None) != (config.image is None):
            raise ValueError("the branches given are not those of the configuration")
        self.config = config
        self.tokenizer = tokenizer
        self.text, self.image = text, image
        size = (text.size if text is not None else 0) + (image.size if image is not None else 0)
        rows = len(config.aspects) if config.head == "per_aspect" else 1
        self.weight = nn.Parameter(torch.zeros(rows, size))  # zeros: every score starts at 0.5
        self.bias = nn.Parameter(torch.zeros(rows))

    @classmethod
    def from_config(
        cls,
        config: VelaConfig,
        *,
        text_model: nn.Module | None = None,
        tokenizer: Any | None = None,
        clip: nn.Module | None = None,
        dtype: torch.dtype | None = None,
        trust_remote_code: bool = False,
    ) -> VelaModel:
        """Builds a model with an untrained head and untrained adapters.

        Args:
            config: backbones named by Hub id or folder are loaded; architectures of one's own get fresh weights.
            text_model: instead, a causal LM (with or without head) to use as it is.
            tokenizer: the checkpoint's own, which all branches with an architecture of their own share.
            clip: instead, an open_clip model to use as it is, or ClipTowers.
            dtype: of backbones that are loaded here; float32 by default.
            trust_remote_code: whether the language model that is named may bring Python files, which then run.

        Raises:
            ValueError: a tokenizer is needed and not given.
            CheckpointError: a backbone cannot be loaded.
        """
        from reward.metrics.vela.checkpoint import make_decoder, make_towers

        text = image = None
        if config.text is not None:
            decoder, text_tokenizer = make_decoder(config.text, text_model, tokenizer, dtype, trust_remote_code)
            text = TextBranch(decoder, text_tokenizer, config.text)
        if config.image is not None:
            image = ImageBranch(make_towers(config.image, clip, tokenizer, dtype), config.image)
        return cls(config, text, image, tokenizer if config.has_own_tokenizer else None)

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str],
        *,
        revision: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | str | None = None,
        trust_remote_code: bool = False,
    ) -> VelaModel:
        """Loads a trained model, in eval mode; see `VelaScorer.from_pretrained`."""
        from reward.metrics.vela.checkpoint import load_model

        return load_model(source, revision=revision, device=device, dtype=dtype, trust_remote_code=trust_remote_code)

    @property
    def device(self) -> torch.device:
        """Where the head is."""
        return self.weight.device

    def encode_text(
        self, prompts: Sequence[Sequence[PromptTokens]], *, token_budget: int = 8192, max_rows: int | None = None
    ) -> torch.Tensor:
        """g_r2c (N, A, 2 * d_llm) of the prompts of N samples under A aspects; shared prefixes are computed once."""
        if self.text is None:
            raise ValueError("this VELA has no text branch")
        flat = [prompt for row in prompts for prompt in row]
        states = self.text.encode(flat, token_budget=token_budget, max_rows=max_rows)
        return states.view(len(prompts), len(self.config.aspects), -1)

    def encode_image(self, pixels: torch.Tensor) -> torch.Tensor:
        """h_img (B, d_clip) of pixels (B, 3, H, W)."""
        if self.image is None:
            raise ValueError("this VELA has no image branch")
        return self.image.encode_image(pixels)

    def encode_candidate(self, ids: torch.Tensor) -> torch.Tensor:
        """h_cand (B, d_clip) of CLIP token ids (B, context_length)."""
        if self.image is None:
            raise ValueError("this VELA has no image branch")
        return self.image.encode_candidate(ids)

    def head(self, g_r2c: torch.Tensor | None, g_i2c: torch.Tensor | None) -> torch.Tensor:
        """Scores (N, A) in [0, 1] of g_r2c (N, A, 2 * d_llm) and g_i2c (N, 2 * d_clip); None for an absent branch."""
        parts = []
        if g_r2c is not None:
            parts.append(g_r2c)
        if g_i2c is not None:
            parts.append(g_i2c[:, None].expand(-1, len(self.config.aspects), -1))
        return torch.sigmoid((torch.cat(parts, dim=-1) * self.weight).sum(-1) + self.bias)

    def forward(
        self,
        aspect: torch.Tensor,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        pixels: torch.Tensor | None = None,
        clip_ids: torch.Tensor | None = None,
        sample: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        output_hidden_states: bool = False,
    ) -> VelaOutput:
        """Scores one padded batch of (sample, aspect) rows, differentiable.

        Args:
            aspect: (B,), int64, index of each row's aspect.
            input_ids, attention_mask: (B, L), prompts padded on the right; None without text branch.
            pixels: (S, 3, H, W); None without image branch.
            clip_ids: (S, context_length); None without image branch.
            sample: (B,), int64, which of the S images and captions a row is about; None means S = B, one to one.
            labels: (B,), targets in [0, 1].
            output_hidden_states: whether the language model's last states are returned.
        """
        parts, hidden = [], None
        if self.text is not None:
            if input_ids is None or attention_mask is None:
                raise ValueError("this VELA has a text branch: forward needs input_ids and attention_mask")
            pooled, hidden = self.text(input_ids, attention_mask)
            parts.append(pooled)
        if self.image is not None:
            if pixels is None or clip_ids is None:
                raise ValueError("this VELA has an image branch: forward needs pixels and clip_ids")
            related = self.image.relate(self.encode_image(pixels), self.encode_candidate(clip_ids))
            parts.append(related if sample is None else related[sample])
        row = aspect if self.config.head == "per_aspect" else torch.zeros_like(aspect)
        logits = (torch.cat(parts, dim=-1) * self.weight[row]).sum(-1) + self.bias[row]
        scores = torch.sigmoid(logits)
        loss = None if labels is None else nn.functional.mse_loss(scores, labels.to(scores))
        return VelaOutput(loss=loss, scores=scores, hidden_states=hidden if output_hidden_states else None)

    def trained_tensors(self) -> dict[str, torch.Tensor]:
        """What a checkpoint holds: head, adapters, and all of a branch with an architecture of its own."""
        kept = {}
        for key, value in self.state_dict().items():
            branch = {"text": self.config.text, "image": self.config.image}.get(key.split(".", 1)[0])
            if branch is None or branch.backbone is None or ".lora_" in key:
                kept[key] = value
        return kept

    def load_trained(self, tensors: dict[str, torch.Tensor], *, where: str) -> None:
        """Fills in what `trained_tensors` gives; exactly those keys.

        Raises:
            CheckpointError: keys are missing, left over or of another shape.
        """
        from reward.checkpoints import load_strict

        trained = self.trained_tensors()
        frozen = {key: value for key, value in self.state_dict().items() if key not in trained}
        extra = [key for key in tensors if key in frozen]
        if extra:
            raise CheckpointError(f"{where} holds weights of a backbone that the configuration names: {extra[0]}, ...")
        load_strict(self, {**frozen, **tensors}, where=where)
