"""The bootstrap: what is drawn, coverage and pairing of intervals, and counts on many resamples at once."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from reward.metaeval import Interval, bootstrap_weights, mean_difference, mean_interval
from reward.metaeval.bootstrap import draw_clusters, resampled_mean, resampled_sums
from reward.metaeval.correlation import resampled_tau


def test_pairing_sees_a_difference_that_two_intervals_hide():
    rng = np.random.default_rng(0)
    hard = rng.normal(size=100)  # how easy each scene is, for both systems
    first, second = hard + 0.1 + 0.05 * rng.normal(size=100), hard + 0.05 * rng.normal(size=100)
    weights = bootstrap_weights(100)
    assert mean_interval(first, weights).low < mean_interval(second, weights).high
    assert mean_difference(first, second, weights).low > 0


def test_samples_of_one_image_are_drawn_together_and_widen_the_interval():
    images = np.repeat(np.arange(40), 10)
    weights = bootstrap_weights(400, clusters=images.tolist())
    assert (weights.reshape(-1, 40, 10).std(axis=2) == 0).all()
    assert (weights.sum(axis=1) == 400).all()
    values = np.random.default_rng(0).normal(size=40)[images]  # alike within an image
    clustered, single = mean_interval(values, weights), mean_interval(values, bootstrap_weights(400))
    assert clustered.high - clustered.low > 2 * (single.high - single.low)


def test_equal_seeds_give_equal_resamples():
    assert np.array_equal(bootstrap_weights(9, seed=3), bootstrap_weights(9, seed=3))
    assert not np.array_equal(bootstrap_weights(9, seed=3), bootstrap_weights(9, seed=4))


def test_large_strata_keep_their_numbers_of_clusters_and_small_ones_are_drawn_together():
    strata = [("a",)] * 25 + [("a", "b")] + [("b",)] * 20 + [("c",)] * 5
    draws = draw_clusters(strata, resamples=4000, seed=0)
    for stratum in set(strata):
        members = [place for place, other in enumerate(strata) if other == stratum]
        numbers = draws[:, members].sum(axis=1)
        assert (numbers == len(members)).all() == (stratum in (("a",), ("b",)))
    assert draws.mean(axis=0) == pytest.approx(np.ones(51), abs=0.1)
    assert draws[:, 25].var() == pytest.approx(1 - 1 / 6, abs=0.1)
    assert np.array_equal(draws, draw_clusters(strata, resamples=4000, seed=0))
    assert not np.array_equal(draws, draw_clusters(strata, resamples=4000, seed=1))


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: bootstrap_weights(0), "at least one sample"),
        (lambda: bootstrap_weights(3, clusters=["a"]), "1 clusters for 3 samples"),
        (lambda: draw_clusters([], resamples=5, seed=0), "at least one cluster and one resample"),
        (lambda: draw_clusters([("a",)], resamples=0, seed=0), "at least one cluster and one resample"),
    ],
)
def test_impossible_resamples_are_refused(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()


def test_an_interval_that_touches_zero_does_not_exclude_it():
    assert not Interval(0.1, 0.0, 0.2).excludes_zero
    assert Interval(-0.1, -0.2, -0.01).excludes_zero


def test_sums_are_those_of_the_rows_that_are_drawn():
    rng = np.random.default_rng(0)
    values, clusters = rng.normal(size=(50, 2)), rng.integers(0, 6, 50)
    weights = rng.multinomial(7, [1 / 7] * 7, size=20)  # no row is in the last cluster
    expected = [values[np.repeat(np.arange(50), times[clusters])].sum(axis=0) for times in weights]
    assert resampled_sums(values, weights, clusters) == pytest.approx(np.array(expected))
    means = [column.mean() if len(column := values[np.repeat(np.arange(50), times[clusters]), 0]) else np.nan
             for times in weights]  # fmt: skip
    assert resampled_mean(values[:, 0], weights, clusters) == pytest.approx(np.array(means), nan_ok=True)


def test_memory_does_not_grow_with_pairs_or_with_resamples_times_samples():
    rng = np.random.default_rng(0)
    scores, ratings = rng.normal(size=30_000), rng.integers(0, 4, 30_000)
    weights = draw_clusters([("a",)] * 500, resamples=300, seed=0)
    tracemalloc.start()
    resampled_tau(scores, ratings, weights, clusters=rng.integers(0, 500, 30_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 70e6  # resamples times samples are 72 MB, pairs 7 GB
