"""Real runs of TRL's trainers with judges as rewards: plain, asynchronous, and in tournaments."""

from __future__ import annotations

import re
import threading

import pytest

from reward import AsyncReward, FleurReward, HarmonicReward, TournamentReward
from reward.judges import Answer, Question, ScriptedJudge
from tests.integrations.short_training import BOTH_TRAINERS, COLOURS, train, with_images
from tests.toys.rating_judges import save_choosing_judge

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("trainer_class", "config"), BOTH_TRAINERS)
def test_asynchronous_judges_overlap(trainer_class, config, tmp_path):
    """Each of the two judges waits for the other, so that the run ends only if both are asked at the same time."""
    together = threading.Barrier(2, timeout=60)
    threads: set[int] = set()

    def wait_once_a_call(seen: set[int], question: Question) -> None:
        threads.add(threading.get_ident())
        if not seen:
            together.wait()
        seen.add(len(seen))

    calls: list[set[int]] = [set(), set()]

    def grade(question: Question) -> Answer:
        wait_once_a_call(calls[0], question)
        digit = str(len(question.text.split("Candidate caption:")[1]) % 9 + 1)
        return Answer(f"0.{digit}", ("0", ".", digit, "</s>"), tuple({t: 0.0} for t in ("0", ".", digit, "</s>")))

    def rate(question: Question) -> dict[str, float]:
        wait_once_a_call(calls[1], question)
        return {"4": 0.5, "5": 0.5}

    rewards = [
        AsyncReward(FleurReward(ScriptedJudge(grade), name="fleur")),
        AsyncReward(HarmonicReward(ScriptedJudge(distribution=rate), name="harmonic")),
    ]
    logs = train(rewards, with_images(COLOURS), tmp_path, trainer_class, config, beta=0.0)
    for entry in logs:
        assert 0 < float(entry["rewards/fleur/mean"]) < 1
        assert float(entry["rewards/fleur/mean"]) == pytest.approx(float(entry["fleur/smoothed"]), abs=1e-5)
        assert 1 < float(entry["rewards/harmonic/mean"]) <= 4.5  # 1 for completions without a visible character
        assert float(entry["fleur/unscored"]) == 0
    assert threading.get_ident() not in threads


def likes_letters(question):
    first, second = map(len, re.search(r"1:\n> (.*?)\n\nCaption 2:\n> (.*?)\n\nWhich", question.text).groups())
    return {"0": 0.8} if first == second else {"1": 0.8} if first > second else {"2": 0.8}


def test_tournaments_of_a_local_judge_and_of_one_with_a_taste(tmp_path):
    """Two images per step, four captions each: the groups of the trainer are the groups of the tournament."""
    folder = save_choosing_judge(tmp_path / "judge")
    reward = TournamentReward(str(folder), max_comparisons=4, name="duel", device="cpu")
    taste = TournamentReward(ScriptedJudge(distribution=likes_letters), max_comparisons=4)
    assert reward.tournament.judge.judge._judge is None
    assert reward.load().tournament.judge.judge._judge is not None
    sizes = {"per_device_train_batch_size": 8, "num_generations": 4}
    logs = train([reward, taste], with_images(COLOURS), tmp_path, **sizes, log_completions=True)
    for entry in logs:
        assert float(entry["rewards/duel/mean"]) == pytest.approx(float(entry["duel/win_rate"]), abs=1e-5)
        assert 0 <= float(entry["rewards/duel/mean"]) <= 1
        assert float(entry["duel/unscored"]) == 0
        assert float(entry["rewards/tournament_scripted/std"]) > 0.05
    asked = reward.tournament.judge.judge.usage.answered
    assert 2 * 4 <= asked <= 2 * 4 * 2 * 2  # comparisons: at most 4 a group, two groups per step, two steps
    assert asked == taste.tournament.judge.judge.usage.answered
