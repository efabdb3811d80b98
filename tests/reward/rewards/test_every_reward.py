"""What every reward promises a trainer: numbers, None and the lowest; names, logs, copies, and a loud first call."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import pickle
import threading
from typing import Any

import pytest
from PIL import Image
from trl.trainer import utils as trl_utils

from reward import (
    AsyncReward,
    CombinedReward,
    FleurReward,
    HarmonicReward,
    LengthReward,
    MetricReward,
    RepetitionReward,
    TournamentReward,
)
from reward.errors import InvalidSampleError
from reward.judges import Answer, Question, ScriptedJudge
from tests.toys.toy_scorer import ToyScorer
from tests.toys.trainer_log import TrainerLog

RED = Image.new("RGB", (4, 4), "red")


def top_mark(question: Question) -> dict[str, float]:
    return {"5": 1.0}


def written(question: Question) -> Answer:
    return Answer("0.85", ("0", ".", "8", "5"), ({"0": 0.0}, {".": 0.0}, {"8": 0.0}, {"5": 0.0}))


# each with its reward of "red star", and of a caption without a word
SEEING = {
    "metric": (lambda: MetricReward(ToyScorer()), 0.5, 0.0),
    "aspect": (lambda: MetricReward(ToyScorer()).aspect("brev"), 0.5, 0.0),
    "asynchronous": (lambda: AsyncReward(MetricReward(ToyScorer())), 0.5, 0.0),
    "combined": (lambda: CombinedReward([MetricReward("length"), MetricReward(ToyScorer())]), 1.25, 0.0),
    "fleur": (lambda: FleurReward(ScriptedJudge(written)), 0.85, 0.0),
    "harmonic": (lambda: HarmonicReward(ScriptedJudge(distribution=top_mark)), 5.0, 1.0),
    "tournament": (lambda: TournamentReward(ScriptedJudge(distribution=top_mark)), 0.5, 0.0),
}
BLIND = {
    "length band": (lambda: LengthReward(1, 2), 1.0, 0.0),
    "repetition": (lambda: RepetitionReward(), 1.0, 0.0),
}


def call(reward: Any, completions: list[Any], **columns: Any) -> list[float | None]:
    columns.setdefault("image", [RED] * len(completions))
    given = reward(prompts=["Describe."] * len(completions), completions=completions, **columns)
    return asyncio.run(given) if inspect.iscoroutine(given) else given


@pytest.mark.parametrize(("make", "best", "lowest"), [*SEEING.values(), *BLIND.values()], ids=[*SEEING, *BLIND])
def test_missing_data_give_none_and_captions_without_a_word_the_lowest(make: Any, best: float, lowest: float) -> None:
    given = call(make(), ["red star", " ", "...", None])
    assert given == [pytest.approx(best), lowest, lowest, None]
    assert all(type(value) is float for value in given[:3])
    assert call(make(), []) == []


@pytest.mark.parametrize("completions", [["", "."], ["", "red"], ["fail", "it will fail"], ["half \ud83d"] * 2])
def test_what_the_policy_wrote_never_stops_a_training(completions: list[str]) -> None:
    assert len(call(MetricReward(ToyScorer()), completions)) == 2
    assert len(call(CombinedReward([MetricReward(ToyScorer())]), completions)) == 2


@pytest.mark.parametrize("make", [make for make, *_ in SEEING.values()], ids=SEEING)
def test_a_first_call_without_any_image_raises_and_later_ones_give_none(make: Any) -> None:
    reward = make()
    call(reward, [])  # no row, no first call
    with pytest.raises(InvalidSampleError, match=r"none of the 2 rows of the first call.*column 'image' holds None"):
        call(reward, ["red", "star"], image=[None, None])
    call(reward, ["red star", "red"], image=[RED, None])
    assert call(reward, ["red", "star"], image=[None, None]) == [None, None]


@pytest.mark.parametrize("make", [make for make, *_ in SEEING.values()], ids=SEEING)
def test_copies_for_other_processes_are_alike_and_begin_anew(make: Any) -> None:
    reward = make()
    expected = call(reward, ["red star", "red"])
    for other in (pickle.loads(pickle.dumps(reward)), copy.deepcopy(reward)):
        assert other.__name__ == reward.__name__
        with pytest.raises(InvalidSampleError, match="first call"):
            call(other, ["red"], image=[None])
        assert call(other, ["red star", "red"]) == expected


@pytest.mark.parametrize("make", [make for make, *_ in SEEING.values()], ids=SEEING)
def test_a_mean_over_processes_weighs_each_row_alike(make: Any) -> None:
    log = TrainerLog()
    for completions in (["red", None, None], ["a star"] * 4, []):  # each process makes its own reward
        call(make(), completions, log_metric=log)
    shares = [mean for name, mean in log.means.items() if name.endswith("/unscored")]
    assert shares == [pytest.approx(2 / 7)] * len(shares)
    assert shares


# TRL before 1.14 asks `inspect`
is_async = getattr(trl_utils, "is_async_callable", inspect.iscoroutinefunction)


def test_trl_takes_an_asynchronous_reward_for_one_by_its_own_name() -> None:
    plain = MetricReward("length", name="words")
    assert is_async(AsyncReward(plain))
    assert is_async(functools.partial(AsyncReward(plain)))
    assert not is_async(plain)
    assert AsyncReward(plain).__name__ == "words"


def test_asynchronous_rewards_wait_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=20)  # breaks unless two calls are inside at once

    def wait(completions: list[str], **columns: Any) -> list[float]:
        return [float(both.wait() >= 0)]

    async def run() -> list[Any]:
        return await asyncio.gather(*(AsyncReward(wait)(["x"], ["y"]) for _ in range(2)))

    assert asyncio.run(run()) == [[1.0], [1.0]]
    for wrong in (AsyncReward(wait), None):
        with pytest.raises(TypeError, match="needs a plain reward function"):
            AsyncReward(wrong)  # type: ignore[arg-type]
