"""What a trainer prints."""

import re

import pytest
from trl.trainer import grpo_trainer

from integrations.trl import readable_log
from integrations.trl.log import log_lines
from reward import MetricReward
from tests.integrations.trl.watched import watched
from tests.toys.picture_scorer import PictureScorer

LENGTH = "  length N tokens (N to N), N % cut; loss"
STEP = ["step N of N: reward N, std N", "  picture N: brightness N, words N", LENGTH]
EVALUATION = ["evaluation at step N: reward N, std N", *STEP[1:2], "  length N", LENGTH, "monitor at step N: best_step"]


@pytest.mark.slow
@pytest.mark.parametrize("bar", [True, False])
def test_log_is_a_few_lines_a_step(bar, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    table = grpo_trainer.print_prompt_completions_sample
    monkeypatch.setattr(grpo_trainer, "print_prompt_completions_sample", table)  # is put back in the end
    trainer, _ = watched(
        tmp_path,
        MetricReward("length"),
        rewards=[MetricReward(PictureScorer(), name="picture")],
        max_steps=2,
        eval_steps=2,
        images=4,
        disable_tqdm=not bar,
        log_completions=True,
    )
    readable_log(trainer)
    trainer.train()
    printed, to_terminal = capsys.readouterr()
    assert ("1/2" in to_terminal) == bar
    assert all(len(line) <= 80 for line in printed.splitlines())
    found = [re.sub(r"-?\d+(\.\d+)?(e-\d+)?", "N", line) for line in printed.splitlines()]
    found = [re.sub("(loss|best_step) .*", r"\1", line) for line in found if not line.startswith("    ")]
    shown = [line for line in found if line != "captions of step N:"]
    assert len(found) - len(shown) == 4  # with each log but the monitor's and the last, whose captions were printed
    assert shown == [*EVALUATION, *STEP, *STEP, *EVALUATION, "done: step N after N s, mean loss"]

    caption = "A red star stands on the green grass, beside a small blue circle and a yellow square."
    messages = [[{"role": "assistant", "content": caption}]] * 2
    rewards = {"vela": [0.684, 0.25], "length": [17.0, 17.0]}
    grpo_trainer.print_prompt_completions_sample([[]] * 2, messages, rewards, None, 8, 1, extra={})
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "captions of step 8:",
        "    vela 0.684     A red star stands on the green grass, beside a small blue",
        "    length 17.000  circle and a yellow square.",
    ]


def test_what_says_nothing_new_is_left_out():
    logs = {"reward": 1.2, "rewards/a/mean": 1.2, "a/only aspect": 1.2000001, "a/unscored": 0.5, "a/truncated": 0.0}
    assert log_lines(logs, 8, 8) == ["step 8 of 8: reward 1.200", "  a 1.200: not scored 0.500"]


def test_one_of_several_evaluation_sets_is_named():
    logs = {"eval_far_runtime": 1.0, "eval_far_reward": 0.5, "eval_far_loss": 0.0}
    assert log_lines(logs, 2, 8) == ["evaluation of far at step 2: reward 0.500", "  loss 0"]
