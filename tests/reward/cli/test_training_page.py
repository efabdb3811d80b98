"""`capreward report` on the output folder of a trainer."""

import json

import pytest
from trl.trainer import grpo_trainer

from integrations.trl import readable_log
from reward import MetricReward
from tests.integrations.trl.watched import watched
from tests.toys.pages import Page
from tests.toys.picture_scorer import PictureScorer


@pytest.mark.slow
def test_a_training_is_one_page(tmp_path, run, monkeypatch):
    """With fewer held-out images than a step has captions, and a second measure that logs aspects."""
    table = grpo_trainer.print_prompt_completions_sample
    monkeypatch.setattr(grpo_trainer, "print_prompt_completions_sample", table)  # is put back in the end
    rewards = [MetricReward(PictureScorer(), name="picture")]
    saving = {"save_strategy": "steps", "save_steps": 2, "save_only_model": True}
    options = {"max_steps": 3, "images": 2, "per_device_eval_batch_size": 2, "log_completions": True, **saving}
    trainer, _ = watched(tmp_path / "out", MetricReward("length"), rewards=rewards, **options)
    readable_log(trainer)
    trainer.train()

    shown = [f"Captions of step {step}" for step in (0, 2, 3)]
    shown += [
        "Reward",
        "evaluation",
        "Aspects of picture",
        "Tokens of a caption",
        "Entropy",
        "captions without a score",
    ]
    shown += ["Monitor: the reward", "Monitor: length", "length changed most step 0, reward"]
    for place in ("", "completions", "checkpoint-3", "checkpoint-2/trainer_state.json"):
        run("report", tmp_path / "out" / place, "-o", tmp_path / "page.html", "--overwrite")
        page = Page(tmp_path / "page.html")
        assert [text for text in shown if text not in page.shown] == []
        assert (len(page.plots), len(page.pictures), "no picture" in page.shown) == (7, 10, False)
        assert "worst of 1 " not in f"{page.shown} "  # of one caption there is no choice to tell of
    assert "out is the output folder of a trainer" in run("report", tmp_path / "out", "--by", "x", code=2)[1]

    for file in (tmp_path / "out" / "checkpoint-3", tmp_path / "out" / "checkpoint-2"):
        (file / "trainer_state.json").unlink()
    assert "or by trainer.save_state()" in run("report", tmp_path / "out", "-o", tmp_path / "no.html", code=1)[1]


def test_a_training_without_rewards_has_no_page(tmp_path, run):
    state = {"global_step": 1, "log_history": [{"loss": 0.1, "step": 1}]}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    assert "has no reward in its log" in run("report", tmp_path, "-o", tmp_path / "no.html", code=1)[1]
