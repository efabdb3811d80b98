"""Ranking and choosing by rewards."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from reward.decoding.selection import rank

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
