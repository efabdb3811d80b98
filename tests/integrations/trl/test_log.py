"""What a trainer prints."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

from integrations.trl import RewardMonitor, readable_log
from integrations.trl.log import log_lines
from reward import MetricReward
from tests.integrations.short_training import COLOURS, make_trainer, with_images
from tests.toys.picture_scorer import PictureScorer
from tests.toys.toy_captioners import llava

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("bar", [True, False])
def test_log_is_a_few_lines_a_step(bar: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = with_images(COLOURS)
    trainer = make_trainer(
        llava(),
        [MetricReward(PictureScorer(), name="picture")],
        rows,
        tmp_path,
        evaluated=with_images(COLOURS),
        disable_tqdm=not bar,
        eval_strategy="steps",
        eval_steps=2,
        eval_on_start=True,
        per_device_eval_batch_size=2,
    )
    trainer.add_callback(RewardMonitor(trainer, MetricReward("length")))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        readable_log(trainer)
        trainer.train()
    assert not [warning for warning in warned if "gradient_checkpointing" in str(warning.message)]
    printed, to_terminal = capsys.readouterr()
    assert ("1/2" in to_terminal) == bar
    assert all(len(line) <= 80 for line in printed.splitlines())
    rest = r"""length N tokens \(N to N\), N % cut; loss -?N, (.|\n)*entropy N.*
"""
    step = rf"step {{}} of 2: reward N, std N\n  picture N: brightness N, words N\n  {rest}(    .*\n)?"
    evaluation = (
        rf"evaluation at step {{0}}: reward N, std N\n  picture N: brightness N, words N\n  length N\n  {rest}"
        r"monitor at step {0}: best_step N.*\n"
    )
    expected = "".join([evaluation.format(0), step.format(1), step.format(2), evaluation.format(2)])
    expected += r"done: 2 steps in N s, mean loss -?N\n"
    assert re.fullmatch(expected.replace("N", r"[\d.]+(e-\d+)?"), printed), printed


@pytest.mark.parametrize(
    ("logs", "start", "lines"),
    [
        ({"reward": 1.2, "rewards/a/mean": 1.2, "a/b": 1.2000001}, 0, ["step 8 of 8: reward 1.200", "  a 1.200"]),
        (
            {"reward": 1.2, "rewards/a/mean": 1.2, "a/b": 1.2000001, "a/unscored": 0.5},
            0,
            ["step 8 of 8: reward 1.200", "  a 1.200: not scored 0.500"],
        ),
        (
            {"reward": 1.2, "rewards/a/mean": 1.2, "a/b": 1.2, "a/c": 1.2},
            0,
            ["step 8 of 8: reward 1.200", "  a 1.200: b 1.200, c 1.200"],
        ),
        ({"train_runtime": 6.2}, 0, ["done: 8 steps in 6.2 s"]),
        ({"train_runtime": 6.2}, 4, ["done: 4 steps (5 to 8) in 6.2 s"]),
    ],
)
def test_lines_of_a_log(logs: dict[str, float], start: int, lines: list[str]) -> None:
    assert log_lines(logs, 8, 8, start) == lines
