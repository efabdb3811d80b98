"""OpenRLHF 0.11.2: its data set and its rollout with our reward, in real Ray with vLLM for the CPU; and its trainer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.engines.rollouts import run_script, scored
from tests.toys.json_lines import write_lines

REWARD = """
from integrations.openrlhf import make_reward_func

reward_func = make_reward_func("vela", "embedded", image_root={root!r})
"""


@pytest.fixture
def files(photos: Path, tmp_path: Path) -> dict[str, Any]:
    """captions.jsonl and caption_reward.py as in the docs; the last row's label is no label."""
    rows = [
        {
            "prompt": [{"role": "user", "content": "<image>Describe the picture."}],
            "images": [str(image)],
            "label": json.dumps({"image": image.name, "references": [f"Drawing {number} has a red star."]}),
        }
        for number, image in enumerate(sorted(photos.iterdir())[:6])
    ]
    rows[5]["label"] = "no JSON"
    reward_file = tmp_path / "caption_reward.py"
    reward_file.write_text(REWARD.format(root=str(photos)))
    return {"rows": str(write_lines(tmp_path / "captions.jsonl", rows)), "reward_file": str(reward_file)}


def test_a_rollout(files: dict[str, Any], captioner: Path, photos: Path, tmp_path: Path) -> None:
    found = run_script("openrlhf", "openrlhf_rollout.py", {"model": str(captioner), **files}, tmp_path)
    assert len(found) == 24
    wrong = [each for each in found if each["label"] == "no JSON"]
    assert [each["reward"] for each in wrong] == [None] * 4  # OpenRLHF goes on without
    right = [each for each in found if each["label"] != "no JSON"]
    labels = [json.loads(each["label"]) for each in right]
    texts = [each["text"].removesuffix("<|im_end|>") for each in right]
    values, aspects = scored(texts, [photos / label["image"] for label in labels], [x["references"] for x in labels])
    assert [each["reward"] for each in right] == pytest.approx(values, abs=1e-5)
    assert [each["logs"]["score"] for each in right] == pytest.approx(values, abs=1e-5)
    for name in ("descriptiveness", "relevance", "fluency"):
        assert [each["logs"][name] for each in right] == pytest.approx(aspects[name], abs=1e-5)
    assert len(set(values)) > 8
