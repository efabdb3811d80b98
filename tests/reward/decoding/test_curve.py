"""Estimates of the best of n: against all subsets, and against worlds whose answer is known."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward.decoding.curve import best_of_n_curve, expected_best, kl_bound, order_weights
from reward.errors import ConfigError, DataError

TIED = st.lists(st.tuples(st.integers(-2, 2), st.floats(-3, 3)), min_size=1, max_size=7)


@settings(max_examples=60, deadline=None)
@given(TIED)
def test_by_definition(pool: list[tuple[int, float]]) -> None:
    """The mean over all subsets of the winner's value; of equal rewards, each wins equally often."""
    wanted = []
    for n in range(1, len(pool) + 1):
        winners = []
        for subset in combinations(pool, n):
            best = max(reward for reward, _ in subset)
            winners.append(np.mean([value for reward, value in subset if reward == best]))
        wanted.append(np.mean(winners))
    rewards, values = map(list, zip(*pool, strict=True))
    assert expected_best(rewards, values) == pytest.approx(wanted)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=60), st.randoms())
def test_from_the_mean_to_the_maximum_rising_ever_less(rewards: list[float], random: object) -> None:
    curve = expected_best(rewards)
    assert curve[[0, -1]] == pytest.approx([np.mean(rewards), max(rewards)], abs=1e-9)
    assert (np.diff(curve) >= -1e-9).all()
    assert (np.diff(curve, 2) <= 1e-9).all()
    random.shuffle(rewards)  # type: ignore[attr-defined]
    assert expected_best(rewards, largest=len(rewards)) == pytest.approx(curve)


def test_unbiased_and_sound_for_large_pools() -> None:
    """A world with a known answer: uniform u, value u**2; the best of n is worth n / (n + 2)."""
    pools = np.random.default_rng(0).random((4000, 12))
    curves = np.stack([expected_best(pool, pool**2) for pool in pools])
    n = np.arange(1, 13)
    error = curves.std(axis=0) / np.sqrt(len(curves))
    assert (np.abs(curves.mean(axis=0) - n / (n + 2)) < 4 * error).all()

    weights = order_weights(3000, 3000)
    assert np.isfinite(weights).all()
    assert weights.sum(axis=1) == pytest.approx(1)
    assert expected_best(np.arange(3000) / 3000)[1499] == pytest.approx(1500 / 1501, abs=1e-3)


def test_a_peak_is_found_where_one_is_and_not_in_noise() -> None:
    rng = np.random.default_rng(2)
    pools = rng.random((200, 64))
    curve = best_of_n_curve(np.stack([expected_best(u, u**12 * (1 - u)) for u in pools]))
    assert 9 <= (curve.peak or 0) <= 16  # n / (n + 12) - n / (n + 13) is largest at n = 12 and 13
    assert curve.at(12).low < 12 / 24 - 12 / 25 < curve.at(12).high
    seen = 0
    for seed in range(100):
        noise = [expected_best(rng.random(8), rng.normal(size=8)) for _ in range(30)]
        seen += best_of_n_curve(np.stack(noise), resamples=100, seed=seed).peak is not None
    assert seen <= 9  # expected: 3


def test_the_bound_of_the_divergence() -> None:
    """Captions with the chances .5, .3 and .2, the best of 4: .560 by definition, below the bound of .636."""
    below = np.cumsum([0, 0.5, 0.3, 0.2])
    chosen, drawn = np.diff(below**4), np.diff(below)
    exact = float((chosen * np.log(chosen / drawn)).sum())
    assert (exact, kl_bound(4)) == pytest.approx((0.560, 0.636), abs=1e-3)


def test_what_cannot_be_estimated_is_refused() -> None:
    for rewards, values in (([], None), ([1.0], [1.0, 2.0]), ([1.0, float("nan")], None), ([1.0], [float("inf")])):
        with pytest.raises(DataError, match=r"need M rewards|lack a finite"):
            expected_best(rewards, values)
    with pytest.raises(ConfigError, match="at most the 2 samples, got 3"):
        expected_best([1, 2], largest=3)
    with pytest.raises(ConfigError, match="n must be at least 1"):
        kl_bound(0)
    with pytest.raises(DataError, match="at least two images"):
        best_of_n_curve(np.zeros((1, 4)))
