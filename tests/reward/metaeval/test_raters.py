"""Several metrics against ratings and raters, and the coefficients beside those of capevalkit."""

import numpy as np
import pytest

from reward.metaeval import bootstrap_weights, compare_metrics, compare_with_raters, evaluate, kendall_tau
from reward.metaeval.bootstrap import resampled
from reward.metaeval.raters import single_rater
from tests.reward.metaeval.small_benchmarks import rated

RNG = np.random.default_rng(0)
TRUTH = {name: RNG.normal(size=100) for name in ("desc", "rel")}
RATERS = {name: truth[:, None] + RNG.normal(size=(100, 3)) for name, truth in TRUTH.items()}
NOISY = {name: truth + 2 * RNG.normal(size=100) for name, truth in TRUTH.items()}
WEIGHTS = bootstrap_weights(100, resamples=60)


def test_each_cell_is_the_tau_of_its_metric_and_aspect_and_differences_are_paired():
    ratings = {name: values.mean(axis=1) for name, values in RATERS.items()}
    found = compare_metrics({"truth": TRUTH, "noisy": NOISY}, ratings, WEIGHTS, subjects=["truth"])
    of_truth, of_noisy = found.agreement["truth"], found.agreement["noisy"]
    for aspect in ("desc", "rel"):
        assert of_noisy[aspect].value == pytest.approx(kendall_tau(NOISY[aspect], ratings[aspect]))
        taus = [resampled(kendall_tau, [each[aspect], ratings[aspect]], WEIGHTS)[1:] for each in (TRUTH, NOISY)]
        cell = found.differences["truth"]["noisy"][aspect]
        assert (cell.low, cell.high) == pytest.approx(np.quantile(taus[0] - taus[1], [0.025, 0.975]))
        assert cell.value == pytest.approx(of_truth[aspect].value - of_noisy[aspect].value)
    assert of_truth["mean"].value == pytest.approx((of_truth["desc"].value + of_truth["rel"].value) / 2)
    assert list(found.differences["truth"]) == ["noisy"]


def test_a_rater_is_averaged_over_raters_and_metrics_are_held_against_the_same_targets():
    found = compare_with_raters(RATERS, {"truth": TRUTH, "noisy": NOISY}, WEIGHTS)
    own, targets = RATERS["desc"].T, [np.delete(RATERS["desc"], k, 1).mean(1) for k in range(3)]
    person = np.mean([kendall_tau(ratings, target) for ratings, target in zip(own, targets, strict=True)])
    metric = np.mean([kendall_tau(NOISY["desc"], target) for target in targets])
    assert found.agreement["single rater"]["desc"].value == pytest.approx(person)
    assert found.agreement["noisy"]["desc"].value == pytest.approx(metric)
    assert found.differences["truth"]["single rater"]["mean"].value > 0
    assert found.differences["noisy"]["single rater"]["mean"].value < 0


def test_captions_of_one_image_are_drawn_together():
    ratings = np.round(RATERS["desc"][:12], 3).tolist()
    intervals = []
    for times in (1, 2):  # each caption once, and twice
        benchmark = rated(ratings * times, images=[f"{n}" for n in range(12)] * times)
        found = single_rater(benchmark, {"noisy": np.tile(NOISY["desc"][:12], times)}, resamples=30, seed=0)
        agreement = found.agreement["noisy"]["overall"]
        intervals.append((agreement.value, agreement.low, agreement.high))
    assert intervals[0] == pytest.approx(intervals[1])


RATINGS = RNG.integers(1, 5, 120)
TABLES = {
    "ties": (np.round(RATINGS + RNG.normal(size=120)), RATINGS),
    "missing scores": (np.where(np.arange(120) % 7, RATINGS + RNG.normal(size=120), np.nan), np.round(RATINGS / 4, 2)),
}


@pytest.mark.parametrize("name", TABLES)
def test_tau_is_that_of_capevalkit(name):
    """The kit of VELA's authors, whose dependencies are older than ours, so that it is in no extra."""
    why = "capevalkit is not installed: pip install --no-deps capevalkit"
    peer = pytest.importorskip("capevalkit.domain.evaluation.correlations", reason=why, exc_type=ImportError)
    scores, ratings = TABLES[name]
    known = ~np.isnan(scores)
    theirs = peer.kendall_correlations(scores[known], ratings[known])
    found = evaluate(rated([[float(each)] for each in ratings]), scores, resamples=1).details["overall"]
    for kind in ("tau_b", "tau_c"):
        assert found[kind] == pytest.approx(theirs[f"kendall_{kind}"] / 100, abs=1e-12)
