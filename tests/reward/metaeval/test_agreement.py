"""Several metrics against ratings, raters and pairs: values, intervals, paired and independent differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward.metaeval import bootstrap_weights, compare_metrics, compare_with_raters, kendall_tau, pairwise_accuracy
from reward.metaeval.correlation import resampled_tau


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(0)
    truth = {name: rng.normal(size=200) for name in ("desc", "rel")}
    raters = {name: np.stack([t + rng.normal(size=200) for _ in range(3)], axis=1) for name, t in truth.items()}
    ratings = {name: values.mean(axis=1) for name, values in raters.items()}
    noisy = {name: t + 2 * rng.normal(size=200) for name, t in truth.items()}
    return truth, raters, ratings, noisy


def test_each_cell_is_the_tau_of_its_metric_and_aspect(world):
    truth, _, ratings, noisy = world
    weights = bootstrap_weights(200)
    found = compare_metrics({"truth": truth, "noisy": noisy}, ratings, weights, subjects=["truth"])
    for aspect in ("desc", "rel"):
        assert found.agreement["noisy"][aspect].value == pytest.approx(kendall_tau(noisy[aspect], ratings[aspect]))
        taus = [resampled_tau(each[aspect], ratings[aspect], weights) for each in (truth, noisy)]
        cell = found.differences["truth"]["noisy"][aspect]
        assert (cell.low, cell.high) == pytest.approx(np.quantile(taus[0] - taus[1], [0.025, 0.975]))
        assert cell.value == pytest.approx(
            found.agreement["truth"][aspect].value - found.agreement["noisy"][aspect].value
        )
    mean = found.agreement["truth"]["mean"]
    assert mean.value == pytest.approx(np.mean([found.agreement["truth"][a].value for a in ("desc", "rel")]))
    # the mean of two aspects is known better than each of them
    assert mean.high - mean.low < found.agreement["truth"]["desc"].high - found.agreement["truth"]["desc"].low
    assert found.differences["truth"]["noisy"]["mean"].low > 0
    assert list(found.differences["truth"]) == ["noisy"]


def test_a_rater_is_averaged_over_raters_and_metrics_are_held_against_the_same_targets(world):
    truth, raters, _, noisy = world
    found = compare_with_raters(raters, {"truth": truth, "noisy": noisy}, bootstrap_weights(200))
    desc = raters["desc"]
    targets = [(desc[:, [1, 2]]).mean(1), (desc[:, [0, 2]]).mean(1), (desc[:, [0, 1]]).mean(1)]
    expected = np.mean([kendall_tau(desc[:, k], target) for k, target in enumerate(targets)])
    assert found.agreement["single rater"]["desc"].value == pytest.approx(expected)
    assert found.agreement["noisy"]["desc"].value == pytest.approx(
        np.mean([kendall_tau(noisy["desc"], t) for t in targets])
    )
    assert found.differences["truth"]["single rater"]["mean"].low > 0
    assert found.differences["noisy"]["single rater"]["mean"].high < 0


def test_unfit_input_is_refused(world):
    truth, raters, ratings, _ = world
    weights = bootstrap_weights(200, resamples=5)
    with pytest.raises(KeyError, match="rel"):
        compare_metrics({"half": {"desc": truth["desc"]}}, ratings, weights)
    with pytest.raises(ValueError, match="2 raters"):
        compare_with_raters({"desc": raters["desc"][:, :1]}, {}, weights)
    with pytest.raises(ValueError, match="not finite"):
        compare_metrics({"nan": {"desc": truth["desc"] * np.nan, "rel": truth["rel"]}}, ratings, weights)


def draw_pairs(count, gap, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(gap, 1, count), rng.normal(0, 1, count)


numbers = st.integers(-3, 3)  # few values, so that there are ties


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(numbers, numbers, st.sampled_from("ab")), min_size=2, max_size=25))
def test_pairwise_values_are_those_of_their_definitions(rows):
    correct, incorrect, categories = (list(column) for column in zip(*rows, strict=True))
    found = pairwise_accuracy(np.array(correct), np.array(incorrect), categories, resamples=3)
    for name in set(categories):
        own = [(c, i) for c, i, category in rows if category == name]
        wins = [1.0 if c > i else 0.5 if c == i else 0.0 for c, i in own]
        assert found.accuracy[name].value == pytest.approx(np.mean(wins))
        cross = [1.0 if c > i else 0.5 if c == i else 0.0 for c, _ in own for _, i in own]
        assert found.auc[name].value == pytest.approx(np.mean(cross))
        assert (found.pairs[name], found.ties[name]) == (len(own), sum(c == i for c, i in own))
    parts = [found.accuracy[name].value for name in set(categories)]
    assert found.accuracy["mean"].value == pytest.approx(np.mean(parts))


def test_categories_of_one_pair_each_have_a_mean_with_an_interval():
    found = pairwise_accuracy(np.arange(12.0), np.full(12, 5.5), [f"kind {k}" for k in range(12)], resamples=500)
    assert found.accuracy["kind 11"].low == found.accuracy["kind 11"].high == 1.0
    assert np.isnan(found.replicates["kind 11"]).mean() == pytest.approx((11 / 12) ** 12, abs=0.06)
    assert found.accuracy["mean"].low < 0.3 < 0.7 < found.accuracy["mean"].high


def test_the_same_pairs_are_compared_pair_by_pair():
    rng = np.random.default_rng(0)
    categories = ["a", "b"] * 150
    easy = rng.normal(size=300)  # for both metrics the same
    better = pairwise_accuracy(easy + 0.15, np.zeros(300), categories)
    worse = pairwise_accuracy(easy, np.zeros(300), categories)
    assert better.accuracy["mean"].low < worse.accuracy["mean"].high
    gain = better.minus(worse)
    assert gain["mean"].low > 0
    assert gain["a"].value == pytest.approx(better.accuracy["a"].value - worse.accuracy["a"].value)
    nothing = better.minus(better)["mean"]
    assert (nothing.value, nothing.low, nothing.high) == (0, 0, 0)


def test_different_pairs_are_compared_as_independent_samples():
    short = pairwise_accuracy(*draw_pairs(400, 1.0, 1), ["a"] * 400, clusters=[f"s{k}" for k in range(400)], seed=0)
    long = pairwise_accuracy(*draw_pairs(400, 1.0, 2), ["a"] * 300 + ["b"] * 100, seed=1)
    gap = short.minus(long)
    assert set(gap) == {"a", "mean"}
    assert not gap["mean"].excludes_zero
    p = short.accuracy["a"].value
    assert gap["a"].high - gap["a"].low == pytest.approx(3.92 * np.sqrt(p * (1 - p) * (1 / 400 + 1 / 300)), rel=0.12)


GOOD, SAME = np.array([0.1, 0.2]), ["a", "a"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pairwise_accuracy(GOOD, np.array([0.1, np.nan]), SAME), "1 of 2 pairs are not finite"),
        (lambda: pairwise_accuracy(GOOD, GOOD, ["a"]), "1 categories and 2 clusters for 2 pairs"),
        (lambda: pairwise_accuracy(GOOD, GOOD, ["a", "mean"]), "no category may be named 'mean'"),
        (lambda: pairwise_accuracy(GOOD, GOOD, SAME, ties="right"), 'ties must be "half" or "wrong", got \'right\''),
        (lambda: minus(SAME, seed=1), "same pairs must come from the same seed"),
        (lambda: minus(["b", "b"]), "different pairs must come from different seeds"),
        (lambda: minus(SAME, resamples=10), "numbers of resamples"),
    ],
)
def test_scores_and_seeds_that_do_not_fit_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def minus(categories, **options):
    return pairwise_accuracy(GOOD, GOOD, SAME).minus(pairwise_accuracy(GOOD, GOOD, categories, **options))
