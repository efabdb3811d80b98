"""What a user may give where captions are rated."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from PIL import Image

from reward import CaptionSample, CombinedReward, MetricReward, load_scorer
from reward.errors import ConfigError, UnknownMetricError
from reward.rewards.rating import rates_captions
from tests.toys.toy_scorer import ToyScorer

IMAGE = Image.new("RGB", (4, 4))
SAMPLES = [CaptionSample("a red star", image=IMAGE, references=["A star."]), CaptionSample("red")]


@pytest.mark.parametrize("reward", ["length", load_scorer("length"), MetricReward("length")])
def test_names_scorers_and_rewards_rate_captions_alike(reward: Any) -> None:
    assert rates_captions(reward).rewards(SAMPLES) == [3.0, 1.0]


def test_what_rates_captions_is_given_back_itself() -> None:
    length = MetricReward("length")
    for reward in (length, MetricReward(ToyScorer()).aspects()[0], CombinedReward([length])):
        assert rates_captions(reward) is reward


def test_a_reward_function_that_rates_captions_gets_what_it_takes() -> None:
    seen: dict[str, Any] = {}

    def everything(prompts: Any, completions: Any, **columns: Any) -> torch.Tensor:
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

    def some(completions: Any, images: Any, scale: float = 2.0) -> list[float | None]:
        return [None if not given else scale * len(text) for text, given in zip(completions, images, strict=True)]

    assert rates_captions(some).rewards(SAMPLES) == [20.0, None]
    assert rates_captions(functools.partial(some, scale=1.0)).rewards(SAMPLES) == [10.0, None]


def needs_more(completions: Any, solution: Any, completion_ids: Any, **kwargs: Any) -> list[float]:
    return [1.0] * len(completions)


@pytest.mark.parametrize(
    ("reward", "error", "message"),
    [
        (None, ConfigError, "got None"),
        (3, ConfigError, "got 3"),
        (torch.nn.Linear(1, 1), ConfigError, "got Linear"),
        (MetricReward, ConfigError, r"the class MetricReward: write MetricReward\(\)"),
        (needs_more, ConfigError, "needs_more needs solution, completion_ids, and captions come with prompts, comp"),
        (CombinedReward(["length", needs_more]), ConfigError, "needs_more needs solution"),
        ("no such metric", UnknownMetricError, "no such metric"),
    ],
)
def test_what_rates_no_captions_is_refused(reward: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        rates_captions(reward)
