"""WeightedReward: several rewards behind one trainer's call; and what a user may give where captions are rated."""

from __future__ import annotations

import functools
import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from transformers import TrainerState

from integrations.hf_generate import rerank
from reward import CaptionSample, MetricReward, WeightedReward, load_scorer
from reward.errors import ConfigError, InvalidSampleError, UnknownMetricError, WeightsError
from reward.rewards.wrappers import rates_captions
from tests.toy_scorer import ToyScorer
from tests.trainer_log import TrainerLog


def polite(completions: list[str], **kwargs: Any) -> list[float]:
    return [float("please" in text) for text in completions]


def sometimes(completions: list[str], **kwargs: Any) -> list[float | None]:
    return [{"none": None, "nan": math.nan, "inf": math.inf}.get(text, 0.5) for text in completions]


async def later(completions: list[str], **kwargs: Any) -> list[float]:
    return [0.0] * len(completions)


class Later:
    async def __call__(self, completions: list[str], **kwargs: Any) -> list[float]:
        return [0.0] * len(completions)


def short(completions: list[str], **kwargs: Any) -> list[float]:
    return [0.0] * (len(completions) - 1)


IMAGE = Image.new("RGB", (4, 4))


def call(reward: Any, completions: list[str], **columns: Any) -> list[float | None]:
    columns.setdefault("image", [IMAGE] * len(completions))
    return reward(prompts=["Describe."] * len(completions), completions=completions, completion_ids=None, **columns)


weights = st.floats(0.01, 100)


@settings(max_examples=25, deadline=None)
@given(first=weights, second=weights, scale=weights)
def test_the_result_is_the_weighted_mean_whatever_the_sum_of_the_weights(
    first: float, second: float, scale: float
) -> None:
    brevity = MetricReward(ToyScorer(), weights={"brev": 1})
    texts = ["please red", "red", "a red star please"]
    alone = np.array([call(brevity, texts), call(polite, texts)], dtype=float)
    expected = (first * alone[0] + second * alone[1]) / (first + second)
    for factor in (1, scale):
        combined = WeightedReward([(brevity, first * factor), (second * factor, polite)])  # in either order
        assert call(combined, texts) == pytest.approx(expected.tolist(), abs=1e-12)


COLOUR = MetricReward(ToyScorer(), weights={"col": 1}, name="colour")
WHOLE = MetricReward(ToyScorer(), name="toy")


@pytest.mark.parametrize(
    ("parts", "texts", "rewards"),
    [
        ([(COLOUR, 3), (polite, -1)], ["red", "red please"], [1.5, 0.25]),  # a negative weight is a penalty
        ([(sometimes, 1), (polite, 1)], ["none", "nan", "inf", "fine"], [None, None, None, 0.25]),
        ([(sometimes, 0), (polite, 1)], ["none", "nan", "inf", "fine"], [0.0] * 4),
        ([(WHOLE, 0.5), (polite, 0.5)], ["it will fail", "", "red"], [None, 0.0, 0.5]),
        ([(polite, 1e308), (MetricReward("length"), 1e308)], ["a star, please"], [2.0]),  # no overflow
    ],
)
def test_rewards_of_rows(parts: list[Any], texts: list[str], rewards: list[float | None]) -> None:
    assert call(WeightedReward(parts), texts) == rewards


def test_parts_get_every_column_and_the_loggers() -> None:
    seen: dict[str, Any] = {}

    def nosy(completions: list[str], **kwargs: Any) -> list[float]:
        seen.update(kwargs)
        kwargs["log_metric"]("nosy/own", 1.0)
        return [0.0] * len(completions)

    log = TrainerLog()
    extra: dict[str, list[Any]] = {}
    combined = WeightedReward([(WHOLE, 1), (nosy, 1), (sometimes, 2)], name="both")
    call(combined, ["red", "none"], scene=["a", "b"], log_metric=log, log_extra=extra.__setitem__)
    assert (seen["scene"], seen["prompts"]) == (["a", "b"], ["Describe."] * 2)
    shares = {"both/toy": 0.75, "both/nosy": 0.0, "both/sometimes": 0.5, "both/unscored": 0.5}
    assert log.means.items() >= {"nosy/own": 1.0, "toy/colour": 0.5, **shares}.items()
    assert set(extra) == {"toy/colour", "toy/brevity"}


def test_without_loggers_parts_are_called_without_them() -> None:
    def strict(prompts: Any, completions: Any, completion_ids: Any) -> list[float]:
        return [1.0] * len(completions)

    reward = WeightedReward([(strict, 2)])
    assert reward(prompts=["p"], completions=["c"]) == [1.0]
    assert reward(prompts=[], completions=[]) == []


def test_weighted_rewards_nest_and_get_different_names() -> None:
    inner = WeightedReward([(polite, 1)])
    outer = WeightedReward([(inner, 1), (inner, 1), (functools.partial(polite), 2)])
    assert inner.__name__ == "weighted_polite"
    assert outer.part_names == ["weighted_polite", "weighted_polite_2", "polite"]
    assert outer.__name__ == "weighted_weighted_polite_weighted_polite_2_polite"
    state = TrainerState()
    call(outer, ["please"], trainer_state=state)
    with pytest.raises(ConfigError, match="two rewards of this trainer are named 'weighted_polite'"):
        call(WeightedReward([(polite, 2)]), ["please"], trainer_state=state)
    assert call(outer, ["please"]) == [1.0]
    assert WeightedReward([(polite, 1)], name="mine").__name__ == "mine"


def test_it_pickles_by_its_parts() -> None:
    combined = WeightedReward([(MetricReward("length", name="words"), 1), (polite, 1)], name="both")
    before = call(combined, ["a red star"])
    copy = pickle.loads(pickle.dumps(combined))
    assert (copy.__name__, copy.part_names) == ("both", ["words", "polite"])
    assert call(copy, ["a red star"]) == before == [1.5]


def test_it_chooses_captions() -> None:
    brief = MetricReward(ToyScorer(), weights={"brev": 1})
    captions = ["a red star", "red", "star"]
    reward = WeightedReward([(brief, 1), (COLOUR, 1)])
    assert reward.rewards([CaptionSample(text, image="a.png") for text in captions]) == pytest.approx([1 / 3, 1, 0.5])
    assert rerank(captions, image="a.png", reward=reward) == [1, 2, 0]
    assert rerank(["A star.", "A star, please."], reward=WeightedReward([(polite, 1), (COLOUR, 0)])) == [1, 0]


@pytest.mark.parametrize(
    "weights", [[10**400, 1], [0, 0], [1, -1], [1, -2], [math.nan, 1], [math.inf, 1], ["1", 1], [True, 1], [None, 1]]
)
def test_bad_weights_are_refused(weights: list[Any]) -> None:
    with pytest.raises(WeightsError):
        WeightedReward([(polite, weights[0]), (sometimes, weights[1])])


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        *((parts, TypeError, "parts must be a list of") for parts in (None, polite, MetricReward("length"))),
        ([], WeightsError, "positive"),
        *(([entry], TypeError, r"parts\[0\] must be") for entry in (polite, (polite,), (polite, 1, 2), "ab")),
        *(
            ([(polite, 1), (part, 1)], TypeError, message)
            for part, message in [
                ("owner/model", "networks and their names"),
                (torch.nn.Linear(1, 1), "networks and their names"),
                (MetricReward, "must be a reward function"),
                (None, "must be a reward function"),
                (later, r"parts\[1\] is asynchronous"),
                (functools.partial(later), "asynchronous"),
                (Later(), "asynchronous"),
            ]
        ),
    ],
)
def test_parts_that_are_no_pairs_of_reward_function_and_weight_are_refused(
    parts: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        WeightedReward(parts)


def test_a_part_that_gives_too_few_rewards_is_named() -> None:
    with pytest.raises(InvalidSampleError, match=r"'short' gave 1 rewards for 2 completions"):
        call(WeightedReward([(polite, 1), (short, 1)]), ["a", "b"])


SAMPLES = [CaptionSample("a red star", image=IMAGE, references=["A star."]), CaptionSample("red")]


@pytest.mark.parametrize("reward", ["length", load_scorer("length"), MetricReward("length")])
def test_names_scorers_and_rewards_rate_captions_alike(reward: Any) -> None:
    assert rates_captions(reward).rewards(SAMPLES) == [3.0, 1.0]


def test_what_rates_captions_is_given_back_itself() -> None:
    length = MetricReward("length")
    for reward in (length, MetricReward(ToyScorer()).aspects()[0], WeightedReward([(length, 1)])):
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
        (WeightedReward([(MetricReward("length"), 1), (needs_more, 1)]), ConfigError, "needs_more needs solution"),
        ("no such metric", UnknownMetricError, "no such metric"),
    ],
)
def test_what_rates_no_captions_is_refused(reward: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        rates_captions(reward)
