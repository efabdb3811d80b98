"""CombinedReward: what it gives for any numbers of its parts, what it passes on and refuses."""

from __future__ import annotations

import functools
import math
import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from transformers import TrainerState

from integrations.hf_generate import rerank
from reward import CaptionSample, CombinedReward, MetricReward
from reward.errors import ConfigError, InvalidSampleError, WeightsError
from tests.toys.toy_scorer import ToyScorer
from tests.toys.trainer_log import TrainerLog

quick = settings(max_examples=40, deadline=None)
share, weight = st.floats(0, 1), st.floats(0.01, 100)
tables = st.integers(2, 4).flatmap(
    lambda parts: st.lists(st.lists(share, min_size=parts, max_size=parts), min_size=1, max_size=6)
)
WAYS: list[Any] = ["product", "min", "harmonic", "geometric", "mean"]
IMAGE = Image.new("RGB", (4, 4))


class Column:
    """A reward that gives what the data set's column of its name says."""

    def __init__(self, name: str, range: tuple[float, float] = (0.0, 1.0)) -> None:
        self.__name__, self.range = name, range

    def __call__(self, completions: list[str], **columns: Any) -> Any:
        return columns[self.__name__]


def polite(completions: list[str], **kwargs: Any) -> list[float]:
    return [float("please" in text) for text in completions]


def sometimes(completions: list[str], **kwargs: Any) -> list[float | None]:
    return [{"none": None, "nan": math.nan, "inf": math.inf}.get(text, 0.5) for text in completions]


async def later(completions: list[str], **kwargs: Any) -> list[float]:
    return [0.0] * len(completions)


class Later:
    async def __call__(self, completions: list[str], **kwargs: Any) -> list[float]:
        return [0.0] * len(completions)


def first_counts_most(table: np.ndarray) -> np.ndarray:
    return np.where(table[:, 1] >= 0.5, table[:, 0], table[:, 1] - 1)


def of_columns(reward: Any, *values: list[Any]) -> list[Any]:
    """Rewards of captions to which the columns a, b, ... are given."""
    given = {name: list(column) for name, column in zip("abcd", values, strict=False)}
    return reward(prompts=["Describe."] * len(values[0]), completions=["A star."] * len(values[0]), **given)


def call(reward: Any, completions: list[str], **columns: Any) -> list[float | None]:
    columns.setdefault("image", [IMAGE] * len(completions))
    return reward(prompts=["Describe."] * len(completions), completions=completions, completion_ids=None, **columns)


A, B = map(Column, "ab")
COLOUR = MetricReward(ToyScorer(), weights={"col": 1}, name="colour")
WHOLE = MetricReward(ToyScorer(), name="toy")


@quick
@given(tables)
def test_product_min_harmonic_geometric_mean_are_in_this_order_between_0_and_1(rows: list[list[float]]) -> None:
    columns = list(map(list, zip(*rows, strict=True)))
    parts = [Column(name) for name in "abcd"[: len(columns)]]
    means = [np.array(of_columns(CombinedReward(parts, how), *columns)) for how in WAYS]
    for lower, higher in pairwise(means):
        assert (lower <= higher + 1e-12).all()
    assert (means[0] >= 0).all()
    assert (means[-1] <= 1 + 1e-12).all()


@quick
@given(value=share, members=st.integers(2, 4))
def test_equal_members_give_what_one_gives(value: float, members: int) -> None:
    for how in WAYS[1:]:
        parts = [Column("a") for _ in range(members)]
        assert of_columns(CombinedReward(parts, how), [value]) == pytest.approx([value], abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(first=weight, second=weight, scale=weight)
def test_a_mean_is_weighted_whatever_the_sum_of_the_weights(first: float, second: float, scale: float) -> None:
    a, b = [0.25, 1.0], [0.5, 0.75]
    shares = np.array([first, second]) / (first + second)
    expected = {
        "mean": shares[0] * np.array(a) + shares[1] * np.array(b),
        "harmonic": 1 / (shares[0] / np.array(a) + shares[1] / np.array(b)),
        "geometric": np.array(a) ** shares[0] * np.array(b) ** shares[1],
    }
    for factor in (1, scale):
        for how, values in expected.items():
            combined = CombinedReward([A, B], how, weights=[first * factor, second * factor])  # type: ignore[arg-type]
            assert of_columns(combined, a, b) == pytest.approx(values, abs=1e-12)


@pytest.mark.parametrize(
    ("parts", "weights", "texts", "rewards"),
    [
        ([COLOUR, polite], [3, -1], ["red", "red please"], [1.5, 0.25]),  # a negative weight is a penalty
        ([sometimes, polite], None, ["none", "nan", "inf", "fine"], [None, None, None, 0.25]),
        ([sometimes, polite], [0, 1], ["none", "nan", "inf", "fine"], [0.0] * 4),
        ([WHOLE, polite], [0.5, 0.5], ["it will fail", "", "red"], [None, 0.0, 0.5]),
    ],
)
def test_rewards_of_rows(parts: list[Any], weights: Any, texts: list[str], rewards: list[float | None]) -> None:
    assert call(CombinedReward(parts, weights=weights), texts) == rewards


@pytest.mark.parametrize(
    "reward",
    [
        *(CombinedReward([A, B], how) for how in ("product", "min", first_counts_most)),  # type: ignore[arg-type]
        CombinedReward([CombinedReward([A, B], "min"), B], weights=[1, 0.5]),
    ],
    ids=lambda reward: reward.__name__,
)
def test_none_stays_none_and_everything_pickles(reward: Any) -> None:
    values = [[0.25, None, 0.5, 1.0], [0.5, 0.5, math.nan, 0.75]]
    copy = pickle.loads(pickle.dumps(reward))
    result = of_columns(reward, *values)
    assert [value is None for value in result] == [False, True, True, False]
    assert of_columns(copy, *values) == result
    assert copy(prompts=[], completions=[], a=[], b=[]) == []
    assert (copy.__name__, copy.part_names) == (reward.__name__, reward.part_names)
    assert repr(reward).startswith(type(reward).__name__)


def test_a_rule_of_ones_own_sees_the_rows_of_which_every_part_has_a_number() -> None:
    reward = CombinedReward([A, B], first_counts_most)
    assert of_columns(reward, [0.3, 0.9, None], [0.5, 0.25, 1.0]) == [0.3, -0.75, None]
    assert reward.__name__ == "first_counts_most_a_b"
    best = CombinedReward([A, B], lambda table: np.nanmax(table, axis=1), name="best")
    assert of_columns(best, [0.3, None], [0.5, 1.0]) == [0.5, None]


def test_parts_get_every_column_and_the_loggers() -> None:
    seen: dict[str, Any] = {}

    def nosy(completions: list[str], **kwargs: Any) -> list[float]:
        seen.update(kwargs)
        kwargs["log_metric"]("nosy/own", 1.0)
        return [0.0] * len(completions)

    def strict(prompts: Any, completions: Any, completion_ids: Any) -> list[float]:
        return [1.0] * len(completions)

    log, extra = TrainerLog(), dict[str, list[Any]]()
    combined = CombinedReward([WHOLE, nosy, sometimes], weights=[1, 1, 2], name="both")
    call(combined, ["red", "none"], scene=["a", "b"], log_metric=log, log_extra=extra.__setitem__)
    assert (seen["scene"], seen["prompts"]) == (["a", "b"], ["Describe."] * 2)
    shares = {"both/toy": 0.75, "both/nosy": 0.0, "both/sometimes": 0.5, "both/unscored": 0.5}
    assert log.means.items() >= {"nosy/own": 1.0, "toy/colour": 0.5, **shares}.items()
    assert set(extra) == {"toy/colour", "toy/brevity"}
    assert CombinedReward([strict])(prompts=["p"], completions=["c"]) == [1.0]  # without loggers, without them


def test_combinations_nest_and_get_different_names() -> None:
    inner = CombinedReward([polite])
    outer = CombinedReward([inner, inner, functools.partial(polite)])
    assert inner.__name__ == "mean_polite"
    assert outer.part_names == ["mean_polite", "mean_polite_2", "polite"]
    assert outer.__name__ == "mean_mean_polite_mean_polite_2_polite"
    state = TrainerState()
    call(outer, ["please"], trainer_state=state)
    with pytest.raises(ConfigError, match="two rewards of this trainer are named 'mean_polite'"):
        call(CombinedReward([polite]), ["please"], trainer_state=state)
    assert call(outer, ["please"]) == [1.0]
    assert CombinedReward([polite], name="mine").__name__ == "mine"


def test_it_chooses_captions() -> None:
    brief = MetricReward(ToyScorer(), weights={"brev": 1})
    captions = ["a red star", "red", "star"]
    reward = CombinedReward([brief, COLOUR])
    assert reward.rewards([CaptionSample(text, image="a.png") for text in captions]) == pytest.approx([1 / 3, 1, 0.5])
    assert rerank(captions, image="a.png", reward=reward) == [1, 2, 0]
    assert rerank(["A star.", "A star, please."], reward=CombinedReward([polite, COLOUR], weights=[1, 0])) == [1, 0]
    assert reward.reason(CaptionSample("red")) == "toy_brev: metric 'toy' needs an image, but the sample has none"


@pytest.mark.parametrize(
    "weights", [[0, 0], [1, -1], [1, -2], [math.nan, 1], [math.inf, 1], ["1", 1], [True, 1], [None, 1]]
)
def test_bad_weights_are_refused(weights: list[Any]) -> None:
    with pytest.raises(WeightsError):
        CombinedReward([polite, sometimes], weights=weights)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: CombinedReward(WHOLE), TypeError, "parts must be a list of"),  # type: ignore[arg-type]
        *(
            (lambda part=part: CombinedReward([polite, part]), TypeError, message)
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
        (lambda: CombinedReward([]), ConfigError, "at least one reward"),
        (lambda: CombinedReward([A, B], "median"), ConfigError, "how must be one of mean, harmonic"),  # type: ignore[arg-type]
        (lambda: CombinedReward([A, B], "min", weights=[1, 2]), ConfigError, "weights are for a mean"),
        (lambda: CombinedReward([A, B], weights=[1]), ConfigError, "1 weights for 2 parts"),
        (lambda: CombinedReward([Column("a", (-1, 1)), B], "product"), ConfigError, r"'a' lies in \[-1, 1\]"),
        (lambda: of_columns(CombinedReward([A, B], "product"), [0.5], [-1.0]), InvalidSampleError, "'b' gave -1"),
        (lambda: MetricReward("vela").aspect("style"), ConfigError, "no aspect 'style'; known: descriptiveness, rel"),
        (
            lambda: of_columns(CombinedReward([A, lambda **_: [0.5]]), [0, 1]),
            InvalidSampleError,
            "gave 1 rewards for 2",
        ),
    ],
)
def test_what_cannot_work_is_refused(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
