"""Facts about VELA, readable without loading torch."""

from __future__ import annotations

from reward.metrics.base import MetricSpec

__all__ = ["SPEC"]

SPEC = MetricSpec(
    name="vela",
    scorer="reward.metrics.vela.scorer:VelaScorer",
    aspects=("descriptiveness", "relevance", "fluency"),
    aliases={"desc": "descriptiveness", "rel": "relevance", "flu": "fluency"},
    needs_image=True,
    needs_references=False,
    range=(0.0, 1.0),
    paper="VELA: An LLM-Hybrid-as-a-Judge Approach for Evaluating Long Image Captions",
    has_embedded=True,
)
