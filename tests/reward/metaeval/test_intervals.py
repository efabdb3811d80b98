"""Bootstrap intervals: coverage, pairing, clusters."""

from __future__ import annotations

import numpy as np
import pytest

from reward.metaeval import (
    Interval,
    bootstrap_weights,
    mean_difference,
    mean_interval,
    tau_difference,
    tau_interval,
)


def test_the_interval_of_a_mean_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(1)
    covered = 0
    for trial in range(300):
        found = mean_interval(rng.normal(0.3, 1, 60), bootstrap_weights(60, resamples=400, seed=trial))
        covered += found.low <= 0.3 <= found.high
    assert 0.90 <= covered / 300 <= 0.98


def test_the_interval_of_a_mean_is_that_of_theory():
    values = np.random.default_rng(0).normal(size=2000)
    found = mean_interval(values, bootstrap_weights(2000))
    half = 1.96 * values.std() / np.sqrt(2000)
    assert found.value == pytest.approx(values.mean())
    assert found.high - found.low == pytest.approx(2 * half, rel=0.08)


def test_pairing_sees_a_difference_that_two_intervals_hide():
    rng = np.random.default_rng(0)
    hard = rng.normal(size=100)  # how easy each scene is, for both systems
    first, second = hard + 0.1 + 0.05 * rng.normal(size=100), hard + 0.05 * rng.normal(size=100)
    weights = bootstrap_weights(100)
    assert mean_interval(first, weights).low < mean_interval(second, weights).high
    assert mean_difference(first, second, weights).low > 0


def test_the_difference_of_taus_tells_better_from_equal():
    rng = np.random.default_rng(0)
    ratings = rng.normal(size=300)
    good, poor = ratings + rng.normal(size=300), ratings + 3 * rng.normal(size=300)
    equal = ratings + rng.normal(size=300)
    weights = bootstrap_weights(300)
    assert tau_difference(good, poor, ratings, weights).low > 0
    assert not tau_difference(good, equal, ratings, weights).excludes_zero
    same = tau_difference(good, good, ratings, weights)
    assert (same.value, same.low, same.high) == (0, 0, 0)
    assert tau_interval(good, ratings, weights).low > tau_interval(poor, ratings, weights).high


def test_samples_of_one_image_are_drawn_together_and_widen_the_interval():
    images = np.repeat(np.arange(40), 10)
    weights = bootstrap_weights(400, clusters=images.tolist())
    assert (weights.reshape(-1, 40, 10).std(axis=2) == 0).all()
    assert (weights.sum(axis=1) == 400).all()
    values = np.random.default_rng(0).normal(size=40)[images]  # alike within an image
    clustered, single = mean_interval(values, weights), mean_interval(values, bootstrap_weights(400))
    assert clustered.high - clustered.low > 2 * (single.high - single.low)


def test_clusters_of_any_size_are_drawn_equally_often():
    weights = bootstrap_weights(5, resamples=4000, clusters=["a", "b", "b", "b", "c"])
    assert weights.mean(axis=0) == pytest.approx(np.ones(5), abs=0.06)


def test_equal_seeds_give_equal_resamples():
    assert np.array_equal(bootstrap_weights(9, seed=3), bootstrap_weights(9, seed=3))
    assert not np.array_equal(bootstrap_weights(9, seed=3), bootstrap_weights(9, seed=4))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"n": 0}, "at least one sample"), ({"n": 3, "clusters": ["a"]}, "1 clusters for 3 samples")],
)
def test_impossible_resamples_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        bootstrap_weights(**arguments)


def test_an_interval_that_touches_zero_does_not_exclude_it():
    assert not Interval(0.1, 0.0, 0.2).excludes_zero
    assert Interval(-0.1, -0.2, -0.01).excludes_zero
