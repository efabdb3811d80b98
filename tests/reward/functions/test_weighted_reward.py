"""WeightedReward: several rewards behind one trainer's call."""

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
from reward import CaptionSample, MetricReward, WeightedReward
from reward.errors import ConfigError, InvalidSampleError, WeightsError
from tests.toy_scorer import ToyScorer


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


def call(reward: Any, completions: list[str], **columns: Any) -> list[float | None]:
    columns.setdefault("image", [Image.new("RGB", (4, 4))] * len(completions))
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
        combined = WeightedReward([(brevity, first * factor), (polite, second * factor)])
        assert call(combined, texts) == pytest.approx(expected.tolist(), abs=1e-12)


def test_a_negative_weight_is_a_penalty() -> None:
    combined = WeightedReward([(MetricReward(ToyScorer(), weights={"col": 1}), 3), (polite, -1)])
    assert call(combined, ["red", "red please"]) == [1.5, 0.25]


def test_one_part_without_a_number_leaves_the_row_out() -> None:
    texts = ["none", "nan", "inf", "fine"]
    assert call(WeightedReward([(sometimes, 1), (polite, 1)]), texts) == [None, None, None, 0.25]
    assert call(WeightedReward([(sometimes, 0), (polite, 1)]), texts) == [0.0] * 4


def test_a_failed_row_of_a_metric_leaves_the_row_out_and_blank_captions_get_the_lowest() -> None:
    combined = WeightedReward([(MetricReward(ToyScorer()), 0.5), (polite, 0.5)])
    assert call(combined, ["it will fail", "", "red"]) == [None, 0.0, 0.5]


def test_parts_get_every_column_and_the_loggers() -> None:
    seen: dict[str, Any] = {}

    def nosy(completions: list[str], **kwargs: Any) -> list[float]:
        seen.update(kwargs)
        kwargs["log_metric"]("nosy/own", 1.0)
        return [0.0] * len(completions)

    logged: dict[str, float] = {}
    extra: dict[str, list[Any]] = {}
    colour = MetricReward(ToyScorer(), name="toy")
    combined = WeightedReward([(colour, 1), (nosy, 1), (sometimes, 2)], name="both")
    call(combined, ["red", "none"], scene=["a", "b"], log_metric=logged.__setitem__, log_extra=extra.__setitem__)
    assert seen["scene"] == ["a", "b"]
    assert seen["prompts"] == ["Describe."] * 2
    assert logged["nosy/own"] == 1.0
    assert logged["both/toy"] == 0.75
    assert logged["both/nosy"] == 0.0
    assert logged["both/sometimes"] == 0.5
    assert logged["both/unscored"] == 0.5
    assert logged["toy/colour"] == 0.5
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
    colour = MetricReward(ToyScorer(), weights={"col": 1})
    captions = ["a red star", "red", "star"]
    reward = WeightedReward([(brief, 1), (colour, 1)])
    assert reward.rewards([CaptionSample(text, image="a.png") for text in captions]) == pytest.approx([1 / 3, 1, 0.5])
    assert rerank(captions, image="a.png", reward=reward) == [1, 2, 0]
    assert rerank(["A star.", "A star, please."], reward=WeightedReward([(polite, 1), (colour, 0)])) == [1, 0]


@pytest.mark.parametrize(
    "weights", [[10**400, 1], [0, 0], [1, -1], [1, -2], [math.nan, 1], [math.inf, 1], ["1", 1], [True, 1], [None, 1]]
)
def test_bad_weights_are_refused(weights: list[Any]) -> None:
    with pytest.raises(WeightsError):
        WeightedReward([(polite, weights[0]), (sometimes, weights[1])])


def test_very_large_weights_do_not_overflow() -> None:
    reward = WeightedReward([(polite, 1e308), (MetricReward("length"), 1e308)])
    assert call(reward, ["a star, please"]) == [2.0]


@pytest.mark.parametrize("parts", [None, polite, MetricReward("length")])
def test_parts_must_be_a_list(parts: Any) -> None:
    with pytest.raises(TypeError, match="parts must be a list of"):
        WeightedReward(parts)


def test_no_parts_are_refused() -> None:
    with pytest.raises(WeightsError, match="positive"):
        WeightedReward([])


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("owner/model", "networks and their names"),
        (torch.nn.Linear(1, 1), "networks and their names"),
        (MetricReward, "must be a reward function"),
        (None, "must be a reward function"),
        (later, r"parts\[1\] is asynchronous"),
        (functools.partial(later), "asynchronous"),
        (Later(), "asynchronous"),
    ],
)
def test_what_is_no_reward_function_is_refused(part: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        WeightedReward([(polite, 1), (part, 1)])


@pytest.mark.parametrize("entry", [polite, (polite,), (polite, 1, 2), "ab"])
def test_parts_must_be_pairs(entry: Any) -> None:
    with pytest.raises(TypeError, match=r"parts\[0\] must be"):
        WeightedReward([entry])


def test_a_part_that_gives_too_few_rewards_is_named() -> None:
    with pytest.raises(InvalidSampleError, match=r"'short' gave 1 rewards for 2 completions"):
        call(WeightedReward([(polite, 1), (short, 1)]), ["a", "b"])
