"""Paired comparison of two metrics: exact small cases, calibration under the null, power, and Holm's correction."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata, zscore

from reward.metaeval import compare, evaluate, holm, roc_auc
from tests.reward.metaeval.small_benchmarks import (
    CORRELATIONS,
    average_precision,
    correlation,
    pairs,
    quadruples,
    rated,
)

PERMUTATIONS = 4000
IMAGES = np.array([0, 0, 1, 2, 2, 3, 4, 5, 5, 5, 6, 7])  # of twelve items


def exact_p(first: np.ndarray, second: np.ndarray, statistic: Callable[[np.ndarray], float]) -> float:
    """Share of all exchanges of the images' scores (N, ...) after which the difference is as large as it is."""
    observed = abs(statistic(first) - statistic(second))
    as_large = []
    for swaps in product([False, True], repeat=IMAGES.max() + 1):
        swapped = np.array(swaps)[IMAGES].reshape(-1, *[1] * (first.ndim - 1))
        one, other = np.where(swapped, second, first), np.where(swapped, first, second)
        as_large.append(abs(statistic(one) - statistic(other)) >= observed - 1e-9)
    return float(np.mean(as_large))


@pytest.mark.parametrize("statistic", CORRELATIONS)
def test_p_of_correlations_is_that_of_all_exchanges_of_images(statistic: str) -> None:
    rng = np.random.default_rng(3)
    ratings = rng.integers(1, 5, 12).astype(float)
    first, second = np.round(ratings + rng.normal(size=12)), 10 * ratings + 20 * rng.normal(size=12)  # other scales
    benchmark = rated(ratings[:, None].tolist(), [str(image) for image in IMAGES], statistic=statistic)
    found = compare(benchmark, first, second, resamples=5, permutations=PERMUTATIONS)
    scale = zscore if statistic == "pearson" else rankdata
    expected = exact_p(scale(first), scale(second), lambda scores: correlation(statistic, scores, ratings))
    assert found.p_values["overall"] == pytest.approx(expected, abs=0.03)
    assert found.first["overall"] == pytest.approx(correlation(statistic, first, ratings))
    assert found.second["overall"] == pytest.approx(correlation(statistic, second, ratings))
    assert 0.01 < expected < 0.99


@pytest.mark.parametrize("statistic", ["accuracy", "auc", "ap"])
def test_p_of_pairs_is_that_of_all_exchanges_of_images(statistic: str) -> None:
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, 12)
    first, second = (np.round(rng.normal(size=(12, 2)) + gap * np.eye(2)[labels], 1) for gap in (2.5, 0.5))
    benchmark = pairs(labels.tolist(), images=[str(image) for image in IMAGES], statistic=statistic)
    right = np.eye(2)[labels]
    if statistic in ("auc", "ap"):
        value = roc_auc if statistic == "auc" else average_precision
        given = [rankdata(scores, axis=None).reshape(12, 2) for scores in (first, second)]
        expected = exact_p(given[0], given[1], lambda scores: value(scores.ravel(), right.ravel()))
    else:
        won = [((scores * (2 * right - 1)).sum(axis=1) > 0).astype(float) for scores in (first, second)]
        expected = exact_p(won[0], won[1], lambda scores: float(scores.mean()))
    found = compare(benchmark, first, second, resamples=5, permutations=PERMUTATIONS)
    assert found.p_values["overall"] == pytest.approx(expected, abs=0.03)
    assert 0.001 < expected < 0.99


def test_the_mean_of_aspects_is_tested_as_a_whole() -> None:
    rng = np.random.default_rng(0)
    ratings = rng.normal(size=(12, 2))
    names = ("a", "b")
    benchmark = rated(
        [{name: (row[k],) for k, name in enumerate(names)} for row in ratings], [str(image) for image in IMAGES]
    )
    first, second = ratings + rng.normal(size=(12, 2)), ratings + 2 * rng.normal(size=(12, 2))
    given = [{name: scores[:, [k]] for k, name in enumerate(names)} for scores in (first, second)]
    found = compare(benchmark, *given, resamples=40, permutations=PERMUTATIONS)
    expected = exact_p(
        rankdata(first, axis=0),
        rankdata(second, axis=0),
        lambda scores: float(np.mean([correlation("tau-c", scores[:, k], ratings[:, k]) for k in (0, 1)])),
    )
    assert found.p_values["mean"] == pytest.approx(expected, abs=0.03)
    alone = [evaluate(benchmark, scores, resamples=40) for scores in given]
    for name in ("a", "b", "mean"):
        difference = alone[0].replicates[name] - alone[1].replicates[name]
        assert found.differences[name].value == pytest.approx(
            alone[0].estimates[name].value - alone[1].estimates[name].value
        )
        assert found.differences[name].low == pytest.approx(np.quantile(difference, 0.025))
    assert found.headline == "mean"


def test_a_metric_does_not_differ_from_itself_in_other_units() -> None:
    rng = np.random.default_rng(0)
    scores, ratings = rng.normal(size=40), rng.integers(1, 5, 40)
    found = compare(rated(ratings[:, None].tolist()), scores, np.exp(3 * scores), resamples=50, permutations=50)
    assert vars(found.differences["overall"]) == {"value": 0, "low": 0, "high": 0}
    assert found.p_values["overall"] == 1
    one_image = compare(rated(ratings[:, None].tolist(), ["one"] * 40), scores, -scores, resamples=9, permutations=9)
    assert one_image.p_values["overall"] == 1  # nothing but the exchange of all, which is as large


def test_items_count_that_both_have_scored() -> None:
    rng = np.random.default_rng(0)
    ratings = rng.integers(1, 5, (40, 1))
    first, second = rng.normal(size=(2, 40))
    place = np.arange(40)
    found = compare(
        rated(ratings.tolist()), np.where(place < 5, np.nan, first), np.where(place > 30, np.nan, second), resamples=20
    )
    alone = compare(rated(ratings[5:31].tolist()), first[5:31], second[5:31], resamples=20)
    assert (found.scored, found.items, found.images) == (26, 40, 26)
    assert (found.first, found.second) == (alone.first, alone.second)
    assert (found.differences, found.p_values) == (alone.differences, alone.p_values)


def test_quadruples_are_compared_by_what_is_right() -> None:
    good = np.tile([0.9, 0.1, 0.2, 0.8], (30, 1))
    found = compare(quadruples(30), good, np.random.default_rng(0).normal(size=(30, 4)), resamples=50)
    assert set(found.p_values) == {"text", "image", "group"}
    assert max(found.p_values.values()) < 0.01


@pytest.mark.parametrize(
    ("second", "options", "message"),
    [
        (np.ones(4), {}, r"the second metric's scores must have shape \(3, 1\)"),
        (np.ones(3), {"permutations": 0}, "permutations must be at least 1, got 0"),
        ([np.nan, np.nan, 1], {}, "1 captions of Made have a score and a rating"),
    ],
)
def test_what_cannot_be_compared_is_refused(second: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare(rated([[1], [2], [3]]), np.ones(3), second, **options)


@settings(max_examples=60, deadline=None)
@given(values=st.lists(st.floats(0, 1), max_size=6))
def test_holm_rejects_what_the_step_down_procedure_rejects(values: list[float]) -> None:
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


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_what_is_no_probability_is_not_corrected(value: float) -> None:
    with pytest.raises(ValueError, match=r"p-value of 'a' must be in \[0, 1\]"):
        holm({"a": value})
