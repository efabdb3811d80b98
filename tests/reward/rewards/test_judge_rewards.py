"""FleurReward and HarmonicReward: what they reward and log, and what they refuse before a model is loaded."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from reward import CaptionSample, FleurReward, HarmonicReward
from reward.errors import CheckpointError, ConfigError, JudgeError, WeightsError
from reward.judges import Answer, LocalJudge, Question, ScriptedJudge
from reward.metrics.fleur.prompt import FleurPrompt
from tests.toys.rating_judges import save_rating_judge
from tests.toys.toy_judges import RecordingJudge, llava
from tests.toys.trainer_log import TrainerLog

RED = Image.new("RGB", (16, 16), "red")


def grade(question: Question) -> Answer:
    """0.85 for captions of red, else 0.15, and 0.05 more where references are shown; the second decimal is unsure."""
    first = "8" if "> A red" in question.text else "1"
    second = "9" if "eference captions" in question.text else "5"
    logs = ({"0": 0.0}, {".": 0.0}, {first: 0.0}, {second: math.log(0.5), "0": math.log(0.5)})
    return Answer(f"0.{first}{second}", ("0", ".", first, second), logs)


def rate(question: Question) -> dict[str, float]:
    return {"5": 1.0} if "> A red" in question.text else {"1": 0.5, "2": 0.5}


def test_fleur_rewards_with_the_smoothed_score_and_logs_both() -> None:
    columns: dict[str, Any] = {}
    log = TrainerLog()
    completions = ["A red dot.", "A blue dot.", " "]
    given = FleurReward(ScriptedJudge(grade), name="judge")(
        ["Describe."] * 3, completions, image=[RED] * 3, log_extra=columns.__setitem__, log_metric=log
    )
    assert given == pytest.approx([0.825, 0.125, 0.0])
    assert columns["judge/raw"] == pytest.approx([0.85, 0.15, 0.0])
    assert log.means["judge/smoothed"] == pytest.approx(0.95 / 3)


def test_fleur_weights_references_and_prompt_are_the_users(tmp_path: Path) -> None:
    call: dict[str, Any] = {"image": [RED], "references": [["A dot."]]}
    call |= {"prompts": ["Describe."], "completions": ["A red dot."]}
    assert FleurReward(ScriptedJudge(grade))(**call) == pytest.approx([0.845])
    assert FleurReward(ScriptedJudge(grade), use_references=False)(**call) == pytest.approx([0.825])
    assert FleurReward(ScriptedJudge(grade), {"raw": 1}, use_references=False)(**call) == pytest.approx([0.85])
    (tmp_path / "p.yaml").write_text(yaml.safe_dump({**FleurPrompt.of().to_json(), "candidate": "It: {candidate}"}))
    judge = RecordingJudge(grade)
    FleurReward(judge, prompt=tmp_path / "p.yaml")(**call)
    assert "It: > A red dot." in judge.asked[0].text


@pytest.mark.parametrize("options", [{}, {"weights": {"fluency": 1}}, {"gamma": 0.5, "task": "referring"}])
def test_harmonic_rewards_with_the_overall_score(options: dict[str, Any]) -> None:
    samples = [CaptionSample(text, RED) for text in ("A red dot.", "A blue dot.")]
    assert HarmonicReward(ScriptedJudge(distribution=rate), **options).rewards(samples) == pytest.approx([5.0, 1.5])


@pytest.mark.slow
def test_a_model_by_name_is_loaded_at_the_first_call_and_not_pickled(tmp_path: Path) -> None:
    short = {**FleurPrompt.of().to_json(), "rubric": "From 0.0 to 1.0?"}
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(short))
    reward = FleurReward(save_rating_judge(tmp_path / "judge", "0"), device="cpu", prompt=tmp_path / "p.yaml")
    (tmp_path / "p.yaml").unlink()
    call = {"prompts": ["x"] * 2, "completions": ["A dog.", "A red star on grass."], "image": [RED, RED]}
    given = reward(**call)
    assert all(value is not None and 0 < value < 1 for value in given)
    pickled = pickle.dumps(reward)
    assert len(pickled) < 20_000
    assert pickle.loads(pickled)(**call) == pytest.approx(given, abs=1e-6)


@pytest.mark.parametrize(
    ("make", "arguments", "options", "error", "message"),
    [
        (FleurReward, ["absent/model", {"taste": 1}], {}, WeightsError, "taste"),
        (FleurReward, ["absent/model"], {"prompt": "absent.yaml"}, ConfigError, "cannot be read"),
        (FleurReward, [3], {}, ConfigError, "a judge of reward.judges, got 3"),
        (FleurReward, ["embedded"], {}, CheckpointError, "ServerJudge"),
        (HarmonicReward, ["absent/model"], {"gamma": 3}, ValueError, "gamma must be"),
        (HarmonicReward, ["absent/model"], {"task": "poetry"}, ConfigError, "task 'poetry' is unknown"),
        (HarmonicReward, ["absent/model"], {"task": "documents"}, ConfigError, "is not given the questions"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_loaded(
    make: Any, arguments: list[Any], options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make(*arguments, **options)


def test_a_tokenizer_that_writes_two_digits_as_one_token_is_refused() -> None:
    with pytest.raises(JudgeError, match="one token"):
        FleurReward(LocalJudge(*llava([("8", "5")])))
