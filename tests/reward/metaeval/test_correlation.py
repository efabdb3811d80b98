"""Kendall's tau against scipy, one by one and over many resamples at once."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from reward.metaeval import bootstrap_weights, kendall_tau
from reward.metaeval.correlation import resampled_tau

PAIRS = st.lists(st.tuples(st.integers(0, 6), st.sampled_from([0.0, 0.25, 0.5, 1.0])), min_size=2, max_size=12)


@pytest.mark.parametrize("variant", ["b", "c"])
@given(pairs=PAIRS, seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_each_resample_has_the_tau_that_scipy_gives_for_its_samples(variant, pairs, seed):
    scores, ratings = np.array(pairs, dtype=float).T
    weights = bootstrap_weights(len(scores), resamples=5, seed=seed)
    found = resampled_tau(scores, ratings, weights, variant=variant)
    for value, counts in zip(found, weights.astype(int), strict=True):
        drawn = np.repeat(np.arange(len(scores)), counts)
        if len(set(scores[drawn])) == 1 or len(set(ratings[drawn])) == 1:
            assert value == 0
        else:
            expected = kendalltau(scores[drawn], ratings[drawn], variant=variant).statistic
            assert value == pytest.approx(expected, abs=1e-12)
            assert kendall_tau(scores[drawn], ratings[drawn], variant=variant) == pytest.approx(expected, abs=1e-12)


def test_blocks_of_columns_add_up():
    rng = np.random.default_rng(0)
    scores, ratings = rng.normal(size=2500), rng.integers(0, 5, 2500)  # more than two blocks
    assert resampled_tau(scores, ratings, np.ones((1, 2500)))[0] == pytest.approx(
        kendall_tau(scores, ratings), abs=1e-12
    )


def test_a_constant_side_has_no_order_to_agree_with():
    assert kendall_tau(np.ones(5), np.arange(5)) == 0
    assert kendall_tau(np.arange(5), np.ones(5), variant="b") == 0


@pytest.mark.parametrize(
    ("scores", "ratings", "message"),
    [
        ([0.1, float("nan"), 0.3], [1, 2, 3], "1 of 3 pairs are not finite"),
        ([0.1, 0.2], [1, 2, 3], r"got \(2,\) and \(3,\)"),
        ([0.1], [1], "N >= 2"),
    ],
)
def test_unfit_numbers_are_refused(scores, ratings, message):
    with pytest.raises(ValueError, match=message):
        kendall_tau(np.array(scores), np.array(ratings))


def test_weights_of_other_samples_are_refused():
    with pytest.raises(ValueError, match=r"shape \(R, 3\)"):
        resampled_tau(np.arange(3), np.arange(3), np.ones((10, 4)))


def test_a_thousand_resamples_of_four_hundred_samples_are_quick():
    rng = np.random.default_rng(0)
    scores, ratings = rng.normal(size=400), rng.integers(0, 13, 400)
    weights = bootstrap_weights(400)
    start = time.process_time()
    resampled_tau(scores, ratings, weights)
    vectorised = time.process_time() - start
    start = time.process_time()
    for counts in weights[:50].astype(int):
        drawn = np.repeat(np.arange(400), counts)
        kendalltau(scores[drawn], ratings[drawn], variant="c")
    one_by_one = (time.process_time() - start) * 20
    assert vectorised < one_by_one  # about a fifth
