"""FleurReward, HarmonicReward and AsyncReward: what they reward, what they refuse, pickling, threads."""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image
from trl.trainer import utils as trl_utils

import reward
from reward import AsyncReward, FleurReward, HarmonicReward, MetricReward
from reward.errors import CheckpointError, ConfigError, JudgeError, WeightsError
from reward.judges import Answer, LocalJudge, Question, ScriptedJudge
from reward.metrics.fleur.prompt import FleurPrompt
from tests.toys.rating_judges import save_rating_judge
from tests.toys.toy_judges import RecordingJudge, llava
from tests.toys.trainer_log import TrainerLog

PICTURES = [Image.new("RGB", (16, 16), colour) for colour in ("red", "green")]


def grade(question: Question) -> Answer:
    """0.85 for captions of red, else 0.15, and 0.05 more where references are shown; the second decimal is unsure."""
    first = "8" if "> A red" in question.text else "1"
    second = "9" if "eference captions" in question.text else "5"
    logs = ({"0": 0.0}, {".": 0.0}, {first: 0.0}, {second: math.log(0.5), "0": math.log(0.5)})
    return Answer(f"0.{first}{second}", ("0", ".", first, second), logs)


def rate(question: Question) -> dict[str, float]:
    return {"5": 1.0} if "> A red" in question.text else {"1": 0.5, "2": 0.5}


def test_fleur_rewards_with_the_smoothed_score_and_logs_both() -> None:
    metric = FleurReward(ScriptedJudge(grade), name="judge")
    logged: dict[str, Any] = {}
    log = TrainerLog()
    given = metric(
        prompts=["Describe."] * 3,
        completions=["A red dot.", "A blue dot.", " "],
        image=[PICTURES[0]] * 3,
        log_extra=logged.__setitem__,
        log_metric=log,
    )
    assert given == pytest.approx([0.825, 0.125, 0.0])  # a blank caption gets the lowest
    assert logged["judge/raw"] == pytest.approx([0.85, 0.15, 0.0])
    assert log.means["judge/smoothed"] == pytest.approx(0.95 / 3)
    assert log.means["judge/unscored"] == 0


def test_fleur_weights_references_and_prompt_are_the_users(tmp_path: Path) -> None:
    columns: dict[str, Any] = {"image": PICTURES[:1], "references": [["A dot."]]}
    call = {"prompts": ["Describe."], "completions": ["A red dot."], **columns}
    assert FleurReward(ScriptedJudge(grade))(**call) == pytest.approx([0.845])
    assert FleurReward(ScriptedJudge(grade), use_references=False)(**call) == pytest.approx([0.825])
    assert FleurReward(ScriptedJudge(grade), {"raw": 1}, use_references=False)(**call) == pytest.approx([0.85])
    (tmp_path / "p.yaml").write_text(yaml.safe_dump({**FleurPrompt.of().to_json(), "candidate": "It: {candidate}"}))
    judge = RecordingJudge(grade)
    FleurReward(judge, prompt=tmp_path / "p.yaml")(**call)
    assert "It: > A red dot." in judge.asked[0].text


def test_harmonic_rewards_with_the_overall_score() -> None:
    samples = [reward.CaptionSample(text, PICTURES[0]) for text in ("A red dot.", "A blue dot.")]
    judge = ScriptedJudge(distribution=rate)
    for options in ({}, {"weights": {"fluency": 1}}, {"gamma": 0.5, "task": "referring"}):
        assert HarmonicReward(judge, **options).rewards(samples) == pytest.approx([5.0, 1.5])  # type: ignore[arg-type]
    blank = HarmonicReward(judge)(prompts=["x"], completions=[""], image=PICTURES[:1])
    assert blank == [1.0]


def test_a_model_by_name_is_loaded_at_the_first_call_and_not_pickled(tmp_path: Path) -> None:
    short = {**FleurPrompt.of().to_json(), "rubric": "From 0.0 to 1.0?"}
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(short))
    metric = FleurReward(save_rating_judge(tmp_path / "judge", "0"), device="cpu", prompt=tmp_path / "p.yaml")
    (tmp_path / "p.yaml").unlink()
    call = {"prompts": ["x"] * 2, "completions": ["A dog.", "A red star on grass."], "image": PICTURES}
    given = metric(**call)
    assert all(value is not None and 0 < value < 1 for value in given)
    pickled = pickle.dumps(metric)
    assert len(pickled) < 20_000
    assert pickle.loads(pickled)(**call) == pytest.approx(given, abs=1e-6)
    assert metric._shared.scorer.prompt.rubric == "From 0.0 to 1.0?"  # type: ignore[union-attr]
    at_hand = pickle.loads(pickle.dumps(FleurReward(ScriptedJudge(grade))))  # a judge that was given goes along
    assert at_hand(["x"], ["A red dot."], image=PICTURES[:1]) == pytest.approx([0.825])


def test_what_cannot_be_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    for make, error, message in (
        (lambda: FleurReward("absent/model", {"taste": 1}), WeightsError, "taste"),
        (lambda: FleurReward("absent/model", prompt=tmp_path / "absent.yaml"), ConfigError, "cannot be read"),
        (lambda: HarmonicReward("absent/model", gamma=3), ValueError, "gamma must be"),
        (lambda: HarmonicReward("absent/model", task="poetry"), ConfigError, "task 'poetry' is unknown"),
        (lambda: HarmonicReward("absent/model", task="documents"), ConfigError, "is not given the questions"),
        (lambda: FleurReward(3), ConfigError, "a judge of reward.judges, got 3"),  # type: ignore[arg-type]
        (lambda: FleurReward(LocalJudge(*llava([("8", "5")]))), JudgeError, "one token"),
        (lambda: FleurReward("embedded").rewards([reward.CaptionSample("a")]), CheckpointError, "ServerJudge"),
    ):
        with pytest.raises(error, match=message):
            make()


# TRL has asked the second since 1.14, and the first before.
@pytest.mark.parametrize("name", ["iscoroutinefunction", "is_async_callable"])
def test_trl_takes_it_for_asynchronous_by_its_own_name(name: str) -> None:
    is_async = getattr(inspect, name, None) or getattr(trl_utils, name, None)
    if is_async is None:
        pytest.skip(f"this TRL has no {name}")
    plain = MetricReward("length", name="words")
    assert is_async(AsyncReward(plain))
    assert is_async(functools.partial(AsyncReward(plain)))
    assert not is_async(plain)
    assert AsyncReward(plain).__name__ == "words"
    copy = pickle.loads(pickle.dumps(AsyncReward(plain)))
    assert asyncio.run(copy(prompts=["x"], completions=["a b"])) == [2.0]


def test_asynchronous_rewards_wait_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=20)  # breaks unless two calls are inside at once
    judge = ScriptedJudge(lambda question: grade(question) if both.wait() >= 0 else "")

    async def run() -> list[Any]:
        call = {"prompts": ["x"], "completions": ["A red dot."], "image": PICTURES[:1]}
        return await asyncio.gather(*(AsyncReward(FleurReward(judge))(**call) for _ in range(2)))

    assert asyncio.run(run()) == [pytest.approx([0.825])] * 2


def test_an_asynchronous_reward_does_not_hide_errors() -> None:
    def fail(**arguments: Any) -> list[float]:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        asyncio.run(AsyncReward(fail)(prompts=["x"], completions=["y"]))
    for wrong in (AsyncReward(fail), None):
        with pytest.raises(TypeError, match="needs a plain reward function"):
            AsyncReward(wrong)  # type: ignore[arg-type]
