"""BeitScoreScorer: scores captions with a BEiTScore model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from reward.backbones.clip import stacked_on
from reward.backbones.language import check_token_budget, default_token_budget, token_budget_batches
from reward.metrics.beitscore import SPEC
from reward.metrics.beitscore.checkpoint import load_model
from reward.metrics.beitscore.model import BeitScoreModel
from reward.metrics.beitscore.tokenizer import BeitScoreTokenizer
from reward.metrics.saving import TrainedScorer
from reward.metrics.scorer import CandidateScores, Group, windows

if TYPE_CHECKING:
    from PIL import Image

_WINDOW_BUDGETS = 8  # image embeddings that are in memory at once, in multiples of the token budget


class BeitScoreScorer(TrainedScorer):
    """Scores captions with a BEiTScore model; references are not read.

    Equal images are decoded and embedded once, and equal (image, candidate) are scored once. The encoder itself cannot
    be shared between captions, because image and caption read each other in every layer. A caption longer than the
    model's table of positions is cut at its end. Published BEiT-3 weights are no BEiTScore: training starts from them,
    see `reward.metrics.beitscore.checkpoint.load_beit3`.

    Args:
        model: a trained model.
        tokenizer: the tokenizer it was trained with.
        token_budget: most tokens of one forward pass, image patches and padding included; lower it if memory runs out.
            By default 32,768 on a GPU, 8,192 on a CPU.

    Raises:
        ValueError: the tokenizer does not fit the model.

    Example:
        >>> from PIL import Image
        >>> from reward import CaptionSample
        >>> scorer = BeitScoreScorer.from_pretrained("embedded", device="cpu")
        >>> scorer.score([CaptionSample("A red star.", Image.new("RGB", (96, 96)))]).scores.shape
        (1, 1)
    """

    spec = SPEC

    def __init__(
        self, model: BeitScoreModel, tokenizer: BeitScoreTokenizer, *, token_budget: int | None = None
    ) -> None:
        check_token_budget(token_budget)
        if token_budget is None:
            token_budget = default_token_budget(model.device)
        if tokenizer.size > model.config.vocab_size or tokenizer.max_tokens > model.config.max_text_tokens:
            raise ValueError(
                f"the tokenizer has {tokenizer.size} tokens and gives rows of up to {tokenizer.max_tokens}, but the "
                f"model has {model.config.vocab_size} tokens and room for {model.config.max_text_tokens}"
            )
        self.model, self.tokenizer, self.token_budget = model, tokenizer, token_budget
        self._image_tokens = 1 + model.config.patches
        self.images_per_pass = max(1, token_budget // self._image_tokens)

    @classmethod
    def _load(cls, checkpoint: str | os.PathLike[str], **placing: Any) -> tuple[BeitScoreModel, BeitScoreTokenizer]:
        return load_model(checkpoint, **placing)

    def preprocess(self, image: Image.Image) -> torch.Tensor:
        return self.model.preprocess(image)

    def read_ahead(self, texts: Sequence[str]) -> None:
        self.tokenizer.encode(texts)

    def encode_images(self, images: list[Any]) -> torch.Tensor:
        return self.model.beit3.embed_image(stacked_on(self.model.device, images))

    def score_groups(self, groups: list[Group], batch_size: int | None) -> CandidateScores:
        """Scores (K, 1) in [0, 1] of the K candidates of some groups."""
        candidates, images = [], []
        for group in groups:
            for candidate in group.rows:
                candidates.append(candidate)
                images.append(group.features)
        ids, is_cut = self.tokenizer.encode(candidates)
        lengths = [self._image_tokens + len(row) for row in ids]

        # Image and caption read each other in every layer, so captions of one image share no more than its embedding.
        # A batch has candidates of similar length, so `order` has their indices as the batches have them.
        order: list[int] = []
        logits: list[torch.Tensor] = []
        for batch in token_budget_batches(lengths, self.token_budget, batch_size):
            image = torch.stack([images[index] for index in batch])
            text, padding = self.tokenizer.pad_rows([ids[index] for index in batch])
            mask = None  # attention without a mask is quicker
            if padding.any():
                mask = padding.to(self.model.device)
            _, pooled = self.model.encode_embedded(image, text.to(self.model.device), mask)
            logits.append(self.model.logits(pooled))
            order += batch
        scores = np.empty((len(candidates), 1))
        scores[order, 0] = torch.sigmoid(torch.cat(logits)).double().cpu().numpy()  # a GPU is waited for once
        return CandidateScores(scores, is_cut)

    def _windows(self, groups: list[Group], batch_size: int | None) -> Iterator[list[Group]]:
        # The embeddings of all images of a window are in memory at once, and each is as long as its patches.
        most_images = max(1, _WINDOW_BUDGETS * self.token_budget // self._image_tokens)
        return windows(groups, self.window_size, most_images)

    def _save_tokenizer(self, folder: Path) -> None:
        self.tokenizer.save(folder)
