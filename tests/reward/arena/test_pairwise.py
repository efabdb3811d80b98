"""PairwiseJudge: what it asks, both orders, blank captions, and answers that cannot be used."""

from __future__ import annotations

import re

import pytest
from PIL import Image

from reward.arena.pairwise import JudgePair, PairPrompt, PairwiseJudge
from reward.arena.verdicts import measure_position_bias
from reward.errors import InvalidSampleError, JudgeError
from reward.judges import Answer, ScriptedJudge

IMAGE = Image.new("RGB", (4, 4))


def shown(question):
    """The two captions of a question, unquoted."""
    first, second = re.search(r"Caption 1:\n(.*?)\n\nCaption 2:\n(.*?)\n\nWhich", question.text, re.DOTALL).groups()
    return [re.sub("^> ", "", text, flags=re.MULTILINE) for text in (first, second)]


def longest(question):
    """Prefers the longer caption, and says so."""
    first, second = map(len, shown(question))
    verdict = "tie" if first == second else 1 if first > second else 2
    return f"Reason: {first} against {second} letters.\nVerdict: {verdict}"


def pair(a, b, **options):
    return JudgePair(a, b, IMAGE, **options)


def test_verdicts_in_words():
    judge = PairwiseJudge(ScriptedJudge(longest))
    verdicts = judge.compare([pair("long one", "short"), pair("short", "long one"), pair("abc", "xyz")])
    assert [verdict.winner for verdict in verdicts] == ["A", "B", "tie"]
    assert verdicts[0].reason == ("8 against 5 letters.\nWith the captions exchanged: 5 against 8 letters.")
    assert judge.judge.usage.answered == 6


def test_both_orders_are_asked_with_image_and_system():
    asked = []
    judge = PairwiseJudge(ScriptedJudge(lambda q: asked.append(q) or "Verdict: tie"))
    judge.compare([pair("a", "b", references=["r1", "r2"])])
    assert [shown(question) for question in asked] == [["a", "b"], ["b", "a"]]
    for question in asked:
        assert question.image is IMAGE
        assert question.system == PairPrompt.default().system
        assert "> r1\n\n> r2\n\nCaption 1:" in question.text


def test_one_order_asks_once():
    asked = []
    judge = PairwiseJudge(ScriptedJudge(lambda q: asked.append(shown(q)) or "Verdict: 1"), both_orders=False)
    assert judge.compare([pair("a", "b")])[0].winner == "A"
    assert asked == [["a", "b"]]


def test_probabilities_instead_of_words():
    def distribution(question):
        first, second = shown(question)
        like = {"good": 0.6, "bad": 0.1}
        return {"1": like[first] + 0.1, "2": like[second], "0": 0.1}  # 0.1 for the first place

    verdict = PairwiseJudge(ScriptedJudge(distribution=distribution), reasons=False).compare([pair("good", "bad")])[0]
    # good first: 0.7, 0.1, 0.1; bad first: 0.2, 0.6, 0.1; each over 0.9
    assert verdict.probabilities == pytest.approx((1.3 / 1.8, 0.3 / 1.8, 0.2 / 1.8))
    assert verdict.winner == "A"
    assert verdict.reason == ""


def test_a_judge_of_places_is_found_out():
    judge = PairwiseJudge(ScriptedJudge(distribution=lambda q: {"1": 0.9, "2": 0.1}), reasons=False)
    verdicts = judge.compare([pair("a", "b"), pair("c", "d")])
    assert [verdict.winner for verdict in verdicts] == ["tie", "tie"]
    bias = measure_position_bias(verdict.choices for verdict in verdicts)
    assert (bias.first_share, bias.inconsistency, bias.reversed) == (1.0, 1.0, 2)


def test_blank_captions_are_not_asked_about():
    judge = PairwiseJudge(ScriptedJudge())  # has no answers
    verdicts = judge.compare([pair("a", " "), pair("\u200b", "b"), pair("", "\n")])
    assert [verdict.winner for verdict in verdicts] == ["A", "B", "tie"]
    assert [verdict.points for verdict in verdicts] == [1.0, 0.0, 0.5]
    assert judge.compare([]) == []


def test_an_unreadable_reply_fails_alone():
    def answer(question):
        return "I would rather not." if "odd" in question.text else "Verdict: 1"

    verdicts = PairwiseJudge(ScriptedJudge(answer), both_orders=False).compare([pair("a", "b"), pair("odd", "b")])
    assert [verdict.winner for verdict in verdicts] == ["A", None]
    assert "no line 'Verdict: 1'" in verdicts[1].error
    assert not verdicts[1].unanswered


def test_half_an_answer_is_none():
    judge = PairwiseJudge(ScriptedJudge(lambda q: "Verdict: 1" if shown(q)[0] == "a" else "What?"))
    verdict = judge.compare([pair("a", "b")])[0]
    assert (verdict.winner, verdict.choices) == (None, ())
    assert verdict.points != verdict.points


def test_a_question_without_answer_may_be_asked_again():
    def answer(question):
        if "slow" in question.text:
            raise JudgeError("timed out")
        return "Verdict: 2"

    verdicts = PairwiseJudge(ScriptedJudge(answer)).compare([pair("slow", "b"), pair("a", "b")])
    assert verdicts[0].unanswered
    assert verdicts[0].error == "timed out"
    assert verdicts[1].winner == "tie"


def test_the_judge_itself_failing_is_raised():
    with pytest.raises(JudgeError, match="no function `distribution`"):
        PairwiseJudge(ScriptedJudge(longest), reasons=False).compare([pair("a", "b")])


def test_a_cut_reply_says_so():
    judge = PairwiseJudge(ScriptedJudge(lambda q: Answer("Reason: well", truncated=True)), max_new_tokens=3)
    assert judge.compare([pair("a", "b")])[0].error.endswith("the reply was cut at max_new_tokens=3")


def test_crumbs_of_probability_are_no_answer():
    judge = PairwiseJudge(ScriptedJudge(distribution=lambda q: {"1": 0.004}), reasons=False)
    verdict = judge.compare([pair("a", "b")])[0]
    assert verdict.winner is None
    assert verdict.error == "the judge gave the answers '1', '2', '0' a probability of 0.004 in all"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, "b", IMAGE), "caption a must be a string, got int"),
        (("a", "\ud83d", IMAGE), "caption b is not valid Unicode"),
        (("a", "b", None), "needs an image, got None"),
        (("a", "b", IMAGE, "r"), "references must be a list"),
    ],
)
def test_bad_pairs(arguments, message):
    with pytest.raises(InvalidSampleError, match=message):
        JudgePair(*arguments)


def test_bad_settings():
    with pytest.raises(TypeError, match=r"must be a Judge .* got str"):
        PairwiseJudge("gpt")
    with pytest.raises(ValueError, match="max_new_tokens must be at least 1, got 0"):
        PairwiseJudge(ScriptedJudge(), max_new_tokens=0)
