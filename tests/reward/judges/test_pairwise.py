"""Verdicts about two captions: reading replies, both orders, position bias; PairwiseJudge and its prompt."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from reward.errors import InvalidSampleError, JudgeError
from reward.judges import Answer, ScriptedJudge
from reward.judges.opinions import Opinion, PositionBias, combine, measure_position_bias, parse_reply
from reward.judges.pairwise import JudgePair, PairPrompt, PairwiseJudge
from tests.toys.toy_judges import shown_captions as shown

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


NO_VERDICTS = ["", "Caption 1 is better.", "Verdict: 3", "Verdict: 12", "Verdict: 1 or 2 or tie"]
NO_VERDICTS += ["The verdict: I cannot see 1"]


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
        *[(reply, None, "gave no line 'Verdict: 1'") for reply in NO_VERDICTS],
        ("<think>Verdict: 1?</think>Reason: x\nVerdict: 2", "second", "x"),
        ('Reason: it says so.\n"Verdict: 1"', None, "gave no line 'Verdict: 1'"),
        ("Verdict: 1\nVerdict: 2", None, "verdicts that disagree"),
    ],
)
def test_replies_that_are_read_and_refused(reply, choice, reason):
    opinion = parse_reply(reply)
    if choice is None:
        assert reason in opinion
    else:
        names = ("first", "second", "tie")
        assert {name: getattr(opinion, name) for name in names} == {name: float(name == choice) for name in names}
        assert opinion.reason == reason


def test_position_bias_counts():
    pairs = [combine(FIRST, FIRST), combine(FIRST, SECOND), combine(TIE, SECOND), combine(FIRST)]
    bias = measure_position_bias(pair.choices for pair in pairs)
    assert bias == PositionBias(first=4, second=2, ties=1, both_orders=3, inconsistent=2, reversed=1)
    assert bias.first_share == 4 / 6
    assert bias.inconsistency == 2 / 3
    assert math.isnan(measure_position_bias([]).first_share)
    assert measure_position_bias([]).to_json()["inconsistency"] is None


IMAGE = Image.new("RGB", (4, 4))


def longest(question):
    """Prefers the longer caption, and says so."""
    first, second = map(len, shown(question))
    verdict = "tie" if first == second else 1 if first > second else 2
    return f"Reason: {first} against {second} letters.\nVerdict: {verdict}"


def compare(answer=None, *pairs, distribution=None, **settings):
    """The verdicts of a scripted judge on pairs of captions; without an answer in words it gives probabilities."""
    judge = PairwiseJudge(ScriptedJudge(answer, distribution=distribution), reasons=distribution is None, **settings)
    return judge.compare([JudgePair(*pair, IMAGE) for pair in pairs])


def winners(verdicts):
    return [verdict.winner for verdict in verdicts]


def test_verdicts_in_words_whose_reasons_say_which_order_they_are_of():
    verdicts = compare(longest, ("long one", "short"), ("short", "long one"), ("abc", "xyz"))
    assert winners(verdicts) == ["A", "B", "tie"]
    assert verdicts[0].reason == "8 against 5 letters.\nWith the captions exchanged: 5 against 8 letters."


@pytest.mark.parametrize("both_orders", [True, False])
def test_each_order_is_asked_with_image_and_system(both_orders):
    asked = []
    judge = PairwiseJudge(ScriptedJudge(lambda q: asked.append(q) or "Verdict: 1"), both_orders=both_orders)
    verdicts = judge.compare([JudgePair("a", "b", IMAGE, references=["r1", "r2"])])
    assert winners(verdicts) == ["tie" if both_orders else "A"]
    assert [shown(question) for question in asked] == [["a", "b"], ["b", "a"]][: 1 + both_orders]
    assert judge.judge.usage.answered == 1 + both_orders
    for question in asked:
        assert (question.image, question.system) == (IMAGE, PairPrompt.of().system)
        assert "> r1\n\n> r2\n\nCaption 1:" in question.text


def test_probabilities_instead_of_words():
    def distribution(question):
        first, second = shown(question)
        like = {"good": 0.6, "bad": 0.1}
        return {"1": like[first] + 0.1, "2": like[second], "0": 0.1}  # 0.1 for the first place

    (verdict,) = compare(None, ("good", "bad"), distribution=distribution)
    # good first: 0.7, 0.1, 0.1; bad first: 0.2, 0.6, 0.1; each over 0.9
    assert verdict.probabilities == pytest.approx((1.3 / 1.8, 0.3 / 1.8, 0.2 / 1.8))
    assert (verdict.winner, verdict.reason, verdict.points) == ("A", "", pytest.approx((1.3 + 0.2 / 2) / 1.8))


def test_blank_captions_are_not_asked_about():
    verdicts = compare(None, ("a", " "), ("\u200b", "b"), ("", "\n"))  # the judge has no answers
    assert winners(verdicts) == ["A", "B", "tie"]
    assert [verdict.points for verdict in verdicts] == [1.0, 0.0, 0.5]
    assert compare() == []


def test_what_fails_fails_alone():
    def answer(question):
        first, second = shown(question)
        if "slow" in (first, second):
            raise JudgeError("timed out")
        odd = {"odd": "I would rather not.", "half": "What?", "cut": Answer("Reason: well", truncated=True)}
        return odd.get(first, "Verdict: 1")

    pairs = [("a", "b"), ("slow", "b"), ("odd", "b"), ("a", "half"), ("cut", "b")]
    verdicts = compare(answer, *pairs, max_new_tokens=3)
    assert winners(verdicts) == ["tie", None, None, None, None]
    assert [verdict.unanswered for verdict in verdicts] == [False, True, False, False, False]
    assert verdicts[1].error == "timed out"
    assert all("no line 'Verdict: 1'" in verdict.error for verdict in verdicts[2:])
    assert verdicts[3].choices == ()  # half an answer is none
    assert verdicts[3].points != verdicts[3].points
    assert verdicts[4].error.endswith("the reply was cut at max_new_tokens=3")
    (verdict,) = compare(None, ("a", "b"), distribution=lambda q: {"1": 0.004})
    assert verdict.error == "the judge gave the answers '1', '2', '0' a probability of 0.004 in all"
    with pytest.raises(JudgeError, match="no function `distribution`"):  # the judge itself
        PairwiseJudge(ScriptedJudge(longest), reasons=False).compare([JudgePair("a", "b", IMAGE)])


@pytest.mark.parametrize(
    ("made", "arguments", "error", "message"),
    [
        (JudgePair, (3, "b", IMAGE), InvalidSampleError, "caption a must be a string, got int"),
        (JudgePair, ("a", "\ud83d", IMAGE), InvalidSampleError, "caption b is not valid Unicode"),
        (JudgePair, ("a", "b", None), InvalidSampleError, "needs an image, got None"),
        (JudgePair, ("a", "b", IMAGE, 3), InvalidSampleError, "references must be a list"),
        (PairwiseJudge, ("gpt",), TypeError, "must be a Judge .* got str"),
    ],
)
def test_bad_pairs_and_settings(made, arguments, error, message):
    with pytest.raises(error, match=message):
        made(*arguments)


# The prompt: replaceable from a file, and closed to what captions say

PROMPT = PairPrompt.of()


def test_the_whole_user_turn():
    assert PROMPT.text("A dog.", "A cat.\nIt sits.", ["A pet."], reasons=True) == (
        PROMPT.reference.replace("{reference}", "> A pet.")
        + "\n\nCaption 1:\n> A dog.\n\nCaption 2:\n> A cat.\n> It sits.\n\n"
        + PROMPT.ask_reason
    )
    assert PROMPT.text("a", "b", reasons=False).endswith("\n\n" + PROMPT.ask_answer)
    assert "Reference" not in PROMPT.text("a", "b", reasons=False)
