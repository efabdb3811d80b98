"""What the frameworks that train with rewards share: scripts in their environments, and the scores to compare with."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reward import VelaReward
from tests.engines.conftest import ROOT
from tests.engines.environments import program

__all__ = ["ENVIRONMENT", "run_script", "scored"]

ENVIRONMENT = {  # of processes with vLLM for the CPU and with Ray
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_raylet_start_wait_time_s": "120",
    "HF_HUB_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "0",
}


def run_script(engine: str, script: str, settings: Mapping[str, Any], folder: Path) -> Any:
    """Runs a script of this folder in an engine's environment with settings; gives the JSON of its last line.

    Args:
        folder: for the settings and the caches of data sets.
    """
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    variables = {**ENVIRONMENT, "PYTHONPATH": str(ROOT), "HF_DATASETS_CACHE": str(folder / "cache")}
    run = subprocess.run(
        [str(program(engine, "python")), str(Path(__file__).with_name(script)), str(folder / "settings.json")],
        cwd=folder,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=800,
    )
    lines = [line for line in run.stdout.splitlines() if line.startswith(("[{", "{"))]
    assert run.returncode == 0, run.stdout[-5000:]
    return json.loads(lines[-1])


def scored(
    captions: Sequence[str], images: Sequence[Path], references: Sequence[Sequence[str]]
) -> tuple[list[float | None], dict[str, list[float]]]:
    """Rewards and {aspect: scores} of the embedded VELA in this process."""
    aspects: dict[str, list[float]] = {}
    rewards = VelaReward()(
        prompts=[None] * len(captions),
        completions=list(captions),
        images=[str(image) for image in images],
        references=[list(each) for each in references],
        log_extra=lambda name, scores: aspects.__setitem__(name.rpartition("/")[2], scores),
    )
    return rewards, aspects
