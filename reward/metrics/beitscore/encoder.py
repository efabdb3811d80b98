"""The BEiT-3 encoder: one transformer over image patches and caption tokens, each with its own parameters."""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from reward.backbones.clip import normalized
from reward.metrics.beitscore.config import BeitScoreConfig

EPS = 1e-5
# The first two rows of both position tables are reserved for padding, as in the toolkit of BEiT-3.
FIRST_POSITION = 2

# States of the image (B, 1 + patches, d) and of the text (B, L, d).
Streams = tuple[torch.Tensor, torch.Tensor]


class Multiway(nn.Module):
    """Two modules of one shape: `A` for the image stream, `B` for the text stream (BEiT-3, section 2.1).

    The streams are kept apart except in attention, so no tensor is split and joined in every layer.
    """

    def __init__(self, make: type[nn.Module], *args: int, **kwargs: float) -> None:
        super().__init__()
        self.A = make(*args, **kwargs)
        self.B = make(*args, **kwargs)

    def forward(self, streams: Streams) -> Streams:
        return self.A(streams[0]), self.B(streams[1])


class Attention(nn.Module):
    """Self-attention over both streams at once, with a LayerNorm before the output projection (sub-LN)."""

    def __init__(self, config: BeitScoreConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.heads = config.heads
        self.q_proj = Multiway(nn.Linear, width, width)
        self.k_proj = Multiway(nn.Linear, width, width)
        self.v_proj = Multiway(nn.Linear, width, width)
        self.out_proj = Multiway(nn.Linear, width, width)
        self.inner_attn_ln = Multiway(nn.LayerNorm, width, eps=EPS)

    def forward(self, streams: Streams, mask: torch.Tensor | None) -> Streams:
        # Each stream has its own projections; attention itself does not know which stream a state is of.
        query = self._split_heads(self.q_proj(streams))
        key = self._split_heads(self.k_proj(streams))
        value = self._split_heads(self.v_proj(streams))
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        mixed = mixed.transpose(1, 2).flatten(2)  # (B, T, d)
        image_length = streams[0].shape[1]
        return self.out_proj(self.inner_attn_ln((mixed[:, :image_length], mixed[:, image_length:])))

    def _split_heads(self, streams: Streams) -> torch.Tensor:
        """The streams as one sequence of T states, split into heads: (B, heads, T, d / heads)."""
        joined = torch.cat(streams, dim=1)
        return joined.view(joined.shape[0], joined.shape[1], self.heads, -1).transpose(1, 2)


class FeedForward(nn.Module):
    """Linear, GELU, LayerNorm (sub-LN), linear."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.ffn_layernorm = nn.LayerNorm(hidden, eps=EPS)
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.ffn_layernorm(F.gelu(self.fc1(x))))


class Layer(nn.Module):
    """Pre-norm attention and feed-forward network, each added to the stream with stochastic depth."""

    def __init__(self, config: BeitScoreConfig, drop_path: float) -> None:
        super().__init__()
        self.drop_path = drop_path
        self.self_attn_layer_norm = Multiway(nn.LayerNorm, config.hidden_size, eps=EPS)
        self.self_attn = Attention(config)
        self.final_layer_norm = Multiway(nn.LayerNorm, config.hidden_size, eps=EPS)
        self.ffn = Multiway(FeedForward, config.hidden_size, config.ffn_size)

    def forward(self, image: torch.Tensor, text: torch.Tensor, mask: torch.Tensor | None) -> Streams:
        streams = (image, text)
        streams = self._add(streams, self.self_attn(self.self_attn_layer_norm(streams), mask))
        return self._add(streams, self.ffn(self.final_layer_norm(streams)))

    def _add(self, streams: Streams, change: Streams) -> Streams:
        if not self.training or self.drop_path == 0:
            return streams[0] + change[0], streams[1] + change[1]
        # One draw a sample for both streams: a layer is skipped for the whole sequence.
        keep = 1 - self.drop_path
        factor = torch.empty(len(change[0]), 1, 1, device=change[0].device).bernoulli_(keep).div_(keep)
        factor = factor.to(change[0].dtype)
        return streams[0] + change[0] * factor, streams[1] + change[1] * factor


class VisionEmbedding(nn.Module):
    """Patches to vectors, with the CLS token in front. `mask_token` is used in pre-training only."""

    def __init__(self, config: BeitScoreConfig) -> None:
        super().__init__()
        size = config.patch_size
        self.proj = nn.Conv2d(3, config.hidden_size, size, stride=size)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, config.hidden_size))
        self.mask_token = nn.Parameter(torch.zeros(1, 1, config.hidden_size))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        patches = self.proj(image.to(self.proj.weight.dtype)).flatten(2).transpose(1, 2)
        return torch.cat([self.cls_token.expand(len(patches), -1, -1), patches], dim=1)


class Encoder(nn.Module):
    """Position tables, layers and the last LayerNorms."""

    def __init__(self, config: BeitScoreConfig) -> None:
        super().__init__()
        self.embed_positions = nn.ModuleDict()
        self.embed_positions["A"] = nn.Embedding(FIRST_POSITION + 1 + config.patches, config.hidden_size)
        self.embed_positions["B"] = nn.Embedding(config.text_positions, config.hidden_size)
        rates = [config.drop_path * k / max(1, config.layers - 1) for k in range(config.layers)]
        self.layers = nn.ModuleList(Layer(config, rate) for rate in rates)
        self.layer_norm = Multiway(nn.LayerNorm, config.hidden_size, eps=EPS)


class Beit3(nn.Module):
    """BEiT-3 without heads; its parameters are named as in the published checkpoints (below `beit3.`).

    The sequence is [image CLS, patches, text tokens]; only text is padded. New weights are drawn as in the
    sub-LN architecture (Foundation Transformers, section 2): values, output and feed-forward matrices are scaled by
    sqrt(log(2 L)).

    Args:
        config: sizes.
    """

    def __init__(self, config: BeitScoreConfig) -> None:
        super().__init__()
        self.config = config
        self.gradient_checkpointing = False
        self.text_embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.vision_embed = VisionEmbedding(config)
        self.encoder = Encoder(config)
        self._initialise()

    def _initialise(self) -> None:
        scale = 1.0
        if self.config.layers > 1:
            scale = math.sqrt(math.log(2 * self.config.layers))
        for name, parameter in self.named_parameters():
            if parameter.is_meta:  # loaded weights will take its place
                return
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif "out_proj" in name and parameter.dim() == 2:
                nn.init.xavier_normal_(parameter)
                parameter.data.mul_(scale)
            elif "proj" in name and parameter.dim() == 2:
                nn.init.xavier_normal_(parameter, gain=2**-0.5)
                if "v_proj" in name:
                    parameter.data.mul_(scale)
            elif ".fc" in name and parameter.dim() == 2:
                nn.init.xavier_normal_(parameter, gain=scale)
            elif "embed" in name:
                nn.init.trunc_normal_(parameter, std=0.02)

    def embed_image(self, image: torch.Tensor) -> torch.Tensor:
        """Embeddings (B, 1 + patches, d) of levels, uint8, or normalised pixels (B, 3, S, S), S the configured size.

        They do not depend on the caption, so captions of one image can share them.
        """
        image = normalized(image, tuple(self.config.image_mean), tuple(self.config.image_std))
        return self.vision_embed(image) + cast(nn.Embedding, self.encoder.embed_positions["A"]).weight[FIRST_POSITION:]

    def embed_text(self, text_ids: torch.Tensor, text_padding_mask: torch.Tensor | None) -> torch.Tensor:
        """Embeddings (B, L, d) of token ids (B, L), int64, L at most `config.max_text_tokens`; padded ones are zero.

        Args:
            text_padding_mask: (B, L), nonzero where padding is; None for none.
        """
        positions = torch.arange(text_ids.shape[1], device=text_ids.device) + FIRST_POSITION
        states = self.text_embed(text_ids) + self.encoder.embed_positions["B"](positions)
        if text_padding_mask is not None:
            states = states.masked_fill(text_padding_mask.bool()[..., None], 0)
        return states

    def forward(self, image: torch.Tensor, text: torch.Tensor, text_padding_mask: torch.Tensor | None) -> Streams:
        """Last states of both streams from their embeddings, of the same shapes; either stream may have length 0.

        Args:
            image, text: what `embed_image` and `embed_text` give, (B, 1 + patches, d) and (B, L, d).
            text_padding_mask: see `embed_text`.
        """
        mask = None
        if text_padding_mask is not None:  # (B, 1, 1, T), True where a state may be attended to
            is_text = ~text_padding_mask.bool()
            is_image = torch.ones(image.shape[:2], dtype=torch.bool, device=is_text.device)
            mask = torch.cat([is_image, is_text], dim=1)[:, None, None]
        for layer in self.encoder.layers:
            if self.gradient_checkpointing and self.training:
                image, text = checkpoint(layer, image, text, mask, use_reentrant=False)
            else:
                image, text = layer(image, text, mask)
        return self.encoder.layer_norm((image, text))
