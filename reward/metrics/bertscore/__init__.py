"""BERTScore: how well the words of a caption match those of a reference, by the states of a BERT or RoBERTa."""

from __future__ import annotations

from reward.metrics.base import CheckpointFacts, MetricSpec

__all__ = ["SPEC"]

SPEC = MetricSpec(
    name="bertscore",
    scorer="reward.metrics.bertscore.scorer:BertScorer",
    sources="model",
    aspects=("f1", "precision", "recall"),
    default_weights={"f1": 1.0},
    needs_image=False,
    needs_references=True,
    range=(-1.0, 1.0),
    suits="short, long",
    blind_to="the image; right words that no reference has",
    checkpoints=(
        CheckpointFacts(
            "FacebookAI/roberta-large",
            "MIT",
            download=1_420_000_000,
            weights=266_136_576,
            gflops=30.2,
            note="17 of its 24 layers are used",
        ),
    ),
    citation={
        "author": "Zhang, Tianyi and Kishore, Varsha and Wu, Felix and Weinberger, Kilian Q. and Artzi, Yoav",
        "title": "{BERTScore}: Evaluating Text Generation with {BERT}",
        "booktitle": "Proceedings of ICLR",
        "year": "2020",
    },
    paper="BERTScore: Evaluating Text Generation with BERT (2020)",
)
