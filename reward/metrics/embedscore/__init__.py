"""The cosine of image and caption by an embedding model of sentence-transformers."""

from __future__ import annotations

from reward.metrics.base import CheckpointFacts, MetricSpec

__all__ = ["SPEC"]

SPEC = MetricSpec(
    name="embedscore",
    scorer="reward.metrics.embedscore.scorer:EmbedScorer",
    sources="model",
    model_types=("SentenceTransformer",),
    aspects=("embedscore",),
    range=(-1.0, 1.0),
    suits="short, long",
    blind_to="grammar; word order; small details",
    extra="rerankers",
    checkpoints=(
        CheckpointFacts(
            "Qwen/Qwen3-VL-Embedding-2B",
            "apache-2.0",
            download=4_255_000_000,
            weights=2_127_532_032,
            dtype="bfloat16",
            note="reads 8,192 tokens",
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
