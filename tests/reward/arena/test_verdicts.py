"""Verdicts about two captions: reading replies, both orders, position bias."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward.arena.verdicts import Opinion, PositionBias, combine, measure_position_bias, parse_reply

FIRST, SECOND, TIE = Opinion(1, 0, 0), Opinion(0, 1, 0), Opinion(0, 0, 1)
OTHER = {"A": "B", "B": "A", "tie": "tie"}


@st.composite
def opinions(draw):
    parts = draw(st.lists(st.integers(0, 100), min_size=3, max_size=3).filter(sum))
    return Opinion(*(part / sum(parts) for part in parts))


@pytest.mark.parametrize(
    ("a_first", "b_first", "winner", "points"),
    [
        (FIRST, SECOND, "A", 1.0),
        (SECOND, FIRST, "B", 0.0),
        (FIRST, FIRST, "tie", 0.5),  # the place decided
        (SECOND, SECOND, "tie", 0.5),
        (TIE, TIE, "tie", 0.5),
        (FIRST, TIE, "tie", 0.75),  # no win without both orders, but the points know of it
        (TIE, FIRST, "tie", 0.25),
        (FIRST, None, "A", 1.0),
        (TIE, None, "tie", 0.5),
    ],
)
def test_orders_are_combined_by_the_stated_rule(a_first, b_first, winner, points):
    verdict = combine(a_first, b_first)
    assert (verdict.winner, verdict.points) == (winner, points)


@settings(deadline=None, max_examples=60)
@given(opinions(), opinions())
def test_exchanging_the_captions_exchanges_the_verdict(one, two):
    verdict, exchanged = combine(one, two), combine(two, one)
    assert exchanged.winner == OTHER[verdict.winner]
    assert exchanged.points == pytest.approx(1 - verdict.points)
    assert [OTHER[choice] for choice in reversed(verdict.choices)] == list(exchanged.choices)
    assert sum(verdict.probabilities) == pytest.approx(1)


@settings(deadline=None, max_examples=60)
@given(opinions(), st.floats(0, 0.5))
def test_what_a_judge_adds_to_a_place_cancels(fair, bias):
    """Equal captions, and a judge that moves part of the second place's probability to the first."""
    moved = Opinion(fair.first + bias * fair.second, fair.second - bias * fair.second, fair.tie)
    assert combine(moved, moved).points == pytest.approx(0.5)


NO_LINE = "gave no line 'Verdict: 1'"


@pytest.mark.parametrize(
    ("reply", "choice", "reason"),
    [
        ("Reason: the dog is brown.\nVerdict: 1", "first", "the dog is brown."),
        ("Reason: two\nlines.\n\nVerdict: Tie.", "tie", "two\nlines."),
        ("**Reason:** it fits.\n**Verdict:** 2", "second", "it fits."),
        ("Reason: x\nJudgment: Caption 2 is better.", "second", "x"),
        ("Reason: x\nJudgement: <Caption 1 is better>", "first", "x"),
        ("Reasoning: x\nFinal verdict: tied", "tie", "x"),
        ("verdict: caption 1", "first", ""),
        ("Reason: it says 'Verdict: 2' in its text.\nVerdict: 1", "first", "it says 'Verdict: 2' in its text."),
        ("Verdict: 1\nVerdict: 1", "first", ""),
        ("", None, NO_LINE),
        ("Caption 1 is better.", None, NO_LINE),
        ("Verdict: 3", None, NO_LINE),
        ("Verdict: 12", None, NO_LINE),
        ("Verdict: 1 or 2 or tie", None, NO_LINE),
        ("The verdict: I cannot see 1", None, NO_LINE),
        ("> Verdict: 1\nReason: no.\nVerdict: 2", None, "verdicts that disagree"),  # one of them a caption's, quoted
    ],
)
def test_replies_that_are_read_and_refused(reply, choice, reason):
    opinion = parse_reply(reply)
    if choice is None:
        assert reason in opinion
    else:
        assert (opinion.choice, opinion.reason, opinion.first + opinion.second + opinion.tie) == (choice, reason, 1)


def test_position_bias_counts():
    pairs = [combine(FIRST, FIRST), combine(FIRST, SECOND), combine(TIE, SECOND), combine(FIRST)]
    bias = measure_position_bias(pair.choices for pair in pairs)
    assert bias == PositionBias(first=4, second=2, ties=1, both_orders=3, inconsistent=2, reversed=1)
    assert bias.first_share == 4 / 6
    assert bias.inconsistency == 2 / 3
    assert bias + PositionBias(1, 1, 1, 1, 1, 1) == PositionBias(5, 3, 2, 4, 3, 2)
    assert math.isnan(measure_position_bias([]).first_share)
    assert measure_position_bias([]).to_json()["inconsistency"] is None


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(opinions(), opinions()), max_size=8))
def test_a_judge_without_bias_measures_none(pairs):
    """Whatever it thinks of A and B, a judge that says the same in the other order has a first share of one half."""
    verdicts = [combine(one, Opinion(one.second, one.first, one.tie)) for one, _ in pairs]
    bias = measure_position_bias(verdict.choices for verdict in verdicts)
    assert bias.first == bias.second
    assert bias.inconsistent == 0
