"""Correlations against their definitions and scipy, one by one and over many resamples at once."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from reward.metaeval import bootstrap_weights, kendall_tau, pearson, spearman
from reward.metaeval.correlation import resampled_pearson, resampled_spearman, resampled_tau

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


def tau_by_definition(scores, ratings, variant):
    concordant = discordant = untied_scores = untied_ratings = 0
    pairs = [(i, j) for i in range(len(scores)) for j in range(i)]
    for i, j in pairs:
        agreement = (scores[i] - scores[j]) * (ratings[i] - ratings[j])
        concordant += agreement > 0
        discordant += agreement < 0
        untied_scores += scores[i] != scores[j]
        untied_ratings += ratings[i] != ratings[j]
    if not untied_scores or not untied_ratings:
        return 0.0
    if variant == "b":
        return (concordant - discordant) / (untied_scores * untied_ratings) ** 0.5
    classes = min(len(set(scores)), len(set(ratings)))
    return 2 * (concordant - discordant) / (len(scores) ** 2 * (classes - 1) / classes)


def pearson_by_definition(scores, ratings):
    deviations = [[value - sum(values) / len(values) for value in values] for values in (scores, ratings)]
    spreads = [sum(value**2 for value in values) ** 0.5 for values in deviations]
    if len(set(scores)) == 1 or len(set(ratings)) == 1:
        return 0.0
    return sum(x * y for x, y in zip(*deviations, strict=True)) / (spreads[0] * spreads[1])


def spearman_by_definition(scores, ratings):
    def rank(values):
        return [sum(o < v for o in values) + (sum(o == v for o in values) + 1) / 2 for v in values]

    return pearson_by_definition(rank(scores), rank(ratings))


@given(pairs=PAIRS)
@settings(max_examples=60, deadline=None)
def test_values_are_those_of_their_definitions(pairs):
    scores, ratings = (list(map(float, column)) for column in zip(*pairs, strict=True))
    given = np.array(scores), np.array(ratings)
    for variant in ("b", "c"):
        assert kendall_tau(*given, variant=variant) == pytest.approx(tau_by_definition(scores, ratings, variant))
    assert spearman(*given) == pytest.approx(spearman_by_definition(scores, ratings), abs=1e-12)
    assert pearson(*given) == pytest.approx(pearson_by_definition(scores, ratings), abs=1e-12)


@given(pairs=PAIRS, seed=st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_each_resample_of_clusters_has_the_value_of_the_samples_it_holds(pairs, seed):
    scores, ratings = np.array(pairs, dtype=float).T
    rng = np.random.default_rng(seed)
    clusters = rng.integers(0, 4, len(scores))  # some of the five may have no samples
    weights = rng.multinomial(5, [0.2] * 5, size=6)
    found = {
        "b": resampled_tau(scores, ratings, weights, clusters=clusters, variant="b"),
        "c": resampled_tau(scores, ratings, weights, clusters=clusters),
        "spearman": resampled_spearman(scores, ratings, weights, clusters=clusters),
        "pearson": resampled_pearson(scores, ratings, weights, clusters=clusters),
    }
    for number, counts in enumerate(weights):
        drawn = np.repeat(np.arange(len(scores)), counts[clusters])
        some = scores[drawn].tolist(), ratings[drawn].tolist()
        expected = dict.fromkeys(found, 0.0 if len(drawn) else np.nan)
        if len(drawn) > 1:
            expected |= {variant: tau_by_definition(*some, variant) for variant in "bc"}
            expected |= {"spearman": spearman_by_definition(*some), "pearson": pearson_by_definition(*some)}
        for name, values in found.items():
            assert values[number] == pytest.approx(expected[name], abs=1e-9, nan_ok=True), name


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


def test_a_constant_side_has_no_order_to_agree_with():
    assert kendall_tau(np.ones(5), np.arange(5)) == 0
    assert kendall_tau(np.arange(5), np.ones(5), variant="b") == 0
    for correlation in (spearman, pearson):
        assert correlation(np.full(5, 0.1), np.arange(5)) == correlation(np.arange(5), np.full(5, 0.1)) == 0
    for resampled in (resampled_tau, resampled_spearman, resampled_pearson):
        assert resampled(np.full(5, 0.1), np.arange(5), np.ones((2, 5))).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("scores", "ratings", "message"),
    [
        ([0.1, float("nan"), 0.3], [1, 2, 3], "1 of 3 pairs are not finite"),
        ([0.1, 0.2], [1, 2, 3], r"got \(2,\) and \(3,\)"),
        ([0.1], [1], "N >= 2"),
    ],
)
def test_unfit_numbers_are_refused(scores, ratings, message):
    for correlation in (kendall_tau, spearman, pearson):
        with pytest.raises(ValueError, match=message):
            correlation(np.array(scores), np.array(ratings))


def test_weights_of_other_samples_are_refused():
    with pytest.raises(ValueError, match=r"shape \(R, 3\)"):
        resampled_tau(np.arange(3), np.arange(3), np.ones((10, 4)))
    with pytest.raises(ValueError, match=r"shape \(R, K\) with K > 4"):
        resampled_tau(np.arange(3), np.arange(3), np.ones((10, 4)), clusters=np.array([0, 1, 4]))
    with pytest.raises(ValueError, match=r"clusters must have shape \(3,\)"):
        resampled_tau(np.arange(3), np.arange(3), np.ones((10, 4)), clusters=np.array([0, 1]))


def test_a_thousand_resamples_of_seventeen_thousand_judgments_are_quick():
    rng = np.random.default_rng(0)
    scores = np.repeat(rng.normal(size=5600), 3)  # as in Flickr8k-Expert: three judgments of a caption
    ratings = np.clip(np.round(scores + rng.normal(size=len(scores)) + 1.5), 0, 3)
    clusters = np.repeat(np.arange(1000), len(scores) // 1000 + 1)[: len(scores)]
    weights = rng.multinomial(1000, np.full(1000, 0.001), size=1000)
    start = time.process_time()
    found = resampled_tau(scores, ratings, weights, clusters=clusters)
    at_once = time.process_time() - start
    start = time.process_time()
    for number in range(5):
        drawn = np.repeat(np.arange(len(scores)), weights[number][clusters])
        expected = kendalltau(scores[drawn], ratings[drawn], variant="c").statistic
        assert found[number] == pytest.approx(expected, abs=1e-12)
    one_by_one = (time.process_time() - start) * 200
    assert at_once < one_by_one / 3  # about a twentieth
