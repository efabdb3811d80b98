"""FleurReward and HarmonicReward: their options reach the metric, and a model is loaded when it is needed."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from reward import FleurReward, HarmonicReward
from reward.errors import CheckpointError, ConfigError, WeightsError
from reward.judges import Answer, Question, ScriptedJudge
from reward.metrics.fleur.prompt import FleurPrompt
from tests.toys.rating_judges import save_rating_judge
from tests.toys.toy_judges import RecordingJudge
from tests.toys.trainer_call import call

RED = Image.new("RGB", (16, 16), "red")


def grade(question: Question) -> Answer:
    """0.85 for captions of red, else 0.15, and 0.05 more where references are shown; the second decimal is unsure."""
    first = "8" if "> A red" in question.text else "1"
    second = "9" if "eference captions" in question.text else "5"
    logs = ({"0": 0.0}, {".": 0.0}, {first: 0.0}, {second: math.log(0.5), "0": math.log(0.5)})
    return Answer(f"0.{first}{second}", ("0", ".", first, second), logs)


def rate(question: Question) -> dict[str, float]:
    return {"5": 1.0} if "> A red" in question.text else {"1": 0.5, "2": 0.5}


FLEUR, HARMONIC = ScriptedJudge(grade), ScriptedJudge(distribution=rate)


@pytest.mark.parametrize(
    ("reward", "rewards"),
    [
        (FleurReward(FLEUR), [0.845, 0.145]),
        (FleurReward(FLEUR, use_references=False), [0.825, 0.125]),
        (FleurReward(FLEUR, {"raw": 1}, use_references=False), [0.85, 0.15]),
        (HarmonicReward(HARMONIC), [5.0, 1.5]),
        (HarmonicReward(HARMONIC, {"fluency": 1}, gamma=0.5, task="referring"), [5.0, 1.5]),
    ],
)
def test_weights_and_options_are_the_users(reward: Any, rewards: list[float]) -> None:
    assert call(reward, ["A red dot.", "A blue dot."], references=[["A dot."]] * 2) == pytest.approx(rewards)


def test_a_prompt_is_read_when_the_reward_is_made(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(yaml.safe_dump({**FleurPrompt.of().to_json(), "candidate": "It: {candidate}"}))
    judge = RecordingJudge(grade)
    reward = FleurReward(judge, prompt=tmp_path / "p.yaml")
    (tmp_path / "p.yaml").unlink()
    call(reward, ["A red dot."])
    assert "It: > A red dot." in judge.asked[0].text


@pytest.mark.slow
def test_a_model_by_name_is_loaded_at_the_first_call_and_not_pickled(tmp_path: Path) -> None:
    reward = FleurReward(save_rating_judge(tmp_path / "judge", "0"), device="cpu")
    given = call(reward, ["A dog.", "A red star on grass."], image=[RED, RED])
    assert all(value is not None and 0 < value < 1 for value in given)
    pickled = pickle.dumps(reward)
    assert len(pickled) < 20_000
    assert call(pickle.loads(pickled), ["A dog.", "A red star on grass."], image=[RED, RED]) == pytest.approx(given)


@pytest.mark.parametrize(
    ("make", "judge", "options", "error", "message"),
    [
        (FleurReward, "absent/model", {"weights": {"taste": 1}}, WeightsError, "taste"),
        (FleurReward, "absent/model", {"prompt": "absent.yaml"}, ConfigError, "cannot be read"),
        (FleurReward, 3, {}, ConfigError, "a judge of reward.judges, got 3"),
        (FleurReward, "embedded", {}, CheckpointError, "ServerJudge"),
        (HarmonicReward, "absent/model", {"gamma": 3}, ValueError, "gamma must be"),
        (HarmonicReward, "absent/model", {"task": "documents"}, ConfigError, "is not given the questions"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_loaded(
    make: Any, judge: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make(judge, **options)
