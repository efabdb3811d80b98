"""Correlations against scipy, one by one and over many resamples at once."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward.metaeval import kendall_tau, pearson, spearman
from reward.metaeval.correlation import resampled_pearson, resampled_spearman, resampled_tau
from tests.reward.metaeval.small_benchmarks import correlation

PAIRS = st.lists(st.tuples(st.integers(0, 6), st.sampled_from([0.0, 0.25, 0.5, 1.0])), min_size=2, max_size=12)


VALUES: dict[str, Any] = {
    "tau-b": partial(kendall_tau, variant="b"),
    "tau-c": kendall_tau,
    "spearman": spearman,
    "pearson": pearson,
}
RESAMPLED: dict[str, Any] = {
    "tau-b": partial(resampled_tau, variant="b"),
    "tau-c": resampled_tau,
    "spearman": resampled_spearman,
    "pearson": resampled_pearson,
}


@pytest.mark.parametrize("name", VALUES)
@given(pairs=PAIRS, seed=st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_each_resample_of_clusters_has_the_value_of_the_samples_it_holds(name, pairs, seed):
    scores, ratings = np.array(pairs, dtype=float).T
    assert VALUES[name](scores, ratings) == pytest.approx(correlation(name, scores, ratings), abs=1e-12)
    rng = np.random.default_rng(seed)
    clusters = rng.integers(0, 4, len(scores))  # some of the five may have no samples
    weights = rng.multinomial(5, [0.2] * 5, size=6)
    found = RESAMPLED[name](scores, ratings, weights, clusters=clusters)
    alone = RESAMPLED[name](scores, ratings, weights[:, clusters])  # of each sample
    for number, counts in enumerate(weights[:, clusters]):
        drawn = np.repeat(np.arange(len(scores)), counts)
        expected = correlation(name, scores[drawn], ratings[drawn])
        assert (found[number], alone[number]) == pytest.approx((expected, expected), abs=1e-9, nan_ok=True)


def test_blocks_of_resamples_are_put_together():
    rng = np.random.default_rng(0)
    scores, ratings = rng.normal(size=(2, 20_000))  # 52 resamples a block
    weights = rng.multinomial(50, np.full(50, 0.02), size=120)
    clusters = rng.integers(0, 50, 20_000)
    for resampled in (resampled_tau, resampled_spearman, resampled_pearson):
        found = resampled(scores, ratings, weights, clusters=clusters)
        alone = [resampled(scores, ratings, weights[[k]], clusters=clusters)[0] for k in (0, 51, 52, 119)]
        assert found[[0, 51, 52, 119]].tolist() == pytest.approx(alone, abs=1e-12)
    assert resampled_tau(scores, ratings, np.ones((1, 20_000)))[0] == pytest.approx(kendall_tau(scores, ratings))


@pytest.mark.parametrize(
    ("scores", "ratings", "message"),
    [
        ([0.1, float("nan"), 0.3], [1, 2, 3], "1 of 3 pairs are not finite"),
        ([0.1, 0.2], [1, 2, 3], r"got \(2,\) and \(3,\)"),
        ([0.1], [1], "N >= 2"),
    ],
)
def test_unfit_numbers_are_refused(scores, ratings, message):
    for value in VALUES.values():
        with pytest.raises(ValueError, match=message):
            value(np.array(scores), np.array(ratings))


@pytest.mark.parametrize(
    ("clusters", "message"),
    [
        (None, r"shape \(R, 3\)"),
        ([0, 1, 4], r"shape \(R, K\) with K > 4"),
        ([0, 1], r"clusters must have shape \(3,\)"),
    ],
)
def test_weights_of_other_samples_are_refused(clusters, message):
    with pytest.raises(ValueError, match=message):
        resampled_tau(np.arange(3), np.arange(3), np.ones((10, 4)), clusters=clusters)
