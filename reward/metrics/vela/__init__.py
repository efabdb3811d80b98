"""VELA: a language model and a CLIP that rate descriptiveness, relevance and fluency of long captions."""

from __future__ import annotations

from reward.metrics.base import MetricSpec

__all__ = ["SPEC"]

SPEC = MetricSpec(
    name="vela",
    scorer="reward.metrics.vela.scorer:VelaScorer",
    aspects=("descriptiveness", "relevance", "fluency"),
    aliases={"desc": "descriptiveness", "rel": "relevance", "flu": "fluency"},
    paper="VELA: An LLM-Hybrid-as-a-Judge Approach for Evaluating Long Image Captions",
    has_embedded=True,
)
