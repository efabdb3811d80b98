"""BEiT-3 as two towers: embeddings of images and captions from a checkpoint of contrastive training (itc)."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
from torch import nn

from reward.backbones.pretrained import usable_device
from reward.checkpoints.weight_files import load_tensors, refuse_integers
from reward.errors import CheckpointError
from reward.metrics.beitscore.checkpoint import load_beit3
from reward.metrics.beitscore.model import BeitScoreModel
from reward.metrics.beitscore.tokenizer import BeitScoreTokenizer

_HEADS = ("vision_head", "language_head")
_CONTEXT = 64  # tokens of a caption in the contrastive training


class Beit3Towers(nn.Module):
    """BEiT-3 reading an image alone or a caption alone; may stand where `ClipTowers` embed.

    Source: BEiT-3 (Wang and others, 2023), retrieval: a linear map of the first state of either stream.

    Args:
        model: its encoder and preprocessing are used.
        vision_head, language_head: weights (D, D) for images and captions.
        tokenizer: of the checkpoint.
    """

    def __init__(
        self,
        model: BeitScoreModel,
        vision_head: torch.Tensor,
        language_head: torch.Tensor,
        tokenizer: BeitScoreTokenizer,
    ) -> None:
        super().__init__()
        self.beit3, self.preprocess = model.beit3, model.preprocess
        self.vision_head = nn.Parameter(vision_head, requires_grad=False)
        self.language_head = nn.Parameter(language_head, requires_grad=False)
        self.tokenizer = tokenizer
        self.embed_dim = model.config.hidden_size

    def tokenize(self, captions: Sequence[str]) -> tuple[torch.Tensor, list[bool]]:
        """Ids (B, L), at most 64 a caption, and whether each caption was cut."""
        ids, _, cut = self.tokenizer(captions)
        return ids, cut

    def encode_text(self, ids: torch.Tensor) -> torch.Tensor:
        """Embeddings (B, D) of token ids (B, L), not normalised."""
        # A stream of length 0 leaves the encoder with the parameters of the other stream alone.
        padding = ids == self.tokenizer.pad
        text = self.beit3.embed_text(ids, padding)
        no_image = text[:, :0]
        _, states = self.beit3(no_image, text, padding)
        return states[:, 0] @ self.language_head.T

    def encode_image(self, pixels: torch.Tensor) -> torch.Tensor:
        """Embeddings (B, D) of pixels (B, 3, S, S), not normalised."""
        image = self.beit3.embed_image(pixels)
        no_text = image[:, :0]
        states, _ = self.beit3(image, no_text, None)
        return states[:, 0] @ self.vision_head.T


def load_beit3_towers(
    path: str | os.PathLike[str], spm: str | os.PathLike[str], *, device: torch.device | str | None = None
) -> Beit3Towers:
    """Loads a checkpoint such as `beit3_large_itc_patch16_224.pth`, in eval mode and float32.

    Args:
        path: `.pth` or `.safetensors` in the published layout.
        spm: the sentencepiece file `beit3.spm`.
        device: the GPU if there is one, by default.

    Raises:
        CheckpointError: a file cannot be loaded, or the checkpoint has no heads for retrieval.
    """
    model, report = load_beit3(path)
    tokenizer = BeitScoreTokenizer.from_spm(spm, max_tokens=min(_CONTEXT, model.config.max_text_tokens))
    for name in _HEADS:
        if f"{name}.weight" not in report.unused:
            raise CheckpointError(
                f"{os.fspath(path)!r} has no {name}: give a checkpoint of BEiT-3 for retrieval, such as "
                "beit3_large_itc_patch16_224.pth"
            )
    if tokenizer.size > model.config.vocab_size:
        raise CheckpointError(
            f"{os.fspath(spm)!r} has {tokenizer.size} tokens, {os.fspath(path)!r} fewer: not one model"
        )
    # Read again, since `load_beit3` gives the names of dropped heads and not their weights.
    tensors = load_tensors(path)
    heads = {name: tensors[f"{name}.weight"] for name in _HEADS}
    refuse_integers(heads, where=repr(os.fspath(path)))
    towers = Beit3Towers(model, heads["vision_head"].float(), heads["language_head"].float(), tokenizer)
    return towers.to(usable_device(device)).eval()
