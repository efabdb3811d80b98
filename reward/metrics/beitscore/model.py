"""BeitScoreModel: BEiT-3, the pooler of its question-answering head, and the head that makes a score."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import nn

from reward.metrics.beitscore.config import BeitScoreConfig
from reward.metrics.beitscore.encoder import EPS, Beit3


@dataclass
class BeitScoreOutput:
    """Output of `BeitScoreModel.forward`: scores and logits (B,)."""

    scores: torch.Tensor
    logits: torch.Tensor


class Pooler(nn.Module):
    """LayerNorm, linear and tanh on the image's CLS state, as in BEiT-3 for question answering."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=EPS)
        self.dense = nn.Linear(width, width)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.dense(self.norm(states[:, 0])))


class BeitScoreModel(nn.Module):
    """The network from pixels and token ids to one score (BEiTScore, section 3.2).

    Args:
        config: sizes.

    Example:
        >>> config = BeitScoreConfig(hidden_size=8, layers=1, heads=2, ffn_size=16, image_size=32, vocab_size=50)
        >>> model = BeitScoreModel(config).eval()
        >>> states, pooled = model.encode(torch.zeros(2, 3, 32, 32), torch.tensor([[0, 7, 2], [0, 2, 1]]),
        ...                               torch.tensor([[0, 0, 0], [0, 0, 1]]))
        >>> tuple(states.shape), tuple(pooled.shape)
        ((2, 8, 8), (2, 8))
    """

    def __init__(self, config: BeitScoreConfig) -> None:
        super().__init__()
        self.config = config
        self.beit3 = Beit3(config)
        self.pooler = Pooler(config.hidden_size)
        self.head = nn.Sequential(
            nn.Linear(config.hidden_size, config.head_size), nn.GELU(), nn.Linear(config.head_size, 1)
        )

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.pooler.dense.weight.device

    def preprocess(self, image: Image.Image) -> torch.Tensor:
        """Levels (3, S, S), uint8: scaled to the square of `config.image_size`, bicubic.

        Args:
            image: RGB, of any size; the sides are scaled independently, nothing is cropped.
        """
        side = self.config.image_size
        scaled = image.resize((side, side), Image.Resampling.BICUBIC)
        return torch.from_numpy(np.array(scaled, dtype=np.uint8).transpose(2, 0, 1))

    def encode(
        self, image: torch.Tensor, text_ids: torch.Tensor, text_padding_mask: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Encoder output and pooled vector.

        Args:
            image: (B, 3, S, S) levels, uint8, or normalised pixels; S is the configured `image_size`.
            text_ids: (B, L), int64, at most `config.max_text_tokens` long.
            text_padding_mask: (B, L), nonzero where padding is; None for none.

        Returns:
            States (B, 1 + patches + L, d) of [image CLS, patches, text], and the pooled vector (B, d) in (-1, 1).
        """
        return self.encode_embedded(self.beit3.embed_image(image), text_ids, text_padding_mask)

    def encode_embedded(
        self, image: torch.Tensor, text_ids: torch.Tensor, text_padding_mask: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """`encode` from image embeddings (B, 1 + patches, d), which captions of one image can share."""
        text = self.beit3.embed_text(text_ids, text_padding_mask)
        streams = self.beit3(image, text, text_padding_mask)
        return torch.cat(streams, dim=1), self.pooler(streams[0])

    def logits(self, pooled: torch.Tensor) -> torch.Tensor:
        """Scores before the sigmoid (B,), float32, of pooled vectors (B, d)."""
        head_dtype = next(self.head.parameters()).dtype  # float32 also in a model of half precision
        return self.head(pooled.to(head_dtype))[:, 0].float()

    def forward(
        self,
        image: torch.Tensor,
        text_ids: torch.Tensor,
        text_padding_mask: torch.Tensor | None = None,
    ) -> BeitScoreOutput:
        """Scores (B,) in [0, 1] of images and captions, differentiable; see `encode` for the arguments."""
        # Training with pairs takes the logits, whose cross-entropy stays exact where a sigmoid is 0 or 1.
        _, pooled = self.encode(image, text_ids, text_padding_mask)
        logits = self.logits(pooled)
        return BeitScoreOutput(scores=torch.sigmoid(logits), logits=logits)
