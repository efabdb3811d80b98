"""Ranking captions that exist already."""

from __future__ import annotations

import pytest
from PIL import Image

from integrations.hf_generate import rerank
from reward.errors import InvalidSampleError
from reward.functions.metric_reward import MetricReward
from tests.toy_scorer import ToyScorer

IMAGE = Image.new("RGB", (4, 4))


def test_best_first_ties_by_order_unscorable_last():
    reward = MetricReward(ToyScorer(), weights={"col": 1})
    captions = ["a star", "it will fail", "red star", "", "red", "blue star", "red star"]
    assert rerank(captions, image=IMAGE, references=["A red star."], reward=reward) == [4, 2, 6, 0, 5, 1, 3]
    assert rerank([], image=IMAGE, reward=reward) == []


def test_references_reach_the_metric_and_bad_ones_are_refused():
    class Count:
        def rewards(self, samples):
            return [float(len(sample.references)) for sample in samples]

    assert rerank(["a"], image=IMAGE, references=["x", "y"], reward=Count()) == [0]
    with pytest.raises(InvalidSampleError, match="got one string"):
        rerank(["a"], image=IMAGE, references="x", reward=Count())
