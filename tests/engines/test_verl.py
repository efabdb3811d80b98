"""verl 0.9.1 trains: the command of the docs, with FSDP on gloo, vLLM for the CPU and our manager, in real Ray."""

from __future__ import annotations

import os
import random
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reward.scenes import describe, render, sample_scene
from tests.engines.conftest import ROOT
from tests.engines.environments import program
from tests.engines.qwen_policy import save_policy
from tests.engines.rollouts import ENVIRONMENT, scored
from tests.engines.servers import EngineServer
from tests.integrations.frameworks import launch
from tests.toys.json_lines import read_lines

# What a run without a GPU takes besides the command of the docs, and what makes it small.
ON_A_CPU = """
    data.train_batch_size=4 data.max_prompt_length=64 data.max_response_length=16 data.dataloader_num_workers=0
    data.filter_overlong_prompts_workers=1
    actor_rollout_ref.model.use_remove_padding=False +actor_rollout_ref.model.override_config.attn_implementation=sdpa
    actor_rollout_ref.model.enable_gradient_checkpointing=False
    actor_rollout_ref.actor.strategy=fsdp2 actor_rollout_ref.actor.fsdp_config.strategy=fsdp2
    actor_rollout_ref.actor.fsdp_config.dtype=float32 actor_rollout_ref.actor.fsdp_config.use_torch_compile=False
    +actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=fp32
    actor_rollout_ref.actor.ppo_mini_batch_size=4 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16
    actor_rollout_ref.actor.optim.lr=1e-3 actor_rollout_ref.rollout.n=4
    actor_rollout_ref.rollout.tensor_model_parallel_size=1 actor_rollout_ref.rollout.dtype=float32
    actor_rollout_ref.rollout.enforce_eager=True actor_rollout_ref.rollout.free_cache_engine=False
    +actor_rollout_ref.rollout.enable_sleep_mode=False actor_rollout_ref.rollout.enable_chunked_prefill=False
    actor_rollout_ref.rollout.max_model_len=128 actor_rollout_ref.rollout.max_num_seqs=16
    actor_rollout_ref.rollout.max_num_batched_tokens=512 actor_rollout_ref.rollout.load_format=auto
    actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=16
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16 actor_rollout_ref.rollout.agent.num_workers=1
    transfer_queue.backend.SimpleStorage.num_data_storage_units=1 reward.num_workers=2
    trainer.device=cpu trainer.n_gpus_per_node=1 trainer.logger=[console] trainer.resume_mode=disable
    trainer.rollout_data_dir=rollouts trainer.validation_data_dir=validation
    ray_kwargs.ray_init.num_cpus=8 +ray_kwargs.ray_init.num_gpus=1 +ray_kwargs.ray_init.include_dashboard=False
    +ray_kwargs.ray_init.object_store_memory=200000000
"""
PLUGIN = {
    "PYTHONPATH": f"{ROOT}{os.pathsep}{Path(__file__).parent}",  # a package of verl's environment is called tests
    "VERL_USE_EXTERNAL_MODULES": "verl_on_cpu",
    "VERL_PLATFORM": "cpu",
    "VERL_ENGINE_DEVICE": "cuda",  # FSDP is registered for CUDA, and runs without
}


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policy")
    save_policy(folder)
    return folder


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    command = [sys.executable, "-m", "reward.cli.main", "serve", "--metric", "vela", "--devices", "cpu"]
    log = tmp_path_factory.mktemp("service") / "log"
    with EngineServer([*command, "--port", "{port}"], log, {"PYTHONPATH": str(ROOT)}) as server:
        yield server.url.removesuffix("/v1")


def write_rows(folder: Path, count: int, *, lost: int | None = None) -> dict[str, Path]:
    """Writes rows.parquet as the docs describe it, with encoded images; gives {reference: file of the image}.

    The reward of the row `lost` looks for its image elsewhere, and does not find it.
    """
    rows, files = [], {}
    for number in range(count):
        scene = sample_scene(random.Random(number))
        image = folder / f"{number}.png"
        render(scene).save(image)
        reference = f"{number}: {describe(scene, random.Random(number)).text}"
        files[reference] = image
        rows.append(
            {
                "data_source": "captions",
                "prompt": [{"role": "user", "content": "<image>Describe the picture."}],
                "images": [{"bytes": image.read_bytes(), "path": None}],
                "reward_model": {"style": "model", "ground_truth": reference},
                "extra_info": {"index": number, "image": "gone.png" if number == lost else None},
            }
        )
    pq.write_table(pa.Table.from_pylist(rows), folder / "rows.parquet")
    return files


def train(folder: Path, policy: Path, *more: str) -> str:
    """Runs the command of the docs with the files of a folder; gives what was printed."""
    files = [f"data.{part}_files={folder / 'rows.parquet'}" for part in ("train", "val")]
    options = [*shlex.split(launch("verl"))[3:], *shlex.split(ON_A_CPU), *files, *more]
    command = [str(program("verl", "python")), "-m", "verl.trainer.main_ppo", *options]
    environment = {**os.environ, **ENVIRONMENT, **PLUGIN, "HF_DATASETS_CACHE": str(folder / "cache")}
    run = subprocess.run(
        [*command, f"actor_rollout_ref.model.path={policy}"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=800,
    )
    assert run.returncode == 0, run.stdout[-5000:]
    return run.stdout


def rated(rows: list[dict[str, Any]], files: dict[str, Path]) -> tuple[list[float | None], dict[str, list[float]]]:
    """Rewards and scores of the responses that verl wrote down, from the metric in this process."""
    images = [files[row["gts"]] for row in rows]
    return scored([row["output"] for row in rows], images, [[row["gts"]] for row in rows])


def test_it_trains_with_a_service_as_in_the_docs(policy: Path, service: str, tmp_path: Path) -> None:
    files = write_rows(tmp_path, 8)
    source = f"reward.custom_reward_function.reward_kwargs.source='{service}#vela'"
    told = train(tmp_path, policy, source, "trainer.total_training_steps=2", "trainer.val_before_train=True")
    for step in (1, 2):
        rows = read_lines(tmp_path / "rollouts" / f"{step}.jsonl")
        assert len(rows) == 16
        values, _ = rated(rows, files)
        assert [row["score"] for row in rows] == pytest.approx(values, abs=1e-5)
        assert len({row["score"] for row in rows}) > 8
    rows = read_lines(tmp_path / "validation" / "0.jsonl")
    values, aspects = rated(rows, files)
    assert [row["reward"] for row in rows] == pytest.approx(values, abs=1e-5)
    for name in ("descriptiveness", "relevance", "fluency"):
        assert [row[name] for row in rows] == pytest.approx(aspects[name], abs=1e-5)
    norms = [float(norm) for norm in re.findall(r"actor/grad_norm:([\d.e+-]+)", told)]
    assert len(norms) == 2
    assert min(norms) > 0


def test_a_row_without_a_score_is_left_out(policy: Path, tmp_path: Path) -> None:
    """The metric runs in verl's own workers. verl logs what they raise, and trains on with the other captions."""
    files = write_rows(tmp_path, 4, lost=0)
    local = "reward.custom_reward_function.reward_kwargs"
    options = [f"{local}.metric=vela", f"{local}.source=embedded", "trainer.val_before_train=False"]
    told = train(tmp_path, policy, *options, "trainer.total_training_steps=1")
    rows = read_lines(tmp_path / "rollouts" / "1.jsonl")
    assert len(rows) == 16
    rows = [row for row in rows if not row["uid"].startswith("pad")]  # verl's, without weight
    lost, *others = files
    assert [row["score"] for row in rows if row["gts"] == lost and row["output"].strip()] == []  # a wordless one has 0
    values, _ = rated(rows, files)
    assert [row["score"] for row in rows] == pytest.approx(values, abs=1e-5)
    assert len([row for row in rows if row["gts"] in others]) == 12
    assert "reward.errors.InvalidSampleError" in told
    assert "gone.png" in told
