"""Training on from a checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from reward.training.loop import train
from tests.reward.training.small_runs import NO_STAGES, small_beitscore, small_config, weights

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("metric", "make"), [("vela", small_config), ("beitscore", small_beitscore)])
def test_a_checkpoint_goes_on_with_its_weights_and_says_whether_it_helped(
    metric: str, make: Any, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    config = make(stages=NO_STAGES, loss="mse", epochs=1)
    start = train(metric, "scenes", first, config)
    still = replace(config, model={}, learning_rate=1e-12, max_steps=1)
    with pytest.warns(UserWarning, match="the training did not help on the part 'val': Kendall's tau-c x 100 was"):
        result = train(metric, "scenes", second, still, init=first)
    assert result.before == pytest.approx(start.figures["val"])
    before, after = weights(first), weights(second)
    assert all(torch.allclose(before[name], after[name], atol=1e-8) for name in before)
    for name in ("config.json", "tokenizer.json"):
        assert (first / name).read_text() == (second / name).read_text()
    assert f"Went on from the checkpoint `{first}`" in (second / "README.md").read_text()
