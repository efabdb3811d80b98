"""Several metrics against ratings and raters: values, intervals, paired differences."""

from __future__ import annotations

import numpy as np
import pytest

from reward.metaeval import bootstrap_weights, compare_metrics, compare_with_raters, kendall_tau
from reward.metaeval.bootstrap import resampled


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
    weights = bootstrap_weights(200, resamples=100)
    found = compare_metrics({"truth": truth, "noisy": noisy}, ratings, weights, subjects=["truth"])
    for aspect in ("desc", "rel"):
        assert found.agreement["noisy"][aspect].value == pytest.approx(kendall_tau(noisy[aspect], ratings[aspect]))
        taus = [resampled(kendall_tau, [each[aspect], ratings[aspect]], weights)[1:] for each in (truth, noisy)]
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


@pytest.mark.slow
def test_a_rater_is_averaged_over_raters_and_metrics_are_held_against_the_same_targets(world):
    truth, raters, _, noisy = world
    found = compare_with_raters(raters, {"truth": truth, "noisy": noisy}, bootstrap_weights(200, resamples=100))
    desc = raters["desc"]
    targets = [(desc[:, [1, 2]]).mean(1), (desc[:, [0, 2]]).mean(1), (desc[:, [0, 1]]).mean(1)]
    expected = np.mean([kendall_tau(desc[:, k], target) for k, target in enumerate(targets)])
    assert found.agreement["single rater"]["desc"].value == pytest.approx(expected)
    assert found.agreement["noisy"]["desc"].value == pytest.approx(
        np.mean([kendall_tau(noisy["desc"], t) for t in targets])
    )
    assert found.differences["truth"]["single rater"]["mean"].low > 0
    assert found.differences["noisy"]["single rater"]["mean"].high < 0
