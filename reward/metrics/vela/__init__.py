"""VELA: a language model and a CLIP that rate descriptiveness, relevance and fluency of long captions."""

from __future__ import annotations

from reward.metrics.base import CheckpointFacts, MetricSpec

__all__ = ["SPEC"]

SPEC = MetricSpec(
    name="vela",
    scorer="reward.metrics.vela.scorer:VelaScorer",
    sources="checkpoint",
    aspects=("descriptiveness", "relevance", "fluency"),
    aliases={"desc": "descriptiveness", "rel": "relevance", "flu": "fluency"},
    paper="VELA: An LLM-Hybrid-as-a-Judge Approach for Evaluating Long Image Captions",
    has_embedded=True,
    suits="long",
    blind_to="small wrong facts that the references do not hold: of the image it has one vector",
    checkpoints=(
        CheckpointFacts(
            "my-vela",
            "qwen-research (not commercial)",
            download=7_880_000_000,
            weights=3_517_389_828,
            gflops=1_666,
            note="trained by you on Qwen/Qwen2.5-3B-Instruct and BeichenZhang/LongCLIP-L: docs/TRAINING_METRICS.md",
        ),
        CheckpointFacts(
            "http://localhost:8123", note="the weights of VELA's authors, in their own code: docs/SERVICE.md"
        ),
    ),
    citation={
        "author": "Matsuda, Kazuki and Wada, Yuiga and Hirano, Shinnosuke and Otsuki, Seitaro and Sugiura, Komei",
        "title": "{VELA}: An {LLM}-Hybrid-as-a-Judge Approach for Evaluating Long Image Captions",
        "booktitle": "Proceedings of EMNLP",
        "year": "2025",
    },
)
