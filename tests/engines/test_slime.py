"""slime, whose clone CAPREWARD_SLIME names: its data set and its rollout with our reward, from a server as SGLang's."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.engines.rollouts import run_script, scored
from tests.integrations.frameworks import launch

# What slime's parser has by default, as far as a rollout reads it, and sizes for a small one.
DEFAULTS = {
    "metadata_key": "metadata",
    "rollout_global_dataset": True,
    "rollout_seed": 42,
    "rollout_temperature": 1.0,
    "rollout_top_p": 1.0,
    "rollout_top_k": -1,
    "rollout_skip_special_tokens": True,
    "sglang_server_concurrency": 4,
    "sglang_dp_size": 1,
    "rollout_num_gpus": 1,
}
SMALL = {"rollout_batch_size": 4, "over_sampling_batch_size": 4, "n_samples_per_prompt": 4}


def options_of_the_docs() -> dict[str, Any]:
    """The options of the command of the docs as slime's parser names them."""
    words = shlex.split(launch("slime").partition("train.py")[2])[1:]
    values: dict[str, Any] = {}
    for word, after in zip(words, [*words[1:], "--"], strict=True):
        if word.startswith("--"):
            value: Any = True if after.startswith("--") else after
            values[word[2:].replace("-", "_")] = int(value) if str(value).isdigit() else value
    values["multimodal_keys"] = json.loads(values["multimodal_keys"])
    return values


@pytest.mark.parametrize("own_image", [False, True])
def test_a_rollout(own_image: bool, captioner: Path, photos: Path, tmp_path: Path) -> None:
    """slime resizes images for the policy, and hands these to rewards; an image in the metadata comes first."""
    clone = os.environ.get("CAPREWARD_SLIME")
    if not clone:
        pytest.skip("CAPREWARD_SLIME names no clone of slime at 624b824a")
    images = sorted(photos.iterdir())[:4]
    rows = [
        {
            "prompt": [{"role": "user", "content": "<image>Describe the picture."}],
            "images": [str(image)],
            "references": [f"Drawing {number} has a red star."],
            "metadata": {"image": str(image) if own_image else None},
        }
        for number, image in enumerate(images)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "captions.parquet")
    ours = {"capreward": {"metric": "vela", "source": "embedded"}}  # of --custom-config-path
    files = {"hf_checkpoint": str(captioner), "prompt_data": str(tmp_path / "captions.parquet")}
    settings = {**DEFAULTS, **options_of_the_docs(), **SMALL, **ours, **files, "group_rm": own_image}
    settings["rollout_max_response_len"] = 90
    samples = run_script("slime", "slime_rollout.py", settings, tmp_path, clone)

    assert [sample["row"] for sample in samples] == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4
    values, _ = scored(
        [sample["text"] for sample in samples],
        [images[sample["row"]] if own_image else tmp_path / f"{sample['row']}.png" for sample in samples],
        [rows[sample["row"]]["references"] for sample in samples],
    )
    assert [sample["reward"] for sample in samples] == pytest.approx(values, abs=1e-5)
    assert len(set(values)) > 4
