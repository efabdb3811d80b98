"""BEiTScore: one score without references from a cross-encoder that reads image and caption together."""

from __future__ import annotations

from reward.metrics.base import CheckpointFacts, MetricSpec

__all__ = ["SPEC"]

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
