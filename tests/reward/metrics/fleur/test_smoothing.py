"""FLEUR's arithmetic beside exact fractions."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward.metrics.fleur import smoothed_score

# Appendix B of the paper: LLaVA answers 0.85.
FIRST = [
    0.003021240234375, 0.00128936767578125, 0.0018758773803710938, 0.00353240966796875, 0.00827789306640625,
    0.03350830078125, 0.07672119140625, 0.2117919921875, 0.383544921875, 0.2763671875,
]  # fmt: skip
SECOND = [
    0.0450439453125, 0.035614013671875, 0.050628662109375, 0.044342041015625, 0.0400390625,
    0.3515625, 0.048309326171875, 0.041961669921875, 0.04681396484375, 0.035888671875,
]  # fmt: skip

_parts = st.lists(st.integers(0, 1000), min_size=11, max_size=11).filter(any)  # the eleventh: what is no digit


def test_the_worked_example_of_the_paper():
    # Printed is 0.80664, which is a half-precision number: the authors' sum ran in half precision.
    assert smoothed_score(FIRST, SECOND, dtype=np.float16) == pytest.approx(0.80664, abs=1e-5)
    exact = sum(
        Fraction(digit) * (Fraction(p) / 10 + Fraction(q) / 100)
        for digit, (p, q) in enumerate(zip(FIRST, SECOND, strict=True))
    )
    assert smoothed_score(FIRST, SECOND) == pytest.approx(float(exact), abs=1e-12)
    assert smoothed_score(FIRST, SECOND) == pytest.approx(0.80617, abs=1e-5)


@settings(deadline=None)
@given(first=_parts, second=_parts)
def test_the_score_is_the_expected_decimals_in_exact_fractions(first, second):
    exact = sum(Fraction(digit * part, 10 * sum(first)) for digit, part in enumerate(first[:10]))
    exact += sum(Fraction(digit * part, 100 * sum(second)) for digit, part in enumerate(second[:10]))
    probabilities = [[part / sum(parts) for part in parts[:10]] for parts in (first, second)]
    assert smoothed_score(*probabilities) == pytest.approx(float(exact), abs=1e-12)


@pytest.mark.parametrize("bad", [[0.1] * 9, [0.2] * 10, [-0.1, *[0.1] * 9], [float("nan"), *[0.1] * 9]])
def test_what_are_no_ten_probabilities_is_refused(bad):
    with pytest.raises(ValueError, match="first must"):
        smoothed_score(bad, [0.1] * 10)
    with pytest.raises(ValueError, match="second must"):
        smoothed_score([0.1] * 10, bad)
