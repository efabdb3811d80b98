"""Winoground's scores against their definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward.metaeval import winoground_scores


@settings(max_examples=80, deadline=None)
@given(rows=st.lists(st.tuples(*[st.integers(0, 2)] * 4), min_size=1, max_size=6))
def test_values_are_those_of_their_definition(rows):
    found = winoground_scores(np.array(rows))
    for number, (c0_i0, c1_i0, c0_i1, c1_i1) in enumerate(rows):
        text = c0_i0 > c1_i0 and c1_i1 > c0_i1
        image = c0_i0 > c0_i1 and c1_i1 > c1_i0
        assert [bool(found[name][number]) for name in ("text", "image", "group")] == [text, image, text and image]


def test_chance_is_a_quarter_a_quarter_and_a_sixth():
    found = winoground_scores(np.random.default_rng(0).normal(size=(40_000, 4)))
    assert [found[name].mean() for name in found] == pytest.approx([1 / 4, 1 / 4, 1 / 6], abs=0.01)


@pytest.mark.parametrize(
    ("scores", "message"),
    [(np.ones((2, 3)), r"shape \(N, 4\), got \(2, 3\)"), (np.full((2, 4), np.nan), "2 of 2 quadruples have a score")],
)
def test_unfit_scores_are_refused(scores, message):
    with pytest.raises(ValueError, match=message):
        winoground_scores(scores)
