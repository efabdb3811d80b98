"""VelaScorer: scores captions with a VELA model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from reward.backbones.clip import stacked_on
from reward.backbones.language import check_token_budget, default_token_budget
from reward.checkpoints.code import fingerprint_code
from reward.metrics.saving import TrainedScorer
from reward.metrics.scorer import CandidateScores, Group
from reward.metrics.vela import SPEC
from reward.metrics.vela.checkpoint import load_model, trained_tensors
from reward.metrics.vela.model import VelaModel

if TYPE_CHECKING:
    from PIL import Image


class VelaScorer(TrainedScorer):
    """Scores captions with a VELA model.

    Prompts with equal rubric and references share the language model's work on them, equal images are encoded once,
    and equal (image, references, candidate) are scored once. Texts that do not fit are cut: references first, see
    `TextConfig`, and candidates at their ends.

    Args:
        model: a trained model.
        token_budget: most tokens of one forward pass of the language model, counting padding; lower it if memory
            runs out. By default 32,768 on a GPU, 8,192 on a CPU.
        cache, cache_size: see `ClipTowers.feature_caches`; without a folder nothing is kept.

    Example:
        >>> from PIL import Image
        >>> from reward import CaptionSample
        >>> scorer = VelaScorer.from_pretrained("embedded", device="cpu")
        >>> scorer.score([CaptionSample("A red star.", Image.new("RGB", (96, 96)))]).scores.shape
        (1, 3)
    """

    def __init__(
        self,
        model: VelaModel,
        *,
        token_budget: int | None = None,
        cache: str | os.PathLike[str] | None = None,
        cache_size: int | str = "20GB",
    ) -> None:
        check_token_budget(token_budget)
        self.model = model
        self.token_budget = default_token_budget(model.device) if token_budget is None else token_budget
        self.spec = replace(SPEC.with_aspects(model.config.aspects), needs_image=model.image is not None)
        if cache is not None and model.image is not None:
            config = model.config.to_dict()["image"]
            self.caches = model.image.towers.feature_caches(cache, cache_size, fingerprint_code(__name__), config)

    @classmethod
    def _load(cls, checkpoint: str | os.PathLike[str], **placing: Any) -> tuple[VelaModel]:
        return (load_model(checkpoint, **placing),)

    @property
    def reads_references(self) -> bool:
        return self.model.text is not None

    def preprocess(self, image: Image.Image) -> Any:
        return self.model.image.towers.preprocess(image)

    def read_ahead(self, texts: Sequence[str]) -> None:
        if self.model.text is not None:
            self.model.text.prompts.read_ahead(texts)
        if self.model.image is not None:
            self.model.image.towers.read_ahead(texts)

    def cached_features(self, features: torch.Tensor) -> torch.Tensor:
        return features.to(self.model.device)

    def encode_images(self, images: list[Any]) -> torch.Tensor:
        """CLIP features (B, d) of B preprocessed images."""
        features: torch.Tensor = self.model.image.towers.encode_image(stacked_on(self.model.device, images))
        return features

    def score_groups(self, groups: list[Group], batch_size: int | None) -> CandidateScores:
        """Scores (K, A) in [0, 1] of the K candidates of some groups."""
        candidates, texts, images = [], [], []
        for group in groups:
            for candidate in group.rows:
                candidates.append(candidate)
                texts.append((candidate, group.references))
                images.append(group.features)
        truncated = np.zeros(len(candidates), dtype=bool)
        g_r2c = g_i2c = None  # (K, A, 2 * d) and (K, 2 * d); None stays for a branch that the model lacks
        if self.model.text is not None:
            prompts = self.model.text.prompts.tokenize(texts, self.model.config.aspects)
            g_r2c = self.model.text.encode(prompts, token_budget=self.token_budget, max_rows=batch_size)
            for row, aspect_prompts in enumerate(prompts):
                for prompt in aspect_prompts:
                    truncated[row] |= prompt.truncated
        if self.model.image is not None:
            features, is_cut = self._encode_candidates(candidates, batch_size)
            g_i2c = self.model.image.relate(torch.stack(images), features)
            truncated |= is_cut
        # A GPU is waited for once, when the scores are copied.
        scores = self.model.head(g_r2c, g_i2c)
        return CandidateScores(scores.double().cpu().numpy(), truncated)

    def _encode_candidates(self, candidates: list[str], batch_size: int | None) -> tuple[torch.Tensor, np.ndarray]:
        """CLIP features (K, d) of candidates, and which of them were cut (K,)."""
        # Groups may have the same candidates, and CLIP reads a caption alone: each different one is encoded once.
        towers = self.model.image.towers
        positions: dict[str, int] = {}  # of the different candidates
        for candidate in candidates:
            positions.setdefault(candidate, len(positions))
        texts = list(positions)
        features: list[torch.Tensor] = []
        is_cut: list[bool] = []
        step = batch_size or max(1, self.token_budget // towers.context_length)
        for start in range(0, len(texts), step):
            ids, ids_cut = towers.tokenize(texts[start : start + step])
            features.append(towers.encode_text(ids))
            is_cut += ids_cut
        order = [positions[candidate] for candidate in candidates]
        return torch.cat(features)[order], np.array(is_cut)[order]

    def _tensors(self) -> Mapping[str, torch.Tensor]:
        return trained_tensors(self.model)

    def _save_tokenizer(self, folder: Path) -> None:
        if self.model.tokenizer is not None:
            self.model.tokenizer.save_pretrained(folder)
