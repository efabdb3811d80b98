"""TournamentReward: groups by content, even and repeatable draws, rewards by hand."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from reward.errors import JudgeError
from reward.judges import ScriptedJudge
from reward.judges.pairwise import PairwiseJudge
from reward.rewards.tournament_reward import TournamentReward, draw_pairs
from tests.toys.toy_judges import RecordingJudge
from tests.toys.toy_judges import shown_captions as shown
from tests.toys.trainer import RED, TrainerLog, call

BLUE = Image.new("RGB", (4, 4), "blue")


def longer_wins(question):
    """A judge by length, as probabilities, with a liking for the first place."""
    first, second = (len(caption) for caption in shown(question))
    if "odd" in shown(question):
        raise JudgeError("timed out")
    if first == second:
        return {"1": 0.3, "2": 0.1, "0": 0.6}
    return {"1": 0.8, "2": 0.1, "0": 0.1} if first > second else {"1": 0.2, "2": 0.7, "0": 0.1}


# points of the longer caption against the shorter: (0.8 + 0.7) / 2 + 0.1 / 2 = 0.8; of equal lengths 0.5
@pytest.mark.parametrize(
    ("captions", "rewards", "answered"),
    [
        (["aaa", "bb", "c"], [0.8, (0.2 + 0.8) / 2, 0.2], 6),
        (["aa", "bb"], [0.5, 0.5], 2),
        (["long", "s", "long", "s"], [0.8, 0.2, 0.8, 0.2], 2),  # equal captions are not compared
        (["same", "same"], [0.5, 0.5], 0),
        (["long", "s", "odd"], [0.8, 0.2, None], 2),  # comparisons without an answer are left out
    ],
)
def test_a_round_robin_by_hand(captions, rewards, answered):
    judge = ScriptedJudge(distribution=longer_wins)
    assert call(TournamentReward(judge), captions) == pytest.approx(rewards)
    assert judge.usage.answered == answered


def test_groups_have_one_image_by_content_and_the_same_references_which_are_shown():
    copies = [RED.copy(), BLUE.copy(), RED.copy(), BLUE.copy(), RED.copy(), RED.copy()]
    judge = RecordingJudge(distribution=longer_wins)
    captions, references = ["long", "lo", "s", "longest", "a", "bb"], [[]] * 4 + [["It is red."]] * 2
    rewards = call(TournamentReward(judge), captions, image=copies, references=references)
    assert rewards == pytest.approx([0.8, 0.2, 0.2, 0.8, 0.2, 0.8])
    told = {(q.image.getpixel((0, 0))[0], frozenset(shown(q)), "> It is red.\n" in q.text) for q in judge.asked}
    pairs = [(255, {"long", "s"}, False), (0, {"lo", "longest"}, False), (255, {"a", "bb"}, True)]
    assert told == {(red, frozenset(captions), has) for red, captions, has in pairs}


@settings(deadline=None, max_examples=25)
@given(st.lists(st.text("abc", min_size=1, max_size=6), min_size=2, max_size=9), st.integers(1, 12), st.randoms())
def test_rewards_do_not_depend_on_the_order_and_keep_to_the_budget(captions, limit, random):
    judge = ScriptedJudge(distribution=longer_wins)
    reward = TournamentReward(judge, max_comparisons=limit, seed=3)
    rewards = call(reward, captions)
    different = len(set(captions))
    assert judge.usage.answered == 2 * min(limit, different * (different - 1) // 2)
    order = random.sample(range(len(captions)), len(captions))
    assert call(reward, [captions[i] for i in order]) == [rewards[i] for i in order]
    assert all(value is None or 0 <= value <= 1 for value in rewards)


def test_another_seed_draws_other_pairs():
    drawn = set()
    for seed in range(5):
        judge = RecordingJudge(distribution=longer_wins)
        call(TournamentReward(judge, max_comparisons=1, seed=seed), list("abcdef"))
        drawn.add(frozenset(shown(judge.asked[0])))
    assert len(drawn) > 1


def test_what_gets_none_and_what_gets_the_lowest_is_counted_and_logged():
    reward, log, columns = TournamentReward(ScriptedJudge(distribution=longer_wins), name="duel"), TrainerLog(), {}
    captions, images = ["long", "s", "", " \u200b", "a", "b", None], [RED, RED, RED, RED, None, b"no image", RED]
    rewards = call(reward, captions, image=images, log_metric=log, log_extra=columns.__setitem__)
    assert rewards == pytest.approx([0.8, 0.2, 0.0, 0.0, None, None, None])
    assert columns["duel/win_rate"] == pytest.approx([0.8, 0.2, 0.0, 0.0, *[float("nan")] * 3], nan_ok=True)
    assert (log.means["duel/win_rate"], log.means["duel/unscored"]) == (pytest.approx(0.25), 3 / 7)
    assert reward.failures == {"empty caption": 2, "no image": 1, "not scored by the metric": 1, "no caption": 1}


def test_a_pairwise_judge_keeps_its_own_ways_and_one_that_fails_as_a_whole_raises():
    judge = RecordingJudge("Reason: so.\nVerdict: 1")
    reward = TournamentReward(PairwiseJudge(judge, both_orders=False))
    assert sorted(call(reward, ["a", "b"])) == [0.0, 1.0]
    (question,) = judge.asked
    assert "Verdict: 1 or 2 or tie" in question.text
    with pytest.raises(JudgeError, match="no function"):
        call(TournamentReward(ScriptedJudge()), ["a", "b"])


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 24), st.integers(1, 300), st.integers(0, 5))
def test_draws_are_bounded_even_linked_and_repeatable(players, limit, seed):
    pairs = draw_pairs(players, limit, seed)
    everybody = players * (players - 1) // 2
    assert len({frozenset(pair) for pair in pairs}) == len(pairs) == min(limit, everybody)
    assert all(0 <= i < players and 0 <= j < players and i != j for i, j in pairs)
    games = Counter(player for pair in pairs for player in pair)
    counts = [games[player] for player in range(players)]
    assert max(counts, default=0) - min(counts, default=0) <= 2
    if players > 1 and limit >= (players + 1) // 2:
        assert min(counts) >= 1
    if players > 1 and limit >= players - 1:
        met = {pairs[0][0]}
        for _ in range(players):
            met |= {player for pair in pairs if met & set(pair) for player in pair}
        assert len(met) == players
    assert draw_pairs(players, limit, seed) == pairs
    assert min(players, limit) < 9 or draw_pairs(players, limit, "other") != pairs
    if players % 2 and limit >= everybody:  # nobody is shown first more often than others
        assert set(Counter(first for first, _ in pairs).values()) <= {players // 2}
