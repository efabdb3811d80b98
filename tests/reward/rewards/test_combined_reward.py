"""CombinedReward: what it gives for any numbers of its parts, what it passes on and refuses."""

import functools
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from integrations.hf_generate import rerank
from reward import CaptionSample, CombinedReward, MetricReward
from reward.errors import ConfigError, InvalidSampleError, WeightsError
from tests.toys.toy_scorer import ToyScorer
from tests.toys.trainer import TrainerLog, call

quick = settings(max_examples=30, deadline=None)
weight = st.floats(0.01, 100)


class Column:
    """A reward that gives what the data set's column of its name says."""

    def __init__(self, name, low=0.0):
        self.__name__, self.range = name, (low, 1.0)

    def __call__(self, completions, **columns):
        return columns[self.__name__]


A, B = map(Column, "ab")


def of_columns(reward, *values):
    """Rewards of captions to which the columns a, b, ... are given."""
    columns = dict(zip("abcd", values, strict=False))
    return reward(prompts=["Describe."] * len(values[0]), completions=["A star."] * len(values[0]), **columns)


def polite(completions, **kwargs):
    return [float("please" in text) for text in completions]


def first_counts_most(table):
    return np.where(table[:, 1] >= 0.5, table[:, 0], table[:, 1] - 1)


async def later(completions, **kwargs):
    return [0.0] * len(completions)


@quick
@given(first=weight, second=weight, scale=weight)
def test_a_mean_is_weighted_whatever_the_sum_of_the_weights(first, second, scale):
    a, b = np.array([0.25, 1.0]), np.array([0.5, 0.75])
    one, other = np.array([first, second]) / (first + second)
    expected = {
        "mean": one * a + other * b,
        "harmonic": 1 / (one / a + other / b),
        "geometric": a**one * b**other,
    }
    for how, values in expected.items():
        combined = CombinedReward([A, B], how, weights=[first * scale, second * scale])
        assert of_columns(combined, a.tolist(), b.tolist()) == pytest.approx(values, abs=1e-12)


@pytest.mark.parametrize(
    ("reward", "rewards"),
    [
        (CombinedReward([A, B]), [0.375, None, None, None, 0.875]),
        (CombinedReward([A, B], weights=[3, -1]), [0.125, None, None, None, 1.125]),  # a penalty
        (CombinedReward([A, B], weights=[0, 1]), [0.5, 0.5, None, 1.0, 0.75]),  # a part of weight zero changes nothing
        (CombinedReward([A, B], "product"), [0.125, None, None, None, 0.75]),
        (CombinedReward([A, B], "min"), [0.25, None, None, None, 0.75]),
        (CombinedReward([A, B], first_counts_most), [0.25, None, None, None, 1.0]),
        (CombinedReward([CombinedReward([A, B], "min"), B], weights=[1, 3]), [0.4375, None, None, None, 0.75]),
    ],
)
def test_rewards_of_rows_are_none_where_a_part_that_counts_has_no_number(reward, rewards):
    columns = [0.25, None, 0.5, math.inf, 1.0], [0.5, 0.5, math.nan, 1.0, 0.75]
    assert of_columns(reward, *columns) == rewards
    assert of_columns(pickle.loads(pickle.dumps(reward)), *columns) == rewards


def test_parts_get_every_column_and_the_loggers():
    seen = {}

    def nosy(completions, **kwargs):
        seen.update(kwargs)
        return [0.5, None]

    log = TrainerLog()
    combined = CombinedReward([MetricReward(ToyScorer()), nosy], weights=[1, 3], name="both")
    call(combined, ["red", "none"], scene=["a", "b"], log_metric=log)
    assert (seen["scene"], seen["prompts"], seen["log_metric"]) == (["a", "b"], ["Describe."] * 2, log)
    assert "log_extra" not in seen  # the trainer gave none
    assert log.means.items() >= {"toy/colour": 0.5, "both/toy": 0.75, "both/nosy": 0.5, "both/unscored": 0.5}.items()


def test_combinations_nest_get_different_names_and_choose_captions():
    inner = CombinedReward([polite])
    outer = CombinedReward([inner, inner, functools.partial(polite)])
    assert outer.__name__ == "mean_mean_polite_mean_polite_2_polite"
    assert rerank(["A star.", "A star, please."], reward=outer) == [1, 0]
    reward = CombinedReward([MetricReward(ToyScorer(), weights={aspect: 1}) for aspect in ("brev", "col")])
    samples = [CaptionSample(text, image="a.png") for text in ("a red star", "red", "star")]
    assert reward.rewards(samples) == pytest.approx([1 / 3, 1, 0.5])
    assert reward.reason(CaptionSample("red")) == "toy_brev: metric 'toy' needs an image, but the sample has none"


@pytest.mark.parametrize(
    ("parts", "options", "error", "message"),
    [
        (A, {}, TypeError, "parts must be a list of"),
        ([A, torch.nn.Linear(1, 1)], {}, TypeError, r"parts\[1\].*networks and their names"),
        ([A, MetricReward], {}, TypeError, "must be a reward function"),
        ([A, functools.partial(later)], {}, TypeError, r"parts\[1\] is asynchronous"),
        ([A, B], {"how": "median"}, ConfigError, "how must be one of mean, harmonic"),
        ([A, B], {"how": "min", "weights": [1, 2]}, ConfigError, "weights are for a mean"),
        ([A, B], {"weights": [1]}, ConfigError, "one number for each of 2 parts, got"),
        ([A, B], {"weights": {0: 1, 9: 3}}, ConfigError, "weights must be a list of one number"),
        ([A, B], {"weights": [1, -1]}, WeightsError, "sum"),
        ([Column("a", -1), B], {"how": "product"}, ConfigError, r"'a' lies in \[-1, 1\]"),
    ],
)
def test_what_cannot_work_is_refused(parts, options, error, message):
    with pytest.raises(error, match=message):
        CombinedReward(parts, **options)


def test_what_parts_give_must_fit():
    with pytest.raises(InvalidSampleError, match="'b' gave -1"):
        of_columns(CombinedReward([A, B], "product"), [0.5], [-1.0])
    with pytest.raises(InvalidSampleError, match="gave 1 rewards for 2"):
        of_columns(CombinedReward([A, B]), [0, 1], [0.5])
    with pytest.raises(InvalidSampleError, match=r"one number for each of 3 rows.*axis=1"):
        of_columns(CombinedReward([A, B], lambda table: table.mean(axis=0)), [0, 1, 1], [0.5, 1, 1])
