"""Whoever loads an embedded checkpoint is told once what it is for, in whatever way it is loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

WARNING = "trained on synthetic scenes: it is for trials and tests, and says nothing about photos"
LOADS = {  # {what is loaded: (code, how often it is said)}
    "a reward": (
        """
from reward import BeitScoreReward, VelaReward
from PIL import Image
for reward in (VelaReward(), VelaReward(), BeitScoreReward()):
    reward(prompts=["p"], completions=["a star"], image=[Image.new("RGB", (8, 8))])
""",
        1,
    ),
    "a scorer": (
        "from reward import load_scorer; [load_scorer(name) for name in ('vela', 'beitscore', 'clipscore')]",
        1,
    ),
    "a metric without weights": ("from reward import load_scorer; load_scorer('length')", 0),
}


@pytest.mark.parametrize("way", LOADS)
def test_it_is_said_once_and_on_the_first_rank_only(way: str) -> None:
    code, times = LOADS[way]
    for rank, expected in (("0", times), ("1", 0)):
        command, environment = [sys.executable, "-c", code], {**os.environ, "RANK": rank}
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        assert done.stderr.count(WARNING) == expected


def test_the_command_says_it_in_one_line(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "data.jsonl").write_text('{"file_name": "a.png", "candidate": "a star"}\n')
    arguments = ["score", "data.jsonl", "--metric", "vela", "--output", "out.jsonl", "--quiet"]
    command = [sys.executable, "-m", "reward.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if WARNING in line]
    assert len(lines) == 1
    assert lines[0].startswith('source "embedded" is a small checkpoint')
