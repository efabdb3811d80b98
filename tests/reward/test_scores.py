"""ScoreTable and aspect weights."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward.errors import ConfigError, WeightsError
from reward.samples import ScoreTable
from reward.weights import normalise_weights

ASPECTS = ("descriptiveness", "relevance", "fluency")
ALIASES = {"desc": "descriptiveness", "rel": "relevance", "flu": "fluency"}


@pytest.mark.parametrize(
    ("weights", "normalised"),
    [
        ({"desc": 1, "rel": 2, "fluency": 1}, [0.25, 0.5, 0.25]),
        (None, [1 / 3] * 3),
        ({"relevance": np.float32(5)}, [0, 1, 0]),
        ({"desc": 1e308, "rel": 1e308, "flu": 1e308}, [1 / 3] * 3),
        ({"desc": 1e-320, "rel": 1e-320}, [0.5, 0.5, 0]),
    ],
)
def test_weights_are_normalised(weights: dict[str, float] | None, normalised: list[float]) -> None:
    assert normalise_weights(weights, ASPECTS, ALIASES).tolist() == normalised


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=3, max_size=3).filter(lambda values: sum(values) > 1e-6))
def test_any_non_negative_weights_sum_to_one_and_keep_their_ratios(values: list[float]) -> None:
    weights = normalise_weights(dict(zip(ASPECTS, values, strict=True)), ASPECTS)
    assert weights.sum() == pytest.approx(1)
    assert weights * sum(values) == pytest.approx(values, abs=1e-6)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"colour": 1}, "unknown aspect 'colour'; known: descriptiveness, relevance, fluency, desc, rel, flu"),
        ({"desc": 1, "descriptiveness": 1}, "'descriptiveness' twice, as 'desc' and 'descriptiveness'"),
        ({"desc": math.nan}, "'desc' must be a finite number, got nan"),
        ({"desc": math.inf}, "'desc' must be a finite number, got inf"),
        ({"desc": "1"}, "'desc' must be a finite number, got '1'"),
        ({"desc": True}, "'desc' must be a finite number, got True"),
        ({"desc": None}, "'desc' must be a finite number, got None"),
        ({"desc": 0}, "sum to a positive number"),
        ({"desc": 1, "rel": -2}, "sum to a positive number"),
        ({}, "sum to a positive number"),
        ({"desc": 10**400}, "'desc' must be a finite number, got 1000"),
        ({"desc": -1.5e308, "rel": -1.5e308, "flu": 1e308}, "sum to a positive number"),
        ([1, 2, 3], "weights must be a dict"),
    ],
)
def test_bad_weights_are_refused(weights: object, message: str) -> None:
    with pytest.raises(WeightsError, match=message):
        normalise_weights(weights, ASPECTS, ALIASES)


def test_combine_is_the_weighted_mean_and_nan_stays_where_it_counts() -> None:
    table = ScoreTable(np.array([[0.2, 0.4, 0.9], [0.5, np.nan, 0.1]]), ASPECTS, {1: "no image"})
    assert table.combine()[0] == pytest.approx(0.5)
    assert math.isnan(table.combine()[1])
    assert table.combine({"descriptiveness": 1, "fluency": 3}) == pytest.approx([0.725, 0.2])


def test_short_names_go_wherever_an_aspect_is_named() -> None:
    table = ScoreTable([[1, 2, 3], [4, 5, 6]], ASPECTS, aliases=ALIASES)
    assert table.column("rel").tolist() == table.column("relevance").tolist() == [2, 5]
    assert table.combine({"desc": 1, "flu": 3}).tolist() == [2.5, 5.5]
    with pytest.raises(ConfigError, match="no aspect is named 'colour'; known: descriptiveness, relevance, fluency, d"):
        table.column("colour")
    with pytest.raises(ConfigError, match=r"no aspect is named 'rel'; known: descriptiveness, relevance, fluency$"):
        ScoreTable([[1, 2, 3]], ASPECTS).column("rel")


def test_lengths_shapes_and_truncation_flags() -> None:
    assert ScoreTable([[1, 2, 3], [4, 5, 6]], ASPECTS).truncated.tolist() == [False, False]
    assert [len(ScoreTable(np.zeros((rows, 3)), ASPECTS)) for rows in (0, 2)] == [0, 2]
    with pytest.raises(ValueError, match=r"shape \(N, 3\), got \(2, 2\)"):
        ScoreTable(np.zeros((2, 2)), ASPECTS)
    with pytest.raises(ValueError, match=r"truncated must have shape \(2,\)"):
        ScoreTable(np.zeros((2, 3)), ASPECTS, truncated=np.zeros(3, dtype=bool))
