"""Baselines that compare CLIP's embeddings: CLIPScore, RefCLIPScore, Long-CLIPScore, PAC-S and RefPAC-S."""

from __future__ import annotations

from dataclasses import replace

from reward.metrics.base import MetricSpec

__all__ = ["CLIP", "LONG_CLIP", "PAC", "REF_CLIP", "REF_PAC", "SPECS"]

CLIP = MetricSpec(
    name="clipscore",
    scorer="reward.metrics.clipscore.scorer:ClipScorer",
    aspects=("clipscore",),
    range=(0.0, 2.5),
    paper="CLIPScore: A Reference-free Evaluation Metric for Image Captioning (2021)",
    has_embedded=True,
)
REF_CLIP = MetricSpec(
    name="refclipscore",
    scorer="reward.metrics.clipscore.scorer:RefClipScorer",
    aspects=("refclipscore",),
    needs_references=True,
    range=(0.0, 2 * 2.5 / 3.5),  # harmonic mean of 2.5 and 1
    paper="CLIPScore: A Reference-free Evaluation Metric for Image Captioning (2021)",
    has_embedded=True,
)
LONG_CLIP = MetricSpec(
    name="longclipscore",
    scorer="reward.metrics.clipscore.scorer:LongClipScorer",
    aspects=("longclipscore",),
    range=(0.0, 2.5),
    paper="Long-CLIP: Unlocking the Long-Text Capability of CLIP (2024), in the formula of CLIPScore",
)
PAC = MetricSpec(
    name="pacscore",
    scorer="reward.metrics.clipscore.scorer:PacScorer",
    aspects=("pacscore",),
    range=(0.0, 2.0),
    paper="Positive-Augmented Contrastive Learning for Image and Video Captioning Evaluation (2023)",
)
REF_PAC = replace(
    PAC,
    name="refpacscore",
    scorer="reward.metrics.clipscore.scorer:RefPacScorer",
    aspects=("refpacscore",),
    needs_references=True,
    range=(0.0, 2 * 2.0 / 3.0),  # harmonic mean of 2 and 1
)
SPECS = (CLIP, REF_CLIP, LONG_CLIP, PAC, REF_PAC)
