"""Real runs of TRL's trainers with judges as rewards, plain and asynchronous."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from datasets import Dataset, Features, Image
from PIL import Image as PILImage
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

from integrations.trl import make_prompt_dataset
from reward import AsyncReward, FleurReward, HarmonicReward
from reward.judges import Answer, Question, ScriptedJudge
from tests.rating_judges import save_rating_judge
from tests.toy_captioners import NO_IMAGE_TOKEN, llava


def train(trainer_class, config_class, rewards, folder):
    images = [PILImage.new("RGB", (32, 32), colour) for colour in ("red", "green", "blue", "white")]
    rows = Dataset.from_dict({"picture": images}, Features({"picture": Image()}))
    config = config_class(
        output_dir=str(folder),
        per_device_train_batch_size=4,
        num_generations=2,
        max_completion_length=6,
        max_steps=2,
        logging_steps=1,
        learning_rate=1e-3,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        generation_kwargs=NO_IMAGE_TOKEN,
        report_to="none",
        save_strategy="no",
        beta=0.0,
    )
    model, processor = llava()
    trainer = trainer_class(
        model=model,
        reward_funcs=rewards,
        args=config,
        train_dataset=make_prompt_dataset(rows, "Describe it", image_column="picture"),
        processing_class=processor,
    )
    trainer.train()
    return [entry for entry in trainer.state.log_history if "reward" in entry]


@pytest.mark.parametrize(("trainer_class", "config"), [(GRPOTrainer, GRPOConfig), (RLOOTrainer, RLOOConfig)])
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
    logs = train(trainer_class, config, rewards, tmp_path)
    assert len(logs) == 2
    for entry in logs:
        assert 0 < float(entry["rewards/fleur/mean"]) < 1
        assert float(entry["rewards/fleur/mean"]) == pytest.approx(float(entry["fleur/smoothed"]), abs=1e-5)
        assert 1 < float(entry["rewards/harmonic/mean"]) <= 4.5  # 1 for completions without a visible character
        assert float(entry["fleur/unscored"]) == 0
    assert threading.get_ident() not in threads


def test_a_local_judge_rewards_a_policy(tmp_path: Path):
    folder = save_rating_judge(tmp_path / "judge", "0")
    logs = train(GRPOTrainer, GRPOConfig, [FleurReward(folder, name="fleur")], tmp_path)
    assert len(logs) == 2
    assert all(0 < float(entry["rewards/fleur/mean"]) < 1 for entry in logs)
    assert all(float(entry["fleur/unscored"]) == 0 for entry in logs)
