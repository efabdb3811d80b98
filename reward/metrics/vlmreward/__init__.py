"""Reward models: a model of transformers, mostly one that sees, whose head gives one number for a conversation."""

from __future__ import annotations

import math
from dataclasses import replace

from reward.metrics.base import QWEN_VL_7B, MetricSpec

__all__ = ["SPEC"]

SPEC = MetricSpec(
    name="vlmreward",
    scorer="reward.metrics.vlmreward.scorer:VlmRewardScorer",
    sources="model",
    model_decides=True,  # one of texts alone reads the caption
    model_types=tuple(
        f"{name}ForSequenceClassification"
        for name in ("Gemma*", "Llama", "Mistral", "Mixtral", "Phi3", "Qwen2", "Qwen3", "Qwen3_*")
    ),
    aspects=("vlmreward",),
    range=(-math.inf, math.inf),
    suits="short, long",
    blind_to="what the people who rated its training data overlooked",
    checkpoints=(
        replace(QWEN_VL_7B, source="Skywork/Skywork-VL-Reward-7B", licence="MIT", note="its page asks who you are"),
    ),
    citation={
        "author": "Wang, Xiaokun and Wang, Peiyu and Pei, Jiangbo and Shen, Wei and Peng, Yi and Hao, Yunzhuo and "
        "Qiu, Weijie and Jian, Ai and Xie, Tianyidan and Song, Xuchen and Liu, Yang and Zhou, Yahui",
        "title": "{Skywork-VL Reward}: An Effective Reward Model for Multimodal Understanding and Reasoning",
        "journal": "arXiv:2505.07263",
        "year": "2025",
    },
    paper="Skywork-VL Reward: An Effective Reward Model for Multimodal Understanding and Reasoning (2025)",
)
