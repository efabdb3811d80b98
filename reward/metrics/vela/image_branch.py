"""I2C: the CLIP branch, which compares the embeddings of image and candidate."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from reward.backbones.clip import ClipTowers
from reward.metrics.vela.config import ImageConfig

__all__ = ["ImageBranch"]


class ImageBranch(nn.Module):
    """g_i2c = [|h_img - h_cand| ; h_img * h_cand], size 2 * d.

    Args:
        towers: the CLIP. One that is named by a Hub id or folder is frozen, as in the paper.
        config: whether features are normalised.
    """

    def __init__(self, towers: ClipTowers, config: ImageConfig) -> None:
        super().__init__()
        self.towers, self.config = towers, config
        if config.backbone is not None:
            self.towers.requires_grad_(False)
        self.size = 2 * towers.embed_dim

    def encode_image(self, pixels: torch.Tensor) -> torch.Tensor:
        """h_img (B, d), float32, of pixels (B, 3, H, W)."""
        return self._scaled(self.towers.encode_image(pixels))

    def encode_candidate(self, ids: torch.Tensor) -> torch.Tensor:
        """h_cand (B, d), float32, of token ids (B, context_length)."""
        return self._scaled(self.towers.encode_text(ids))

    def _scaled(self, features: torch.Tensor) -> torch.Tensor:
        features = features.float()
        return functional.normalize(features, dim=-1) if self.config.normalise else features

    @staticmethod
    def relate(image: torch.Tensor, candidate: torch.Tensor) -> torch.Tensor:
        """g_i2c (B, 2 * d) of features (B, d) and (B, d)."""
        return torch.cat([(image - candidate).abs(), image * candidate], dim=-1)
