"""vLLM's server: captions of the embedded captioner, and judges, whose scores are those of the same weights here."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from reward.judges import LocalJudge, ServerJudge
from reward.judges.pairwise import JudgePair, PairwiseJudge
from reward.metrics.fleur.scorer import FleurScorer
from reward.metrics.harmoniceval.scorer import HarmonicScorer
from reward.metrics.judge_metric.scorer import VqaScorer
from tests.engines.captions import asking, check_killed, differences
from tests.engines.conftest import ROOT, Run
from tests.engines.environments import program
from tests.engines.judging import check_scores, check_verdicts, check_written
from tests.engines.servers import EngineServer
from tests.json_lines import read_lines

CLOSE = 1e-4  # measured: 1.2e-6 between scores, 4e-7 a token between log probabilities


def vllm(model: Path, length: int, log: Path, *options: str, **more: str) -> EngineServer:
    sizes = ["--max-model-len", str(length), "--max-num-seqs", "16"]
    command = [str(program("vllm", "vllm")), "serve", str(model), "--host", "127.0.0.1", "--port", "{port}"]
    settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    forms = ["--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}']
    quiet = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    command += ["--dtype", "float32", "--enforce-eager", *sizes, *forms, *options]
    return EngineServer(command, log, {**settings, **quiet, **more})


@pytest.fixture(scope="module")
def captions(captioner: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineServer]:
    with vllm(captioner, 512, tmp_path_factory.mktemp("vllm") / "captions.log") as server:
        yield server


@pytest.fixture(scope="module")
def served(judge: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., ServerJudge]]:
    """Makes judges behind one server."""
    with vllm(judge, 8192, tmp_path_factory.mktemp("vllm") / "judge.log") as server:
        yield lambda **settings: ServerJudge(str(judge), server.url, **settings)


@pytest.fixture(scope="module")
def local(judge: Path) -> LocalJudge:
    return LocalJudge.from_pretrained(judge, device="cpu")


def test_captions_and_their_log_probabilities(
    captions: EngineServer, captioner: Path, photos: Path, start: Run, tmp_path: Path
) -> None:
    command = start(*asking(captions, photos, tmp_path / "c.jsonl"))
    told, _ = command.communicate()
    assert command.returncode == 0, told
    assert "12 questions answered by the model" in told  # all 8 candidates of an image come in one reply
    assert "captioned 12 of 12 images from 96 candidates" in told
    assert all(len(set(pool["candidates"])) > 1 for pool in read_lines(tmp_path / "c.jsonl.candidates.jsonl"))
    model = AutoModelForImageTextToText.from_pretrained(captioner, dtype=torch.float32).eval()
    apart = differences(captions, photos, model, AutoProcessor.from_pretrained(captioner))
    assert len(apart) > 80
    alike = [difference for difference in apart if difference < CLOSE]
    print(f"log probabilities: at most {max(alike):.1e} a token apart over {len(alike)} of {len(apart)} captions")
    assert len(alike) >= len(apart) - 2


def test_a_server_that_is_killed(captions: EngineServer, photos: Path, start: Run, tmp_path: Path) -> None:
    check_killed(captions, photos, start, tmp_path)


@pytest.mark.parametrize("scorer", [FleurScorer, HarmonicScorer, VqaScorer])
def test_scores_are_those_of_the_same_weights_here(
    scorer: Any, served: Callable[..., ServerJudge], local: LocalJudge, photos: Path
) -> None:
    check_scores(scorer, local, served(), photos, CLOSE)


def test_verdicts_are_those_of_the_same_weights_here(
    served: Callable[..., ServerJudge], local: LocalJudge, photos: Path
) -> None:
    check_verdicts(local, served(), photos, CLOSE)


def test_what_a_judge_writes(served: Callable[..., ServerJudge], local: LocalJudge, photos: Path) -> None:
    check_written(served, local, photos)


def test_guided_answers(served: Callable[..., ServerJudge], photos: Path) -> None:
    """A model that never keeps to a form is held to it by vLLM's `structured_outputs`."""
    images = sorted(photos.iterdir())[:3]
    asked = {"regex": r"[a-z ]{5,12}\nVerdict: (1|2|tie)"}
    judge = PairwiseJudge(served(extra_body={"structured_outputs": asked}))
    verdicts = judge.compare([JudgePair("A red star.", "A dog.", image) for image in images])
    assert [verdict.error for verdict in verdicts] == [None] * 3


def test_asynchronous_grpo(captioner: Path, tmp_path: Path) -> None:
    """TRL's trainer, its worker and VELA in it; after each step vLLM gets the adapter."""
    log, output = tmp_path / "vllm.log", tmp_path / "out"
    adapters = ["--enable-lora", "--max-lora-rank", "8", "--max-loras", "6"]  # TRL's max_staleness and 2 more
    allowed = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
    with vllm(captioner, 512, log, *adapters, **allowed) as server:
        script = [str(program("vllm", "python")), "-m", "tests.engines.async_grpo", server.url.removesuffix("/v1")]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
        command = [*script, str(captioner), str(output)]
        told = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr[-3000:]
    logs = json.loads((output / "logs.json").read_text())
    assert [entry["step"] for entry in logs] == [1, 2, 3, 4]
    assert all(0 < entry["rewards/vela"] < 1 for entry in logs)
    assert logs[0]["kl"] < 1e-6  # trainer and vLLM give the sampled tokens the same probability
    assert "Loaded new LoRA adapter: name 'trl-policy-v5'" in log.read_text()
