"""Tables of several metrics against ratings and raters."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

from reward.metaeval import bootstrap_weights, compare_metrics, compare_with_raters, kendall_tau, tau_difference


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
        alone = tau_difference(truth[aspect], noisy[aspect], ratings[aspect], weights)
        cell = found.differences["truth"]["noisy"][aspect]
        assert (cell.value, cell.low, cell.high) == pytest.approx((alone.value, alone.low, alone.high))
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


def test_tables_are_json(world):
    truth, _, ratings, noisy = world
    found = compare_metrics(
        {"truth": truth, "noisy": noisy}, ratings, bootstrap_weights(200, resamples=20), subjects=["noisy"]
    )
    plain = json.loads(json.dumps(found.to_json()))
    cell = found.agreement["truth"]["rel"]
    assert plain["agreement"]["truth"]["rel"] == [cell.value, cell.low, cell.high]
    assert set(plain["differences"]["noisy"]) == {"truth"}


def test_unfit_input_is_refused(world):
    truth, raters, ratings, _ = world
    weights = bootstrap_weights(200, resamples=5)
    with pytest.raises(KeyError, match="rel"):
        compare_metrics({"half": {"desc": truth["desc"]}}, ratings, weights)
    with pytest.raises(ValueError, match="2 raters"):
        compare_with_raters({"desc": raters["desc"][:, :1]}, {}, weights)
    with pytest.raises(ValueError, match="not finite"):
        compare_metrics({"nan": {"desc": truth["desc"] * np.nan, "rel": truth["rel"]}}, ratings, weights)


def test_eight_metrics_on_three_aspects_take_seconds():
    rng = np.random.default_rng(0)
    ratings = {name: rng.integers(0, 13, 400) / 12 for name in ("desc", "rel", "flu")}
    scores = {f"metric {k}": {name: rng.normal(size=400) for name in ratings} for k in range(8)}
    start = time.process_time()
    compare_metrics(scores, ratings, bootstrap_weights(400), subjects=list(scores))
    assert time.process_time() - start < 20  # about 1.5 s on one core
