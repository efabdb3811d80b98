"""Baselines that ask a judge one question: CLAIR, about the references, and VQAScore, about the image."""

from __future__ import annotations

from reward.metrics.base import MetricSpec

__all__ = ["CLAIR", "SPECS", "VQASCORE"]

CLAIR = MetricSpec(
    name="clair",
    scorer="reward.metrics.one_question.scorer:ClairScorer",
    aspects=("clair",),
    needs_image=False,
    needs_references=True,
    paper="CLAIR: Evaluating Image Captions with Large Language Models (2023)",
)
VQASCORE = MetricSpec(
    name="vqascore",
    scorer="reward.metrics.one_question.scorer:VqaScorer",
    aspects=("vqascore",),
    paper="Evaluating Text-to-Visual Generation with Image-to-Text Generation (2024)",
)
SPECS = (CLAIR, VQASCORE)
