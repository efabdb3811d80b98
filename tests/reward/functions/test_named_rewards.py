"""VelaReward and BeitScoreReward: what is checked before any model is loaded."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest

from reward import VelaReward
from reward.errors import WeightsError


def test_weights_by_full_and_short_names():
    reward = VelaReward("folder", weights={"desc": 1, "rel": 2, "fluency": 1})
    assert dict(zip(reward.spec.aspects, reward.weights.tolist(), strict=True)) == {
        "descriptiveness": 0.25,
        "relevance": 0.5,
        "fluency": 0.25,
    }
    assert VelaReward("folder").weights.tolist() == pytest.approx([1 / 3] * 3)


@pytest.mark.parametrize(
    "weights",
    [{"taste": 1}, {"desc": math.nan}, {"desc": "1"}, {"desc": 0}, {"desc": 1, "descriptiveness": 1}, [1, 2, 3]],
)
def test_bad_weights_are_refused_at_construction(weights):
    with pytest.raises(WeightsError):
        VelaReward("folder", weights=weights)


@pytest.mark.parametrize(
    "construction", ["VelaReward('folder', {'desc': 1})", "WeightedReward([(BeitScoreReward(), 1)])"]
)
def test_construction_loads_no_torch(construction):
    code = f"import sys; from reward import *; {construction}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
