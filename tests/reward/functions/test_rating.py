"""Whatever a user calls a reward, as what rates captions; what is none is refused before it is asked."""

from __future__ import annotations

import functools

import pytest
import torch
from PIL import Image

from reward import load_scorer
from reward.errors import ConfigError, UnknownMetricError
from reward.functions.metric_reward import MetricReward
from reward.functions.wrappers import AsyncReward, WeightedReward, rates_captions
from reward.samples import CaptionSample
from tests.toy_scorer import ToyScorer

IMAGE = Image.new("RGB", (4, 4))
SAMPLES = [CaptionSample("a red star", image=IMAGE, references=["A star."]), CaptionSample("red")]


@pytest.mark.parametrize("reward", ["length", load_scorer("length"), MetricReward("length")])
def test_names_scorers_and_rewards_rate_alike(reward):
    assert rates_captions(reward).rewards(SAMPLES) == [3.0, 1.0]


def test_what_rates_captions_is_given_back_itself():
    for reward in (
        MetricReward("length"),
        MetricReward(ToyScorer()).aspects()[0],
        WeightedReward([(MetricReward("length"), 1)]),
    ):
        assert rates_captions(reward) is reward


def test_a_reward_function_gets_what_it_takes():
    seen = {}

    def everything(prompts, completions, **columns):
        seen.update(columns, prompts=prompts, completions=completions)
        return torch.tensor([0.5, 2.0])

    assert rates_captions(everything).rewards(SAMPLES) == [0.5, 2.0]
    assert seen == {
        "prompts": [None, None],
        "completions": ["a red star", "red"],
        "image": [IMAGE, None],
        "images": [[IMAGE], []],
        "references": [["A star."], []],
    }

    def some(completions, images, scale=2.0):
        return [None if not given else scale * len(text) for text, given in zip(completions, images, strict=True)]

    assert rates_captions(some).rewards(SAMPLES) == [20.0, None]
    assert rates_captions(functools.partial(some, scale=1.0)).rewards(SAMPLES) == [10.0, None]


async def later(completions, **kwargs):
    return [1.0] * len(completions)


def needs_more(completions, solution, completion_ids, **kwargs):
    return [1.0] * len(completions)


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (None, "got None"),
        (3, "got 3"),
        (torch.nn.Linear(1, 1), "got Linear"),
        (MetricReward, r"the class MetricReward: write MetricReward\(\)"),
        (later, "is asynchronous"),
        (functools.partial(later), "is asynchronous"),
        (AsyncReward(MetricReward("length")), "is asynchronous"),
        (needs_more, "needs_more needs solution, completion_ids, and captions come with prompts, completions, image"),
        (WeightedReward([(MetricReward("length"), 1), (needs_more, 1)]), "needs_more needs solution"),
    ],
)
def test_what_rates_no_captions_is_refused(reward, message):
    with pytest.raises(ConfigError, match=message):
        rates_captions(reward)
    with pytest.raises(UnknownMetricError):
        rates_captions("no such metric")
