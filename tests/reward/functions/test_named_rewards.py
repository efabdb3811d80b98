"""VelaReward and BeitScoreReward: what is checked before any model is loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest

from reward import VelaReward


def test_weights_by_full_and_short_names():
    reward = VelaReward("folder", weights={"desc": 1, "rel": 2, "fluency": 1})
    assert reward.spec.aspects == ("descriptiveness", "relevance", "fluency")
    assert reward.weights.tolist() == [0.25, 0.5, 0.25]
    assert VelaReward("folder").weights.tolist() == pytest.approx([1 / 3] * 3)


@pytest.mark.parametrize(
    "construction", ["VelaReward('folder', {'desc': 1})", "WeightedReward([(BeitScoreReward(), 1)])"]
)
def test_construction_loads_no_torch(construction):
    code = f"import sys; from reward import *; {construction}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
