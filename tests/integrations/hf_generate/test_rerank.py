"""Ranking captions that exist already."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest
import torch
from PIL import Image

from integrations.hf_generate import rerank
from reward.errors import InvalidSampleError
from reward.rewards.metric_reward import MetricReward
from reward.rewards.named_rewards import VelaReward
from reward.scenes import describe, render, sample_scene
from tests.integrations.hf_generate.test_best_of_n import Letters
from tests.toys.toy_scorer import ToyScorer

IMAGE = Image.new("RGB", (4, 4))


def test_best_first_ties_by_order_unscorable_last():
    reward = MetricReward(ToyScorer(), weights={"col": 1})
    captions = ["a star", "it will fail", "red star", "", "red", "blue star", "red star"]
    assert rerank(captions, image=IMAGE, references=["A red star."], reward=reward) == [4, 2, 6, 0, 5, 1, 3]
    assert rerank([" ", ""], image=IMAGE, reward=reward) == [0, 1]
    assert rerank([], image=IMAGE, reward=reward) == []


@pytest.mark.parametrize(("references", "read"), [(["x", "y"], ("x", "y")), ("x y", ("x y",))])
def test_references_reach_the_metric(references, read):
    counts = Letters(lambda sample: float(len(sample.references)))
    assert rerank(["a"], image=IMAGE, references=references, reward=counts) == [0]
    assert [sample.references for sample in counts.samples] == [read]


@pytest.fixture(scope="module")
def vela():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the embedded checkpoint is for tests such as these
        return VelaReward()


def test_arrays_tensors_and_lists_of_one_are_images(vela):
    scene = sample_scene(random.Random(3))
    image = render(scene)
    captions = ["a dog", describe(scene, random.Random(3)).text]
    expected = rerank(captions, image=image, reward=vela)
    assert expected == [1, 0]
    pixels = np.array(image)
    for same in ([image], pixels, torch.from_numpy(pixels).permute(2, 0, 1) / 255):
        assert rerank(captions, image=same, reward=vela) == expected


def test_any_iterable_with_an_order_is_ranked_and_nothing_else():
    assert rerank((text for text in ("a", "a b c")), reward="length") == [1, 0]
    assert rerank({"a": 1, "a b c": 2}.keys(), reward="length") == [1, 0]
    for candidates in ("abc", b"abc", {"a": 1}, {"a", "b"}, 3, None):
        with pytest.raises(InvalidSampleError, match="candidates must be a list, got"):
            rerank(candidates, reward="length")
