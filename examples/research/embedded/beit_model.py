"""BEiTScore, training aids: heads that read what the streams know in between, and their losses. None is shipped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from examples.research.embedded.beit_data import IGNORED, MASK, Batch
from examples.research.embedded.beit_vision import CellReader, cell_loss
from examples.research.embedded.configs import GUIDED, LOOKING, SEEING, WRITING
from examples.research.embedded.facts import CELL_LABELS, cell_labels
from reward.metrics.beitscore.config import BeitScoreConfig
from reward.metrics.beitscore.encoder import Layer, Streams, attention_mask
from reward.metrics.beitscore.model import BeitScoreModel
from reward.scenes.graph import GRID, Scene

__all__ = ["AIDS", "Aided", "Outputs", "aid_losses"]

# The padding token, which is never read, stands for "wrong".
WRONG = 0
# Weights of what a word's cell holds (as in `CELL_LABELS`) and of which cell it is. Roles and places come last.
FOUND = (0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 1.0, 1.0)


@dataclass
class Outputs:
    """What one pass gives.

    Args:
        logits: (B,), of the score.
        cells: what `CellReader` gives.
        words, errors: (B, L, V) and (B, L), logits of the true word in each place, and of the word there being wrong.
        looks: (heads, B, L, 9), share of attention of each text token for each cell in the guided heads of the
            `LOOKING` layers.
        contents: (B, L, classes), logits of what is in the cell that a word is about, and of which cell that is.
        echoes: (B, L, V), logits of the word itself.
        verdicts: (B, L, V), logits of what is claimed where it is right, and of `WRONG` where it is not.
    """

    logits: torch.Tensor
    cells: tuple[torch.Tensor, torch.Tensor]
    words: torch.Tensor
    errors: torch.Tensor
    looks: torch.Tensor
    contents: torch.Tensor
    echoes: torch.Tensor
    verdicts: torch.Tensor


class Aided(nn.Module):
    """A BEiTScore with heads in between.

    A matching loss alone has no first-order signal: whether a word fits the picture is an exclusive-or of the two.
    Naming the true word has one, and once the stream knows the true word and the word that is there, that they
    differ can be learned, and then what the CLS token has to look for.
    """

    def __init__(self, config: BeitScoreConfig) -> None:
        super().__init__()
        self.model = BeitScoreModel(config)
        self.reader = CellReader(config.hidden_size)
        self.writer = nn.Sequential(nn.LayerNorm(config.hidden_size), nn.Linear(config.hidden_size, config.vocab_size))
        self.finder = nn.Sequential(
            nn.LayerNorm(config.hidden_size), nn.Linear(config.hidden_size, sum(CELL_LABELS) + GRID * GRID)
        )
        self.tagger = nn.Sequential(nn.LayerNorm(config.hidden_size), nn.Linear(config.hidden_size, 1))

    def forward(self, pixels: torch.Tensor, image: torch.Tensor, batch: Batch) -> Outputs:
        """Pixels (S, 3, 96, 96) of S scenes, and which scene (B,) each caption of the batch is about."""
        beit3 = self.model.beit3
        seen = beit3.embed_image(pixels)[image]
        text = beit3.embed_text(batch.ids, batch.padding, batch.positions)
        layers = [(seen, text), *beit3.states(seen, text, batch.padding)]
        mask = attention_mask(seen, batch.padding)
        looks = [look(beit3.encoder.layers[index], layers[index], mask) for index in LOOKING]
        first = beit3.encoder.layer_norm.A(layers[-1][0])
        return Outputs(
            logits=self.model.logits(self.model.pooler(first)),
            cells=self.reader(layers[SEEING][0]),
            words=self.writer(layers[WRITING][1]),
            errors=self.tagger(layers[WRITING][1])[..., 0],
            looks=torch.cat(looks),
            contents=self.finder(layers[LOOKING[0] + 1][1]),
            echoes=self._name(layers[LOOKING[0] + 1][1]),
            verdicts=self._name(layers[WRITING][1]),
        )

    def _name(self, text: torch.Tensor) -> torch.Tensor:
        """Logits of the token that a state is most like."""
        return 4.0 * F.layer_norm(text, text.shape[-1:]) @ self.model.beit3.text_embed.weight.T


def look(layer: Layer, streams: Streams, mask: torch.Tensor | None) -> torch.Tensor:
    """Attention (`GUIDED`, B, L, 9) of the text tokens to the cells in a layer's first heads."""
    attention, size = layer.self_attn, layer.self_attn.q_proj.A.out_features // layer.self_attn.heads
    image, text = layer.self_attn_layer_norm(streams)
    rows = GUIDED * size

    def part(states: torch.Tensor, project: nn.Module) -> torch.Tensor:
        return F.linear(states, project.weight[:rows], project.bias[:rows]).unflatten(2, (GUIDED, size)).transpose(1, 2)

    keys = torch.cat([part(image, attention.k_proj.A), part(text, attention.k_proj.B)], dim=2)
    weights = part(text, attention.q_proj.B) @ keys.transpose(2, 3) * size**-0.5
    if mask is not None:
        weights = weights.masked_fill(~mask, -torch.inf)
    patches = weights.softmax(-1)[..., 1 : image.shape[1]]
    return patches.unflatten(3, (3, 2, 3, 2)).sum((4, 6)).flatten(3).transpose(0, 1)


def look_loss(looks: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Minus the log of the attention that falls on the cells a word is about, where that is known."""
    known = batch.cells.any(-1)
    share = (looks * batch.cells).sum(-1)[:, known]
    return -(share + 1e-6).log().mean()


def find_loss(contents: torch.Tensor, batch: Batch, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of what is in the cell that a word is about, and of which cell it is, where it is one.

    Args:
        labels: (B, 9, kinds), of the scene of each caption; see `cell_labels`.
    """
    known = batch.cells.sum(-1) == 1
    rows, _ = known.nonzero(as_tuple=True)
    cell = batch.cells[known].int().argmax(-1)
    target = torch.cat([labels[rows, cell], cell[:, None]], dim=1)
    parts = contents[known].split([*CELL_LABELS, GRID * GRID], dim=-1)
    return sum(FOUND[k] * F.cross_entropy(part, target[:, k]) for k, part in enumerate(parts))


def word_loss(words: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Cross-entropy of the true word where a fact is stated; a tenth where the right word is there to be copied."""
    known = batch.facts & (batch.truth != IGNORED)
    weight = torch.where(batch.ids == batch.truth, 0.1, 1.0)[known]
    each = F.cross_entropy(words[known], batch.truth[known], reduction="none")
    return (each * weight).sum() / weight.sum().clamp(min=1.0)


def echo_loss(echoes: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Cross-entropy of the words that stand where facts are stated.

    To compare a word with what is seen, the stream must still know the word beside all that was added to it.
    """
    return F.cross_entropy(echoes[batch.facts], batch.ids[batch.facts])


def verdict_loss(verdicts: torch.Tensor, batch: Batch, masked: int) -> torch.Tensor:
    """Cross-entropy of "this very word, and it is right" against "wrong".

    Right or wrong alone is an exclusive-or of what is read and what is seen: neither of them predicts it. That "red" is
    there and is right, both predict: so this is learned at once, and "wrong" is what is left.
    """
    where = batch.facts & (batch.ids != masked)
    target = torch.where(batch.wrong, WRONG, batch.names)[where]
    each = F.cross_entropy(verdicts[where], target, reduction="none")
    weight = torch.where(target == WRONG, 1.5, 1.0)
    return (each * weight).sum() / weight.sum()


def error_loss(errors: torch.Tensor, batch: Batch, masked: int) -> torch.Tensor:
    """Binary cross-entropy of "this word is wrong" at words that state facts and are not masked."""
    where = batch.facts & (batch.ids != masked)
    # Wrong words are few: without a weight the head first learns to say "right".
    weight = errors.new_tensor(1.5)
    return F.binary_cross_entropy_with_logits(errors[where], batch.wrong[where].float(), pos_weight=weight)


# Weights of the losses of the heads in between.
AIDS = {"words": 1.0, "errors": 3.0, "cells": 0.2, "looks": 0.5, "contents": 1.0, "echoes": 0.3, "verdicts": 1.0}


def aid_losses(out: Outputs, batch: Batch, scenes: Sequence[Scene]) -> dict[str, torch.Tensor]:
    """The losses of the heads in between; `scenes` are those of the captions."""
    labels = torch.stack([cell_labels(scene) for scene in scenes])
    return {
        "words": word_loss(out.words, batch),
        "errors": error_loss(out.errors, batch, MASK),
        "cells": cell_loss(out.cells, scenes, labels),
        "looks": look_loss(out.looks, batch),
        "contents": find_loss(out.contents, batch, labels),
        "echoes": echo_loss(out.echoes, batch),
        "verdicts": verdict_loss(out.verdicts, batch, MASK),
    }
