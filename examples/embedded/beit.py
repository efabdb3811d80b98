"""Sizes of the embedded BEiTScore, and where in its depth which help is given during training."""

from __future__ import annotations

from reward.metrics.beitscore.config import BeitScoreConfig

__all__ = ["GUIDED", "LOOKING", "SEEING", "WRITING", "beit_config"]

# Layers after which the image stream must have read its cells, and the text stream must know the true words.
SEEING = 3
WRITING = 5
# Layers (by index) whose first heads are shown where to look: at the cell that a word is about.
LOOKING = (3, 4)
GUIDED = 2


def beit_config(vocabulary: int) -> BeitScoreConfig:
    """The embedded sizes: 2.0 million parameters in the layers, patches of which four are one cell of a scene."""
    return BeitScoreConfig(
        hidden_size=128,
        layers=6,
        heads=4,
        ffn_size=384,
        image_size=96,
        patch_size=16,
        vocab_size=vocabulary,
        text_positions=386,
        head_size=256,
        drop_path=0.0,
    )
