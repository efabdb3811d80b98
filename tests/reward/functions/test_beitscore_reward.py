"""BeitScoreReward: what is said before any model is loaded, and its rewards."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from reward import BeitScoreReward, CaptionSample
from tests.reward.metrics.beitscore.tiny_beitscore import make_scorer, picture


def test_construction_loads_no_torch() -> None:
    code = (
        "import sys; from reward import BeitScoreReward, WeightedReward;"
        "WeightedReward([(BeitScoreReward('folder'), 1)]); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_rewards_are_the_scores_also_after_pickling(tmp_path: Path) -> None:
    scorer = make_scorer()
    scorer.save_pretrained(tmp_path)
    samples = [CaptionSample(text, picture(0)) for text in ("A red star.", "Two stars.")]
    expected = scorer.score(samples).scores[:, 0].tolist()
    reward = BeitScoreReward(tmp_path, device="cpu", name="faithful")
    assert reward.rewards(samples) == pytest.approx(expected, abs=1e-6)
    data = pickle.dumps(reward)
    assert len(data) < 10_000  # no weights in it
    assert pickle.loads(data).rewards(samples) == pytest.approx(expected, abs=1e-6)
    rows = reward(prompts=["p"] * 3, completions=["A red star.", "", "x"], image=[picture(0), picture(0), b"broken"])
    assert rows == pytest.approx([expected[0], 0.0, None], abs=1e-6)
