"""Sums over resamples, and the count of concordant pairs."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward.metaeval.bootstrap import draw_clusters
from reward.metaeval.correlation import resampled_tau
from reward.metaeval.resampling import Concordance, resampled_mean, resampled_sums


def test_sums_are_those_of_the_rows_that_are_drawn():
    rng = np.random.default_rng(0)
    values, clusters = rng.normal(size=(50, 2)), rng.integers(0, 6, 50)
    weights = rng.multinomial(7, [1 / 7] * 7, size=20)  # no row is in the last cluster
    expected = [values[np.repeat(np.arange(50), times[clusters])].sum(axis=0) for times in weights]
    assert resampled_sums(values, weights, clusters) == pytest.approx(np.array(expected))
    means = [column.mean() if len(column := values[np.repeat(np.arange(50), times[clusters]), 0]) else np.nan
             for times in weights]  # fmt: skip
    assert resampled_mean(values[:, 0], weights, clusters) == pytest.approx(np.array(means), nan_ok=True)


@settings(max_examples=80, deadline=None)
@given(rows=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(0, 3)), min_size=1, max_size=20))
def test_the_balance_is_that_of_all_pairs(rows):
    values = np.array(rows)
    first, second = (np.unique(values[:, side], return_inverse=True)[1] for side in (0, 1))
    weights = values[:, 2]
    signs = np.sign(first[:, None] - first) * np.sign(second[:, None] - second)
    expected = weights @ signs @ weights
    assert Concordance(first, second).balance(weights[:, None].astype(float)).tolist() == [expected]
    assert Concordance(second, first).balance(weights[:, None].astype(float)).tolist() == [expected]


def test_memory_does_not_grow_with_pairs_or_with_resamples_times_samples():
    rng = np.random.default_rng(0)
    scores, ratings = rng.normal(size=30_000), rng.integers(0, 4, 30_000)
    weights = draw_clusters([("a",)] * 500, resamples=300, seed=0)
    tracemalloc.start()
    resampled_tau(scores, ratings, weights, clusters=rng.integers(0, 500, 30_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 70e6  # resamples times samples are 72 MB, pairs 7 GB
