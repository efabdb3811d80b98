"""CapRL: how many questions about the image a reader can answer who has the caption and not the image."""

from __future__ import annotations

from reward.metrics.base import MetricSpec
from reward.metrics.published import QWEN_VL_3B, QWEN_VL_7B

__all__ = ["SPEC"]

SPEC = MetricSpec(
    name="caprl",
    scorer="reward.metrics.caprl.scorer:CapRLScorer",
    sources="judge",
    aspects=("right", "answered"),
    default_weights={"right": 1.0},
    suits="long",
    blind_to="wrong facts that no question asks for; grammar; padding, since length costs nothing",
    checkpoints=(QWEN_VL_7B, QWEN_VL_3B),
    citation={
        "author": "Xing, Long and Dong, Xiaoyi and Zang, Yuhang and Cao, Yuhang and Liang, Jianze and Huang, Qidong "
        "and Wang, Jiaqi and Wu, Feng and Lin, Dahua",
        "title": "{CapRL}: Stimulating Dense Image Caption Capabilities via Reinforcement Learning",
        "eprint": "2509.22647",
        "archivePrefix": "arXiv",
        "year": "2025",
    },
    paper="CapRL: Stimulating Dense Image Caption Capabilities via Reinforcement Learning (arXiv 2509.22647)",
)
