"""BERTScore: how well the words of a caption match those of a reference, by the states of a BERT or RoBERTa."""

from __future__ import annotations

from reward.metrics.base import MetricSpec

__all__ = ["SPEC"]

SPEC = MetricSpec(
    name="bertscore",
    scorer="reward.metrics.bertscore.scorer:BertScorer",
    aspects=("f1", "precision", "recall"),
    default_weights={"f1": 1.0},
    needs_image=False,
    needs_references=True,
    range=(-1.0, 1.0),
    paper="BERTScore: Evaluating Text Generation with BERT (2020)",
)
