"""Verdicts about two captions: reading replies, both orders, position bias; what a pairwise judge asks."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from reward.errors import InvalidSampleError, JudgeError
from reward.judges import Answer, ScriptedJudge
from reward.judges.pairwise import JudgePair, Opinion, PairPrompt, PairwiseJudge, combine, parse_reply
from tests.toys.toy_judges import RecordingJudge, shown_captions

OTHER = {"A": "B", "B": "A", "tie": "tie"}
IMAGE = Image.new("RGB", (4, 4))
_parts = st.lists(st.integers(0, 100), min_size=3, max_size=3).filter(any)
opinions = _parts.map(lambda parts: Opinion(*(part / sum(parts) for part in parts)))


@settings(deadline=None, max_examples=60)
@given(opinions, opinions)
def test_a_caption_wins_by_the_mean_of_both_orders_whichever_is_called_a(one, two):
    verdict, exchanged = combine(one, two), combine(two, one)
    a, b, tie = ((one.first + two.second) / 2, (one.second + two.first) / 2, (one.tie + two.tie) / 2)
    assert verdict.winner == ("A" if a > max(b, tie) else "B" if b > max(a, tie) else "tie")
    assert verdict.points == pytest.approx(a + tie / 2)
    assert (exchanged.winner, exchanged.points) == (OTHER[verdict.winner], pytest.approx(1 - verdict.points))
    assert [OTHER[choice] for choice in reversed(verdict.choices)] == list(exchanged.choices)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("Reason: two\nlines.\n\nVerdict: 1.", "two\nlines."),
        ("**Reason:** it fits.\n**Verdict:** 1", "it fits."),
        ("Reason: it says 'Verdict: 2' in its text.\nVerdict: 1", "it says 'Verdict: 2' in its text."),
        ("<think>Verdict: 2?</think>Reason: x\nVerdict: 1", "x"),
    ],
)
def test_the_reason_of_a_reply_whose_verdict_is_read_as_in_the_table(reply, reason):
    assert parse_reply(reply) == Opinion(1, 0, 0, reason)


def compare(answer, *pairs, distribution=None, **options):
    """The verdicts of a scripted judge on pairs of captions; without an answer in words it gives probabilities."""
    judge = PairwiseJudge(ScriptedJudge(answer, distribution), reasons=distribution is None, **options)
    return judge.compare([JudgePair(*pair, IMAGE) for pair in pairs])


@pytest.mark.parametrize("both_orders", [True, False])
def test_each_order_is_asked_with_image_references_and_system(both_orders):
    judge = RecordingJudge(lambda asked: f"Reason: {shown_captions(asked)[0]}.\nVerdict: 1")
    pair = JudgePair("a", "b", IMAGE, references=["r1", "r2"])
    (verdict,) = PairwiseJudge(judge, both_orders=both_orders).compare([pair])
    assert verdict.winner == ("tie" if both_orders else "A")
    assert verdict.reason == "a." + "\nWith the captions exchanged: b." * both_orders
    assert [shown_captions(question) for question in judge.asked] == [["a", "b"], ["b", "a"]][: 1 + both_orders]
    for question in judge.asked:
        assert (question.image, question.system) == (IMAGE, PairPrompt.of().system)
        assert "> r1\n\n> r2\n\nCaption 1:" in question.text
        assert question.text.endswith(PairPrompt.of().ask_reason)


def test_probabilities_instead_of_words():
    def distribution(question):
        first, second = shown_captions(question)
        like = {"good": 0.6, "bad": 0.1}
        return {"1": like[first] + 0.1, "2": like[second], "0": 0.1}  # 0.1 for the first place

    (verdict,) = compare(None, ("good", "bad"), distribution=distribution)
    # good first: 0.7, 0.1, 0.1; bad first: 0.2, 0.6, 0.1; each over 0.9
    assert verdict.probabilities == pytest.approx((1.3 / 1.8, 0.3 / 1.8, 0.2 / 1.8))
    assert (verdict.winner, verdict.points) == ("A", pytest.approx((1.3 + 0.2 / 2) / 1.8))


def test_blank_captions_are_not_asked_about():
    verdicts = compare(None, ("a", " "), ("\u200b", "b"), ("", "\n"))  # the judge has no answers
    assert [(verdict.winner, verdict.points) for verdict in verdicts] == [("A", 1.0), ("B", 0.0), ("tie", 0.5)]


def test_what_fails_fails_alone():
    def answer(question):
        captions = shown_captions(question)
        if "slow" in captions:
            raise JudgeError("timed out")
        cut = Answer("Reason: well", truncated=True)
        return {"odd": "I would rather not.", "cut": cut}.get(captions[0], "Verdict: 1")

    verdicts = compare(answer, ("a", "b"), ("slow", "b"), ("a", "odd"), ("cut", "b"), max_new_tokens=3)
    assert [verdict.winner for verdict in verdicts] == ["tie", None, None, None]
    assert [verdict.unanswered for verdict in verdicts] == [False, True, False, False]
    errors = [str(verdict.error) for verdict in verdicts]
    assert errors[1] == "timed out"
    assert "no line 'Verdict: 1'" in errors[2]
    assert errors[3].endswith("the reply was cut at max_new_tokens=3")
    assert (verdicts[2].choices, math.isnan(verdicts[2].points)) == ((), True)  # one order alone is no verdict
    (verdict,) = compare(None, ("a", "b"), distribution=lambda question: {"1": 0.004})
    assert verdict.error == "the judge gave the answers '1', '2', '0' a probability of 0.004 in all"
    with pytest.raises(JudgeError, match="no function `answer`"):  # the judge itself
        compare(None, ("a", "b"))
    with pytest.raises(TypeError, match=r"must be a Judge .* got str"):
        PairwiseJudge("gpt")
    with pytest.raises(InvalidSampleError, match="needs an image, got None"):
        JudgePair("a", "b", None)
