"""A real GRPO run whose rewards are tournaments, before a tiny local judge and before one with a taste."""

from __future__ import annotations

import re

import pytest
import torch
from datasets import Dataset, Features, Image
from PIL import Image as PILImage
from trl import GRPOConfig, GRPOTrainer

from integrations.trl import make_prompt_dataset
from reward.functions.tournament_reward import TournamentReward
from reward.judges import ScriptedJudge
from tests.rating_judges import save_choosing_judge
from tests.toy_captioners import NO_IMAGE_TOKEN, llava


def likes_letters(question):
    first, second = map(len, re.search(r"1:\n> (.*?)\n\nCaption 2:\n> (.*?)\n\nWhich", question.text).groups())
    return {"0": 0.8} if first == second else {"1": 0.8} if first > second else {"2": 0.8}


def test_two_steps(tmp_path):
    """Two images a step, four captions each: the groups of the trainer are the groups of the tournament."""
    folder = save_choosing_judge(tmp_path / "judge")
    reward = TournamentReward(str(folder), max_comparisons=4, name="duel", device="cpu")
    taste = TournamentReward(ScriptedJudge(distribution=likes_letters), max_comparisons=4, ranking="bradley_terry")
    images = [PILImage.new("RGB", (32, 32), colour) for colour in ("red", "green", "blue", "white")]
    rows = Dataset.from_dict({"picture": images}, Features({"picture": Image()}))
    model, processor = llava()
    before = {name: value.clone() for name, value in model.named_parameters()}
    config = GRPOConfig(
        output_dir=str(tmp_path),
        per_device_train_batch_size=8,
        num_generations=4,
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
        log_completions=True,
    )
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=[reward, taste],
        args=config,
        train_dataset=make_prompt_dataset(rows, "Describe it", image_column="picture"),
        processing_class=processor,
    )
    assert not reward.tournament.judge.judge.loaded
    trainer.train()
    logs = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert len(logs) == 2
    for entry in logs:
        assert float(entry["rewards/duel/mean"]) == pytest.approx(float(entry["duel/win_rate"]), abs=1e-5)
        assert 0 <= float(entry["rewards/duel/mean"]) <= 1
        assert float(entry["duel/unscored"]) == 0
        assert 0 <= float(entry["duel/inconsistency"]) <= 1
        assert float(entry["rewards/tournament_scripted/std"]) > 0.05
        assert float(entry["tournament_scripted/inconsistency"]) == 0
    bias = reward.position_bias
    assert 4 <= bias.both_orders <= 4 * 2 * 2  # comparisons: at most 4 a group, two groups a step, two steps
    assert bias.both_orders == taste.position_bias.both_orders
    assert reward.tournament.judge.judge.usage.answered == 2 * bias.both_orders
    assert any(not torch.equal(before[name], value) for name, value in trainer.model.named_parameters())
