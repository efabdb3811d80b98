"""Cross-encoders of sentence-transformers, which read image and caption together, as rerankers of searches do."""

from __future__ import annotations

import math

from reward.metrics.base import CheckpointFacts, MetricSpec

__all__ = ["SPEC"]

SPEC = MetricSpec(
    name="crossencoder",
    scorer="reward.metrics.crossencoder.scorer:CrossEncoderScorer",
    sources="model",
    model_decides=True,  # one of texts alone compares with references
    # what sentence-transformers 5.4 and newer writes, and the architectures of rerankers that older versions wrote
    model_types=(
        "CrossEncoder",
        *(f"{name}ForSequenceClassification" for name in ("*Bert", "*[Rr]oberta*", "Deberta*", "Electra", "Gte*")),
    ),
    aspects=("crossencoder",),
    range=(-math.inf, math.inf),
    suits="short, long",
    blind_to="grammar; what nobody would search for",
    extra="rerankers",
    checkpoints=(
        CheckpointFacts(
            "Qwen/Qwen3-VL-Reranker-2B",
            "apache-2.0",
            download=4_255_000_000,
            weights=2_127_532_032,
            dtype="bfloat16",
            note="needs a revision that has modules.json",
        ),
    ),
    citation={
        "author": "Reimers, Nils and Gurevych, Iryna",
        "title": "{Sentence-BERT}: Sentence Embeddings using {Siamese} {BERT}-Networks",
        "booktitle": "Proceedings of EMNLP",
        "year": "2019",
    },
    paper="Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks (2019), whose library loads the models",
)
