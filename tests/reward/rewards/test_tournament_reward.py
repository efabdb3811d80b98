"""TournamentReward: groups by content, bounded and repeatable tournaments, the contract of a trainer's reward."""

from __future__ import annotations

import asyncio
import pickle
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from reward.errors import InvalidSampleError, JudgeError
from reward.judges import ScriptedJudge
from reward.judges.pairwise import PairwiseJudge
from reward.rewards.async_reward import AsyncReward
from reward.rewards.tournament_reward import TournamentReward
from tests.toys.toy_judges import RecordingJudge
from tests.toys.toy_judges import shown_captions as shown
from tests.toys.trainer_log import TrainerLog

RED, BLUE = Image.new("RGB", (4, 4), "red"), Image.new("RGB", (4, 4), "blue")


def longer_wins(question):
    """A judge by length, as probabilities, with a liking for the first place."""
    first, second = (len(caption) for caption in shown(question))
    if first == second:
        return {"1": 0.3, "2": 0.1, "0": 0.6}
    return {"1": 0.8, "2": 0.1, "0": 0.1} if first > second else {"1": 0.2, "2": 0.7, "0": 0.1}


def make(**options):
    return TournamentReward(ScriptedJudge(distribution=longer_wins), **options)


def call(reward, completions, images=None, **columns):
    images = [RED] * len(completions) if images is None else images
    return reward(prompts=["Describe."] * len(completions), completions=completions, image=images, **columns)


# points of the longer caption against the shorter: (0.8 + 0.7) / 2 + 0.1 / 2 = 0.8; of equal lengths 0.5
@pytest.mark.parametrize(
    ("captions", "rewards", "answered"),
    [
        (["aaa", "bb", "c"], [0.8, (0.2 + 0.8) / 2, 0.2], 6),
        (["aa", "bb"], [0.5, 0.5], 2),
        (["long", "s", "long", "s"], [0.8, 0.2, 0.8, 0.2], 2),  # equal captions are not compared
        (["same", "same"], [0.5, 0.5], 0),
        (["alone"], [0.5], 0),
        ([], [], 0),
    ],
)
def test_a_round_robin_by_hand(captions, rewards, answered):
    judge = ScriptedJudge(distribution=longer_wins)
    assert call(TournamentReward(judge), captions) == pytest.approx(rewards)
    assert judge.usage.answered == answered


def test_groups_are_found_by_content_wherever_they_are():
    copies = [RED.copy(), BLUE.copy(), RED.copy(), BLUE.copy()]
    judge = RecordingJudge(distribution=longer_wins)
    rewards = call(TournamentReward(judge), ["long", "lo", "s", "longest"], copies)
    assert rewards == pytest.approx([0.8, 0.2, 0.2, 0.8])
    assert {(question.image.getpixel((0, 0)), frozenset(shown(question))) for question in judge.asked} == {
        ((255, 0, 0), frozenset({"long", "s"})),
        ((0, 0, 255), frozenset({"lo", "longest"})),
    }


def test_references_tell_groups_apart_and_are_shown():
    judge = RecordingJudge(distribution=longer_wins)
    call(TournamentReward(judge), ["a", "bb", "c", "dd"], references=[["r"], ["r"], ["s"], ["s"]])
    assert Counter(reference for q in judge.asked for reference in "rs" if f"> {reference}\n" in q.text) == {
        "r": 2,
        "s": 2,
    }


@settings(deadline=None, max_examples=40)
@given(st.lists(st.text("abc", min_size=1, max_size=6), min_size=2, max_size=9), st.integers(1, 12), st.randoms())
def test_rewards_do_not_depend_on_the_order_and_keep_to_the_budget(captions, limit, random):
    judge = ScriptedJudge(distribution=longer_wins)
    rewards = call(TournamentReward(judge, max_comparisons=limit, seed=3), captions)
    different = len(set(captions))
    assert judge.usage.answered == 2 * min(limit, different * (different - 1) // 2)
    order = list(range(len(captions)))
    random.shuffle(order)
    shuffled = call(make(max_comparisons=limit, seed=3), [captions[i] for i in order])
    assert shuffled == [rewards[i] for i in order]
    for reward in rewards:
        assert reward is None or 0 <= reward <= 1


def test_what_gets_none_and_what_gets_the_lowest():
    reward, captions = make(name="duel"), ["long", "s", "", " \u200b", "a", "b", None]
    rewards = call(reward, captions, [RED, RED, RED, RED, None, b"no image", RED])
    assert rewards == pytest.approx([0.8, 0.2, 0.0, 0.0, None, None, None])
    assert reward.failures == {"empty caption": 2, "no image": 1, "not scored by the metric": 1, "no caption": 1}
    with pytest.raises(InvalidSampleError, match=r"row 1 cannot be scored \(no image\)"):
        call(make(on_error="raise"), ["a", "b"], [RED, None])


def test_comparisons_without_an_answer_are_left_out():
    def distribution(question):
        if "odd" in shown(question):
            raise JudgeError("timed out")
        return longer_wins(question)

    rewards = call(TournamentReward(ScriptedJudge(distribution=distribution)), ["long", "s", "odd"])
    assert rewards == pytest.approx([0.8, 0.2, None])
    with pytest.raises(JudgeError, match="no function"):  # a judge that fails as a whole
        call(TournamentReward(ScriptedJudge()), ["a", "b"])


def test_a_pairwise_judge_keeps_its_own_ways():
    judge = RecordingJudge("Reason: so.\nVerdict: 1")
    reward = TournamentReward(PairwiseJudge(judge, both_orders=False))
    assert sorted(call(reward, ["a", "b"])) == [0.0, 1.0]
    (question,) = judge.asked
    assert "Verdict: 1 or 2 or tie" in question.text


def test_logs():
    log, columns = TrainerLog(), {}
    call(make(name="duel"), ["aa", "b", "aa", ""], log_metric=log, log_extra=columns.__setitem__)
    assert columns == {"duel/win_rate": pytest.approx([0.8, 0.2, 0.8, 0.0])}
    assert (log.means["duel/win_rate"], log.means["duel/unscored"]) == (pytest.approx(0.45), 0)


def test_it_pickles_with_its_judge_can_be_awaited_and_says_what_it_asks():
    reward = make(max_comparisons=2, seed=7)
    captions = ["a", "bb", "ccc", "dddd"]
    copy = pickle.loads(pickle.dumps(reward))
    assert copy.__name__ == reward.__name__ == "tournament_scripted"
    assert call(copy, captions) == call(reward, captions)
    awaited = AsyncReward(make(name="duel"))
    assert awaited.__name__ == "duel"
    assert asyncio.run(call(awaited, ["aa", "b"])) == pytest.approx([0.8, 0.2])
    assert "source='scripted', weights={'win_rate': 1.0}" in repr(reward)
    assert "source='name/model'" in repr(TournamentReward("name/model"))  # nothing is loaded yet


def test_bad_settings():
    with pytest.raises(ValueError, match="max_comparisons must be at least 1, got 0"):
        make(max_comparisons=0)
    with pytest.raises(TypeError, match="must be a Judge"):
        TournamentReward(3)
