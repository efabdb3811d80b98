"""Ranking and choosing by rewards."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward.decoding.selection import best_of_groups, rank

REWARD = st.one_of(st.none(), st.just(math.nan), st.floats(-3, 3), st.integers(-1, 1))


def test_ties_keep_their_order_and_none_comes_last():
    assert rank([None, 1.0, 2.0, math.nan, 2.0, -5.0]) == [2, 4, 1, 5, 0, 3]
    assert rank([]) == []
    assert rank([-math.inf, None, math.inf]) == [2, 0, 1]


@settings(max_examples=60, deadline=None)
@given(st.lists(REWARD, max_size=12))
def test_rank_is_a_permutation_in_falling_order(rewards):
    order = rank(rewards)
    assert sorted(order) == list(range(len(rewards)))
    keys = [-math.inf if rewards[i] is None or math.isnan(rewards[i]) else rewards[i] for i in order]
    assert keys == sorted(keys, reverse=True)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.data())
def test_each_group_gives_its_k_best(groups, size, data):
    rewards = data.draw(st.lists(REWARD, min_size=groups * size, max_size=groups * size))
    k = data.draw(st.integers(1, size))
    chosen = best_of_groups(rewards, size, k)
    for group in range(groups):
        part = rewards[group * size : (group + 1) * size]
        assert chosen[group * k : (group + 1) * k] == [group * size + index for index in rank(part)[:k]]


@pytest.mark.parametrize(("size", "k"), [(2, 1), (0, 1), (3, 0), (3, 4)])
def test_sizes_that_do_not_fit(size, k):
    with pytest.raises(ValueError, match=r"groups of|group size"):
        best_of_groups([1.0, 2.0, 3.0], size, k)
