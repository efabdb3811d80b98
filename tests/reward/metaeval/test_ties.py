"""The threshold that gives a metric as many ties as people gave."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward.metaeval import tie_threshold, verdicts


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


def test_without_equal_differences_the_number_is_met():
    differences = np.random.default_rng(0).normal(size=400)
    for ties in (0, 1, 137, 400):
        assert (verdicts(differences, tie_threshold(differences, ties)) == 0).sum() == ties


def test_equal_scores_are_ties_even_where_people_gave_none():
    assert tie_threshold(np.array([0.0, 0.5, -0.2]), 0) == 0
    assert verdicts(np.array([0.0, 0.5, -0.2]), 0).tolist() == [0, 1, -1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tie_threshold(np.ones(3), 4), "between 0 and the 3 battles, got 4"),
        (lambda: tie_threshold(np.ones(3), -1), "got -1"),
        (lambda: tie_threshold(np.array([1.0, np.nan]), 1), "1 of 2 differences are not finite"),
        (lambda: tie_threshold(np.ones((2, 2)), 1), r"shape \(N,\)"),
        (lambda: verdicts(np.ones(3), -0.1), "at least 0, got -0.1"),
        (lambda: verdicts(np.ones(3), np.nan), "at least 0, got nan"),
        (lambda: verdicts(np.array([]), 0.1), "N >= 1"),
    ],
)
def test_impossible_numbers_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
