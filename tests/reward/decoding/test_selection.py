"""Ranking and choosing by rewards."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from reward.decoding.selection import rank, rerank, soft_rank
from reward.errors import ConfigError

REWARDS = [0.3, 0.9, None, 0.6, 0.1]
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


def test_a_soft_choice_at_temperature_0_is_the_best():
    assert soft_rank(REWARDS, 0.0) == rank(REWARDS)
    assert soft_rank(REWARDS, 1e-12, np.random.default_rng(0)) == rank(REWARDS)
    with pytest.raises(ConfigError, match="at least 0"):
        soft_rank(REWARDS, -1.0)


@pytest.mark.parametrize("temperature", [0.3, 1.0, math.inf])
def test_a_soft_choice_has_the_probabilities_of_its_definition(temperature):
    rng, draws = np.random.default_rng(0), 4000
    counts = Counter(soft_rank(REWARDS, temperature, rng)[0] for _ in range(draws))
    known = [index for index, reward in enumerate(REWARDS) if reward is not None]
    weights = np.exp([REWARDS[index] / temperature for index in known])  # all 1 at infinity: uniform
    expected = draws * weights / weights.sum()
    assert set(counts) == set(known)
    assert stats.chisquare([counts[index] for index in known], expected).pvalue > 0.01


def test_a_soft_order_of_captions():
    captions = ["red star here", "red", "red star"]
    assert rerank(captions, reward="length", temperature=0.0) == rerank(captions, reward="length") == [0, 2, 1]
    orders = {tuple(rerank(captions, reward="length", temperature=5.0, seed=seed)) for seed in range(60)}
    assert len(orders) == 6
    assert rerank(captions, reward="length", temperature=5.0, seed=3) == rerank(
        captions, reward="length", temperature=5.0, seed=3
    )
