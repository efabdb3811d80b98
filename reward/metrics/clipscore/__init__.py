"""Baselines that compare CLIP's embeddings: CLIPScore, RefCLIPScore, Long-CLIPScore, SigLIP, PAC-S and RefPAC-S."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reward.metrics.base import CheckpointFacts, MetricSpec

__all__ = ["CLIP", "LONG_CLIP", "PAC", "REF_CLIP", "REF_PAC", "SIGLIP", "SPECS"]

_B32: dict[str, Any] = {"weights": 151_277_313, "gflops": 6.11}
_L14: dict[str, Any] = {"weights": 427_616_513, "gflops": 31.5}
_BY_HAND = "a file that you fetch from the page of its authors; keep its name"

CLIP = MetricSpec(
    name="clipscore",
    scorer="reward.metrics.clipscore.scorer:ClipScorer",
    sources="clip",
    aspects=("clipscore",),
    range=(0.0, 2.5),
    suits="short",
    blind_to="what comes after the 77th token; word order, counts, who does what to whom; grammar",
    checkpoints=(
        CheckpointFacts("ViT-B-32:openai", "apache-2.0", download=605_000_000, **_B32, note="the CLIP of the paper"),
        CheckpointFacts("ViT-L-14:openai", "apache-2.0", download=1_710_000_000, **_L14),
        CheckpointFacts("ViT-H-14:laion2b_s32b_b79k", "MIT", download=3_944_552_236, weights=986_109_441, gflops=81.5),
    ),
    citation={
        "author": "Hessel, Jack and Holtzman, Ari and Forbes, Maxwell and Le Bras, Ronan and Choi, Yejin",
        "title": "{CLIPScore}: A Reference-free Evaluation Metric for Image Captioning",
        "booktitle": "Proceedings of EMNLP",
        "year": "2021",
    },
    paper="CLIPScore: A Reference-free Evaluation Metric for Image Captioning (2021)",
    has_embedded=True,
    model_types=(
        *("clip", "metaclip_2", "altclip", "chinese_clip", "align", "aimv2", "flava", "clipseg", "groupvit"),
        *("owlvit", "owlv2", "tipsv2", "vision-text-dual-encoder"),
    ),
)
REF_CLIP = replace(
    CLIP,
    model_types=(),
    name="refclipscore",
    scorer="reward.metrics.clipscore.scorer:RefClipScorer",
    aspects=("refclipscore",),
    needs_references=True,
    range=(0.0, 2 * 2.5 / 3.5),  # harmonic mean of 2.5 and 1
)
LONG_CLIP = MetricSpec(
    name="longclipscore",
    scorer="reward.metrics.clipscore.scorer:LongClipScorer",
    sources="clip",
    aspects=("longclipscore",),
    range=(0.0, 2.5),
    suits="long",
    blind_to="what comes after the 248th token; word order and counts; grammar",
    checkpoints=(
        CheckpointFacts(
            "BeichenZhang/LongCLIP-L", "apache-2.0", download=1_711_920_771, weights=427_747_841, gflops=31.5
        ),
        CheckpointFacts(
            "BeichenZhang/LongCLIP-B", "apache-2.0", download=599_000_000, weights=149_708_289, gflops=9.40
        ),
    ),
    paper="Long-CLIP: Unlocking the Long-Text Capability of CLIP (2024), in the formula of CLIPScore",
    citation={
        "author": "Zhang, Beichen and Zhang, Pan and Dong, Xiaoyi and Zang, Yuhang and Wang, Jiaqi",
        "title": "{Long-CLIP}: Unlocking the Long-Text Capability of {CLIP}",
        "booktitle": "Proceedings of ECCV",
        "year": "2024",
    },
)
SIGLIP = MetricSpec(
    name="siglipscore",
    scorer="reward.metrics.clipscore.scorer:SiglipScorer",
    sources="clip",
    aspects=("siglipscore",),
    suits="short",
    blind_to="what comes after the 64th token; word order, counts, who does what to whom; grammar",
    checkpoints=(
        CheckpointFacts(
            "google/siglip2-so400m-patch14-384",
            "apache-2.0",
            download=4_544_000_000,
            weights=1_136_008_498,
            gflops=137.0,
            note="the first to try for short captions; reads many languages",
        ),
        CheckpointFacts(
            "google/siglip-so400m-patch14-384", "apache-2.0", download=3_512_000_000, weights=877_960_498, gflops=137.0
        ),
    ),
    citation={
        "author": "Zhai, Xiaohua and Mustafa, Basil and Kolesnikov, Alexander and Beyer, Lucas",
        "title": "Sigmoid Loss for Language Image Pre-Training",
        "booktitle": "Proceedings of ICCV",
        "year": "2023",
    },
    paper="Sigmoid Loss for Language Image Pre-Training (2023)",
    model_types=("siglip", "siglip2"),
)
PAC = MetricSpec(
    name="pacscore",
    scorer="reward.metrics.clipscore.scorer:PacScorer",
    sources="clip",
    aspects=("pacscore",),
    range=(0.0, 2.0),
    suits="short",
    blind_to=CLIP.blind_to,
    checkpoints=tuple(
        CheckpointFacts(f"{stem}_ViT-{name}.pth", **facts, note=_BY_HAND)
        for stem, name, facts in (
            ("clip", "B-32", _B32),
            ("openClip", "L-14", _L14),
            ("PAC++_clip", "B-32", _B32),
            ("PAC++_clip", "L-14", _L14),
        )
    ),
    citation={
        "author": "Sarto, Sara and Barraco, Manuele and Cornia, Marcella and Baraldi, Lorenzo and Cucchiara, Rita",
        "title": "Positive-Augmented Contrastive Learning for Image and Video Captioning Evaluation",
        "booktitle": "Proceedings of CVPR",
        "year": "2023",
    },
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
SPECS = (CLIP, REF_CLIP, LONG_CLIP, SIGLIP, PAC, REF_PAC)
