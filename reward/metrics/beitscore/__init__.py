"""BEiTScore: one score without references from a cross-encoder that reads image and caption together."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from reward.metrics.base import CheckpointFacts, MetricSpec

if TYPE_CHECKING:
    from reward.metrics.beitscore.checkpoint import LoadReport, load_beit3
    from reward.metrics.beitscore.config import BeitScoreConfig
    from reward.metrics.beitscore.model import BeitScoreModel

# Loaded on first use: listing metrics must not load torch.
_HOMES = {
    "BeitScoreConfig": "reward.metrics.beitscore.config",
    "BeitScoreModel": "reward.metrics.beitscore.model",
    "LoadReport": "reward.metrics.beitscore.checkpoint",
    "load_beit3": "reward.metrics.beitscore.checkpoint",
}
__all__ = ["SPEC", "BeitScoreConfig", "BeitScoreModel", "LoadReport", "load_beit3"]

SPEC = MetricSpec(
    name="beitscore",
    scorer="reward.metrics.beitscore.scorer:BeitScoreScorer",
    sources="checkpoint",
    aspects=("overall",),
    paper="BEiTScore: reference-free image captioning evaluation with an efficient cross-encoder",
    has_embedded=True,
    suits="short, long",
    blind_to="what the caption leaves out",
    checkpoints=(
        CheckpointFacts(
            "my-beitscore",
            weights=222_317_313,
            gflops=234,
            note="trained by you from beit3_base_patch16_480_vqa.pth; its authors publish no weights: "
            "docs/TRAINING_METRICS.md",
        ),
    ),
    citation={
        "author": "Gomes, Gon{\\c{c}}alo and Martins, Bruno and Zerva, Chrysoula",
        "title": "{BEiTScore}: Reference-free Image Captioning Evaluation with an Efficient Cross-Encoder Model",
    },
)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'reward.metrics.beitscore' has no attribute {name!r}")
