"""Rewards made of others: what they give for any numbers of their parts, and what they refuse when they are made."""

from __future__ import annotations

import math
import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward import CombinedReward, MetricReward, WeightedReward
from reward.errors import CapRewardError, WeightsError

quick = settings(max_examples=40, deadline=None)
share = st.floats(0, 1)
tables = st.integers(2, 4).flatmap(
    lambda parts: st.lists(st.lists(share, min_size=parts, max_size=parts), min_size=1, max_size=6)
)


class Column:
    """A reward that gives what the data set's column of its name says."""

    def __init__(self, name: str, range: tuple[float, float] = (0.0, 1.0)) -> None:
        self.__name__, self.range = name, range

    def __call__(self, completions: list[str], **columns: Any) -> Any:
        return columns[self.__name__]


def call(reward: Any, *values: list[Any]) -> list[Any]:
    """Rewards of captions to which the columns a, b, ... are given."""
    count = len(values[0])
    given = {name: list(column) for name, column in zip("abcd", values, strict=False)}
    return reward(prompts=["Describe."] * count, completions=["A star."] * count, **given)


A, B = map(Column, "ab")


@quick
@given(tables)
def test_product_min_harmonic_geometric_mean_are_in_this_order_between_0_and_1(rows: list[list[float]]) -> None:
    columns = list(map(list, zip(*rows, strict=True)))
    parts = [Column(name) for name in "abcd"[: len(columns)]]
    made: list[Any] = [CombinedReward(parts, how) for how in ("product", "min", "harmonic", "geometric")]  # type: ignore[arg-type]
    means = [np.array(call(reward, *columns)) for reward in (*made, WeightedReward([(part, 1) for part in parts]))]
    for lower, higher in pairwise(means):
        assert (lower <= higher + 1e-12).all()
    assert (means[0] >= 0).all()
    assert (means[-1] <= 1 + 1e-12).all()
    assert all(reward.range == (0.0, 1.0) for reward in made)


@quick
@given(value=share, members=st.integers(2, 4))
def test_equal_members_give_what_one_gives(value: float, members: int) -> None:
    parts = [Column("a") for _ in range(members)]
    rewards: list[Any] = [CombinedReward(parts, how) for how in ("min", "harmonic", "geometric")]  # type: ignore[arg-type]
    for reward in rewards:
        assert call(reward, [value]) == pytest.approx([value], abs=1e-9)


SOME: list[Any] = [
    CombinedReward([A, B], "product"),
    CombinedReward([A, B], "min"),
    WeightedReward([(CombinedReward([A, B], "min"), 1), (B, 0.5)]),
]


@pytest.mark.parametrize("reward", SOME, ids=lambda reward: reward.__name__)
def test_none_stays_none_and_everything_pickles(reward: Any) -> None:
    values = [[0.25, None, 0.5, 1.0], [0.5, 0.5, math.nan, 0.75]]
    copy = pickle.loads(pickle.dumps(reward))
    result = call(reward, *values)
    assert [value is None for value in result] == [False, True, True, False]
    assert call(copy, *values) == result
    reward = pickle.loads(pickle.dumps(copy))
    assert reward(prompts=[], completions=[], a=[], b=[]) == []
    assert repr(reward).startswith(type(reward).__name__)


VELA = MetricReward("vela")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: VELA.aspect("style"), "no aspect 'style'; known: descriptiveness, relevance, fluency, desc"),
        (lambda: CombinedReward([A, B], "median"), "how must be one of product, min"),  # type: ignore[arg-type]
        (lambda: CombinedReward([], "min"), "at least one reward"),
        (lambda: CombinedReward([Column("a", (-1, 1)), B], "product"), r"'a' lies in \[-1, 1\]"),
        (lambda: WeightedReward([(A, lambda progress: 1.0)]), "must be a finite number"),
        (lambda: call(CombinedReward([A, lambda completions, **_: [-1.0]], "product"), [0.5]), "never negative"),
    ],
)
def test_what_cannot_work_is_refused(make: Any, message: str) -> None:
    with pytest.raises((CapRewardError, WeightsError), match=message):
        make()
