"""Bootstrap, correlations, AUC, ties: values and resamples are those of scipy, scikit-learn or the definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from reward.metaeval import (
    Interval,
    average_precision,
    bootstrap_weights,
    holm,
    mean_interval,
    roc_auc,
    tie_threshold,
    verdicts,
    winoground_scores,
)
from reward.metaeval.bootstrap import p_value, with_mean

NAN = float("nan")


def test_the_interval_of_a_mean_is_that_of_theory_and_one_that_touches_zero_does_not_exclude_it():
    values = np.random.default_rng(0).normal(size=2000)
    found = mean_interval(values, bootstrap_weights(2000))
    assert found.value == pytest.approx(values.mean())
    assert found.high - found.low == pytest.approx(2 * 1.96 * values.std() / np.sqrt(2000), rel=0.08)
    assert not Interval(0.1, 0.0, 0.2).excludes_zero
    assert Interval(-0.1, -0.2, -0.01).excludes_zero


def test_samples_of_one_image_are_drawn_together_and_widen_the_interval():
    images = np.repeat(np.arange(40), 10)
    weights = bootstrap_weights(400, clusters=images.tolist())
    assert (weights.reshape(-1, 40, 10).std(axis=2) == 0).all()
    assert (weights.sum(axis=1) == 400).all()
    values = np.random.default_rng(0).normal(size=40)[images]  # alike within an image
    clustered, single = mean_interval(values, weights), mean_interval(values, bootstrap_weights(400))
    assert clustered.high - clustered.low > 2 * (single.high - single.low)
    assert np.array_equal(bootstrap_weights(9, seed=3), bootstrap_weights(9, seed=3))
    assert not np.array_equal(bootstrap_weights(9, seed=3), bootstrap_weights(9, seed=4))


def test_a_mean_lacks_what_the_estimate_lacks_and_averages_what_a_resample_has():
    columns = {"a": np.array([1.0, NAN, 2.0]), "b": np.array([3.0, 4.0, NAN]), "c": np.array([NAN, 1.0, 1.0])}
    assert list(with_mean(columns, ["a", "b"])) == ["a", "b", "mean", "c"]
    assert with_mean(columns, ["a", "b"])["mean"].tolist() == [2, 4, 2]
    assert np.isnan(with_mean(columns, ["a", "c"])["mean"][0])


def test_p_is_small_where_the_interval_excludes_zero():
    rng = np.random.default_rng(0)
    for shift in (0.0, 1.9, 2.1, 5.0):
        values = np.append(shift, rng.normal(shift, 1, 4000))
        assert (p_value(values) < 0.05) == Interval.of(values).excludes_zero
    assert p_value(np.append(-9.0, rng.normal(-9, 1, 99))) == 0.02  # the least of 99 resamples


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(st.integers(-2, 3), st.booleans()), min_size=1, max_size=15))
def test_auc_and_average_precision_are_those_of_scikit_learn(rows):
    scores, labels = (np.array(column) for column in zip((0, True), (1, False), *rows, strict=True))
    assert roc_auc(scores, labels) == pytest.approx(roc_auc_score(labels, scores))
    assert average_precision(scores, labels) == pytest.approx(average_precision_score(labels, scores))
    wrong = np.zeros(len(labels))
    assert np.isnan([roc_auc(scores, wrong), roc_auc(scores, wrong + 1), average_precision(scores, wrong)]).all()


@settings(max_examples=60, deadline=None)
@given(differences=st.lists(st.integers(-4, 4), min_size=1, max_size=12), share=st.floats(0, 1))
def test_no_threshold_comes_nearer_to_the_number_of_ties(differences, share):
    ties = round(share * len(differences))
    threshold = tie_threshold(np.array(differences), ties)
    said = verdicts(np.array(differences), threshold)
    assert said.tolist() == [0 if abs(d) <= threshold else 1 if d > 0 else -1 for d in differences]
    others = [abs(sum(abs(d) <= other for d in differences) - ties) for other in (0, 1, 2, 3, 4)]
    assert threshold == others.index(min(others))


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(*[st.integers(0, 2)] * 4), min_size=1, max_size=6))
def test_winogrounds_scores_are_those_of_their_definition(rows):
    found = winoground_scores(np.array(rows))
    for number, (c0_i0, c1_i0, c0_i1, c1_i1) in enumerate(rows):
        text = c0_i0 > c1_i0 and c1_i1 > c0_i1
        image = c0_i0 > c0_i1 and c1_i1 > c1_i0
        assert [bool(found[name][number]) for name in ("text", "image", "group")] == [text, image, text and image]


@settings(max_examples=60, deadline=None)
@given(values=st.lists(st.floats(0, 1), max_size=6))
def test_holm_rejects_what_the_step_down_procedure_rejects(values):
    given_values = {str(place): value for place, value in enumerate(values)}
    corrected = holm(given_values)
    assert list(corrected) == list(given_values)
    for level in (0.01, 0.05, 0.3, 0.9):
        rejected = set()
        for step, name in enumerate(sorted(given_values, key=given_values.__getitem__)):
            if given_values[name] * (len(values) - step) > level:
                break
            rejected.add(name)
        assert {name for name, value in corrected.items() if value <= level} == rejected
