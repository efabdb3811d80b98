"""NeMo RL, whose clone CAPREWARD_NEMO_RL names: its data, its environment actor in real Ray, and its rollout."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.engines.rollouts import run_script, scored
from tests.integrations.frameworks import ROOT
from tests.json_lines import write_lines


def test_a_rollout(captioner: Path, photos: Path, tmp_path: Path) -> None:
    clone = os.environ.get("CAPREWARD_NEMO_RL")
    if not clone:
        pytest.skip("CAPREWARD_NEMO_RL names no clone of NeMo RL at 7ea279ab")
    images = sorted(photos.iterdir())[:5]
    rows = [
        {"image": str(image), "references": [f"Drawing {number} has a red star."], "prompt": "Describe the picture."}
        for number, image in enumerate(images)
    ]
    write_lines(tmp_path / "captions.jsonl", rows)
    page = (ROOT / "docs" / "FRAMEWORKS.md").read_text(encoding="utf-8").split("\n## NeMo RL\n")[1]
    config = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[0]
    for given, here in {
        "vlm_grpo_3B.yaml": f"{clone}/examples/configs/vlm_grpo_3B.yaml",
        "/data/captions.jsonl": str(tmp_path / "captions.jsonl"),
        "split_validation_size: 0.05": "split_validation_size: 0.2",
        "metric: remote": "metric: vela",
        "source: http://127.0.0.1:8123#vela": "source: embedded",
    }.items():
        assert given in config
        config = config.replace(given, here)
    (tmp_path / "captions.yaml").write_text(config)

    settings = {"config": str(tmp_path / "captions.yaml"), "model": str(captioner), "generations": 4, "most": 90}
    found = run_script("nemo_rl", "nemo_rl_rollout.py", settings, tmp_path, clone)
    assert found["held_out"] == 1
    assert found["metrics"]["natural_termination_rate"] == 1.0
    rows = found["rows"]
    assert len(rows) == 16
    values, _ = scored(
        [row["text"] for row in rows], [row["image"] for row in rows], [row["references"] for row in rows]
    )
    assert [row["reward"] for row in rows] == pytest.approx(values, abs=1e-5)
    assert len(set(values)) > 4
