"""Bootstrap, correlations, AUC, ties: each resample has the value that scipy or the definition gives for it."""

from __future__ import annotations

import tracemalloc
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward.metaeval import (
    Interval,
    bootstrap_weights,
    kendall_tau,
    mean_difference,
    mean_interval,
    pearson,
    roc_auc,
    spearman,
    tie_threshold,
    verdicts,
    winoground_scores,
)
from reward.metaeval.bootstrap import draw_clusters, resampled_mean, resampled_sums
from reward.metaeval.classification import resampled_auc, resampled_precision
from reward.metaeval.correlation import resampled_pearson, resampled_spearman, resampled_tau
from tests.reward.metaeval.small_benchmarks import average_precision, correlation


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


def test_samples_of_one_image_are_drawn_together_and_widen_the_interval():
    images = np.repeat(np.arange(40), 10)
    weights = bootstrap_weights(400, clusters=images.tolist())
    assert (weights.reshape(-1, 40, 10).std(axis=2) == 0).all()
    assert (weights.sum(axis=1) == 400).all()
    values = np.random.default_rng(0).normal(size=40)[images]  # alike within an image
    clustered, single = mean_interval(values, weights), mean_interval(values, bootstrap_weights(400))
    assert np.array_equal(bootstrap_weights(9, seed=3), bootstrap_weights(9, seed=3))
    assert not np.array_equal(bootstrap_weights(9, seed=3), bootstrap_weights(9, seed=4))
    assert clustered.high - clustered.low > 2 * (single.high - single.low)


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


# Correlations

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


# AUC, average precision, thresholds of ties, Winoground

# few different scores, so that there are ties; at least one caption of each kind
ROWS = st.lists(st.tuples(st.integers(-2, 3), st.booleans()), min_size=1, max_size=15).map(
    lambda rows: [(0, True), (1, False), *rows]
)


def auc_by_definition(scores, labels):
    crossed = [(c, i) for c, right in zip(scores, labels, strict=True) if right
               for i, other in zip(scores, labels, strict=True) if not other]  # fmt: skip
    return sum(1.0 if c > i else 0.5 if c == i else 0.0 for c, i in crossed) / len(crossed)


def precision_by_definition(scores, labels):
    """Sum over thresholds of precision times the recall that is added."""
    found, before = 0.0, 0.0
    for threshold in sorted(set(scores), reverse=True):
        kept = [label for score, label in zip(scores, labels, strict=True) if score >= threshold]
        recall = sum(kept) / sum(labels)
        found += sum(kept) / len(kept) * (recall - before)
        before = recall
    return found


@pytest.mark.parametrize(
    ("value", "resampled", "by_definition", "kinds"),
    [
        (roc_auc, resampled_auc, auc_by_definition, 2),
        (average_precision, resampled_precision, precision_by_definition, 1),
    ],
)
@settings(max_examples=80, deadline=None)
@given(rows=ROWS, seed=st.integers(0, 1000))
def test_each_resample_has_the_value_of_the_captions_it_holds(value, resampled, by_definition, kinds, rows, seed):
    scores, labels = (np.array(column) for column in zip(*rows, strict=True))
    assert value(scores, labels) == pytest.approx(by_definition(scores.tolist(), labels.tolist()))
    rng = np.random.default_rng(seed)
    clusters, weights = rng.integers(0, 4, len(scores)), rng.multinomial(4, [0.25] * 4, size=5)
    for found, counts in zip(resampled(scores, labels, weights, clusters=clusters), weights, strict=True):
        drawn = np.repeat(np.arange(len(scores)), counts[clusters])
        some = scores[drawn].tolist(), labels[drawn].tolist()
        defined = any(some[1]) and (kinds == 1 or not all(some[1]))  # AUC needs captions of both kinds
        assert found == pytest.approx(by_definition(*some) if defined else np.nan, nan_ok=True)


@settings(max_examples=80, deadline=None)
@given(differences=st.lists(st.integers(-4, 4), min_size=1, max_size=12), share=st.floats(0, 1))
def test_no_threshold_comes_nearer_to_the_number(differences, share):
    ties = round(share * len(differences))
    threshold = tie_threshold(np.array(differences), ties)
    said = verdicts(np.array(differences), threshold)
    assert said.tolist() == [0 if abs(d) <= threshold else 1 if d > 0 else -1 for d in differences]
    missed = abs((said == 0).sum() - ties)
    others = [abs(sum(abs(d) <= other for d in differences) - ties) for other in (0, 1, 2, 3, 4)]
    assert missed == min(others)
    assert threshold == min(o for o, m in zip((0, 1, 2, 3, 4), others, strict=True) if m == missed)


@settings(max_examples=80, deadline=None)
@given(rows=st.lists(st.tuples(*[st.integers(0, 2)] * 4), min_size=1, max_size=6))
def test_winogrounds_scores_are_those_of_their_definition(rows):
    found = winoground_scores(np.array(rows))
    for number, (c0_i0, c1_i0, c0_i1, c1_i1) in enumerate(rows):
        text = c0_i0 > c1_i0 and c1_i1 > c0_i1
        image = c0_i0 > c0_i1 and c1_i1 > c1_i0
        assert [bool(found[name][number]) for name in ("text", "image", "group")] == [text, image, text and image]


NAN = float("nan")


@pytest.mark.parametrize(
    ("values", "first", "second", "message"),
    [
        (VALUES.values(), [0.1, NAN, 0.3], [1, 2, 3], "1 of 3 pairs are not finite"),
        (VALUES.values(), [0.1, 0.2], [1, 2, 3], r"got \(2,\) and \(3,\)"),
        (VALUES.values(), [0.1], [1], "N >= 2"),
        ((roc_auc, average_precision), [0.1, NAN], [0, 1], "1 of 2 pairs are not finite"),
        ((roc_auc, average_precision), [0.1, 0.2, 0.3], [0, 1], r"got \(3,\) and \(2,\)"),
        ((roc_auc, average_precision), [0.1, 0.2], [1, 1], r"some of each, got \[1.0\]"),
        ((roc_auc, average_precision), [0.1, 0.2], [1, 2], r"labels must be 1 \(correct\) or 0"),
    ],
)
def test_unfit_columns_are_refused(values, first, second, message):
    for value in values:
        with pytest.raises(ValueError, match=message):
            value(np.array(first), np.array(second))


def tau_of_three(clusters):
    return resampled_tau(np.arange(3), np.arange(3), np.ones((10, 4)), clusters=clusters)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bootstrap_weights(0), "at least one sample"),
        (lambda: bootstrap_weights(3, clusters=["a"]), "1 clusters for 3 samples"),
        (lambda: draw_clusters([], resamples=5, seed=0), "at least one cluster and one resample"),
        (lambda: draw_clusters([("a",)], resamples=0, seed=0), "at least one cluster and one resample"),
        (lambda: tau_of_three(None), r"shape \(R, 3\)"),
        (lambda: tau_of_three([0, 1, 4]), r"shape \(R, K\) with K > 4"),
        (lambda: tau_of_three([0, 1]), r"clusters must have shape \(3,\)"),
        (lambda: tie_threshold(np.ones(3), 4), "between 0 and the 3 battles, got 4"),
        (lambda: tie_threshold(np.ones(3), -1), "got -1"),
        (lambda: tie_threshold(np.array([1.0, np.nan]), 1), "1 of 2 differences are not finite"),
        (lambda: tie_threshold(np.ones((2, 2)), 1), r"shape \(N,\)"),
        (lambda: verdicts(np.ones(3), -0.1), "at least 0, got -0.1"),
        (lambda: verdicts(np.ones(3), np.nan), "at least 0, got nan"),
        (lambda: winoground_scores(np.ones((2, 3))), r"shape \(N, 4\) with N >= 1, got \(2, 3\)"),
        (lambda: winoground_scores(np.full((2, 4), np.nan)), "2 of 2 quadruples are not finite"),
    ],
)
def test_impossible_numbers_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
