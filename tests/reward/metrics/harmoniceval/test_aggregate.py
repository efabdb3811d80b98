"""HarmonicEval's arithmetic against exact fractions and loops, its limits, and degenerate distributions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward.metrics.harmoniceval import aggregate

# Integer parts of a whole, so that fractions are exact; every rating has some, so that no variance is 0.
_rows = st.lists(st.lists(st.integers(1, 10_000), min_size=5, max_size=5), min_size=1, max_size=6)


def _moments(parts: list[int]) -> tuple[Fraction, Fraction]:
    total = sum(parts)
    mean = sum(Fraction(rating * part, total) for rating, part in enumerate(parts, start=1))
    return mean, sum((rating - mean) ** 2 * Fraction(part, total) for rating, part in enumerate(parts, start=1))


@settings(deadline=None)
@given(rows=_rows, gamma=st.floats(0.2, 1) | st.sampled_from([0.5, 1.0]), scale=st.floats(1e-6, 1e3))
def test_the_formula_in_other_arithmetic(rows: list[list[int]], gamma: float, scale: float) -> None:
    result = aggregate(np.array(rows) * scale, gamma)
    moments = [_moments(row) for row in rows]
    raw = [math.pow(float(variance), -(1 - gamma) / gamma) for _, variance in moments]
    weights = [weight / math.fsum(raw) for weight in raw]
    assert result.scores == pytest.approx([float(mean) for mean, _ in moments], abs=1e-9)
    assert result.variances == pytest.approx([float(variance) for _, variance in moments], abs=1e-9)
    assert result.weights == pytest.approx(weights, abs=1e-9)
    expected = math.fsum(weight * float(mean) for weight, (mean, _) in zip(weights, moments, strict=True))
    assert result.overall == pytest.approx(expected, abs=1e-6)


@settings(deadline=None)
@given(rows=_rows)
def test_gamma_0_selects_the_least_variance(rows: list[list[int]]) -> None:
    variances = [variance for _, variance in map(_moments, rows)]
    selected = aggregate(rows, 0).weights
    assert all(w == 0 for w, variance in zip(selected, variances, strict=True) if variance > min(variances) * 1.001)
    assert selected.sum() == pytest.approx(1)


def test_the_default_gamma_and_a_small_one() -> None:
    rows = [[0, 0, 0, 0.5, 0.5], [0.5, 0, 0, 0, 0.5]]
    assert aggregate(rows).weights.tolist() == aggregate(rows, 0.75).weights.tolist()
    assert aggregate(rows).weights[0] / aggregate(rows).weights[1] == pytest.approx(16 ** (1 / 3))
    for gamma in (0, 1e-12, 1e-3):  # without overflow
        assert aggregate([[0, 0, 0, 0.1, 0.9], [0.2] * 5], gamma).weights.tolist() == [1, 0]


@pytest.mark.parametrize("gamma", [0, 0.1, 0.5, 0.75, 1])
def test_certain_ratings_divide_by_nothing(gamma: float) -> None:
    certain = np.eye(5)
    alike = aggregate(certain, gamma)
    assert alike.variances.tolist() == [0] * 5
    assert alike.weights == pytest.approx([0.2] * 5)
    assert alike.overall == pytest.approx(3)
    mixed = aggregate([certain[4], [0.2] * 5, certain[3]], gamma)
    assert np.isfinite(mixed.weights).all()
    assert mixed.weights[0] == mixed.weights[2] >= mixed.weights[1]
    assert mixed.weights.sum() == pytest.approx(1)
    if gamma <= 0.5:
        assert mixed.overall == pytest.approx(4.5)


@settings(deadline=None)
@given(
    rows=st.lists(st.lists(st.floats(0, 1), min_size=5, max_size=5).filter(any), min_size=1, max_size=5),
    gamma=st.floats(0, 1),
)
def test_anything_with_mass_stays_on_the_scale(rows: list[list[float]], gamma: float) -> None:
    result = aggregate(rows, gamma)
    assert 1 <= result.overall <= 5
    assert ((result.scores >= 1) & (result.scores <= 5)).all()
    assert (result.variances >= 0).all()
    assert (result.weights >= 0).all()
    assert result.weights.sum() == pytest.approx(1)


def test_many_samples_at_once_are_as_one_by_one() -> None:
    many = np.random.default_rng(0).random((4, 3, 5))
    together = aggregate(many, 0.6)
    assert together.overall.shape == (4,)
    for index, one in enumerate(many):
        for ours, alone in zip(together, aggregate(one, 0.6), strict=True):
            assert ours[index] == pytest.approx(alone, abs=1e-12)


@pytest.mark.parametrize(
    ("probabilities", "message"),
    [
        ([0.2] * 5, "shape"),
        ([[0.25] * 4], "shape"),
        (np.zeros((0, 5)), "shape"),
        ([[0, 0, 0, 0, 0]], "has none"),
        ([[-0.1, 0.5, 0.2, 0.2, 0.2]], "not negative"),
        ([[float("nan"), 0.5, 0.2, 0.2, 0.1]], "finite"),
    ],
)
def test_what_are_no_probabilities_of_ratings_is_refused(probabilities: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        aggregate(probabilities)


@pytest.mark.parametrize("gamma", [-0.1, 1.1, float("nan"), "0.5", None, True])
def test_gamma_outside_its_range_is_refused(gamma: object) -> None:
    with pytest.raises(ValueError, match="gamma"):
        aggregate([[0.2] * 5], gamma)  # type: ignore[arg-type]
