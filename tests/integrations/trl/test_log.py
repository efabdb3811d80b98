"""What a trainer prints."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

from integrations.trl import RewardMonitor, readable_log
from reward import MetricReward
from tests.integrations.short_training import COLOURS, make_trainer, with_images
from tests.picture_scorer import PictureScorer
from tests.toy_captioners import llava


@pytest.mark.parametrize("bar", [True, False])
def test_log_is_a_few_lines_a_step(bar: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = with_images(COLOURS)
    trainer = make_trainer(
        llava(),
        [MetricReward(PictureScorer(), name="picture")],
        rows,
        tmp_path,
        evaluated=rows,
        disable_tqdm=not bar,
        eval_strategy="steps",
        eval_steps=2,
        per_device_eval_batch_size=2,
    )
    trainer.add_callback(RewardMonitor(trainer, rows.select([0, 1]), MetricReward("length"), every=2))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        readable_log(trainer)
        trainer.train()
    assert not [warning for warning in warned if "gradient_checkpointing" in str(warning.message)]
    printed, to_terminal = capsys.readouterr()
    assert ("1/2" in to_terminal) == bar
    assert all(len(line) <= 80 for line in printed.splitlines())
    number = r"[\d.]+(e-\d+)?"
    a_step = r"""reward N, std N
  picture N: brightness N, words N
  length N tokens \(N to N\), N % cut; loss -?N, (.|\n)*entropy N.*
"""
    monitor = "monitor at step [02]: reward N, measures/length N, length N,(.|\n    )*\n"
    expected = (
        f"{monitor}step 1 of 2: {a_step}(    .*\n)?{monitor}step 2 of 2: {a_step}(    .*\n)?"
        f"evaluation at step 2: {a_step}done: 2 steps in N s, mean loss -?N\n"
    )
    assert re.fullmatch(expected.replace("N", number), printed), printed
