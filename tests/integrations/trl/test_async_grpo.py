"""Asynchronous GRPO: its worker process hides the GPUs and calls the reward, here one of a real service.

TRL's trainer and worker are real. Stand-ins are what needs a GPU: vLLM, and the kernel of the attention.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from packaging.version import Version
from transformers import Qwen2Config, Qwen2ForCausalLM

from reward import MetricReward, RemoteReward
from tests.toys.loopback_http import send, serving
from tests.toys.loopback_service import loopback_service
from tests.toys.toy_judges import byte_tokenizer, pictures

pytestmark = pytest.mark.slow

trl = pytest.importorskip("trl")
pytest.importorskip("aiohttp")
if Version(trl.__version__) < Version("1.16"):
    pytest.skip("written for the worker of TRL 1.16", allow_module_level=True)

LETTERS = range(40, 90)


def random_letters(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    """Answers as vLLM does."""
    choice = {"token_ids": random.choices(LETTERS, k=6), "logprobs": {"token_logprobs": [-1.0] * 6}}
    send(handler, json.dumps({"choices": [choice]}).encode())


class NoTransfer:
    """Sends the weights nowhere."""

    def send_weights(self, iterator: Iterator[Any]) -> None:
        for _ in iterator:
            pass

    def __getattr__(self, name: str) -> Any:
        return lambda: None


@pytest.fixture
def vllm() -> Iterator[str]:
    with serving(random_letters) as address:
        yield address


@pytest.fixture
def train(vllm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer, async_grpo_trainer, async_rollout_worker

    monkeypatch.setattr(async_rollout_worker, "is_vllm_available", lambda: True)
    monkeypatch.setattr(async_grpo_trainer, "get_peak_flops_per_device", lambda *arguments: 1e12)
    monkeypatch.setattr(async_grpo_trainer, "TREE_ATTENTION", "sdpa")
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = (Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja").read_text(encoding="utf-8")
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    Qwen2ForCausalLM(Qwen2Config(vocab_size=len(tokenizer), num_key_value_heads=1, **sizes)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    rows = []
    for number, image in enumerate(pictures(2)):
        image.save(tmp_path / f"{number}.png")
        rows.append({"prompt": [{"role": "user", "content": "Describe it."}], "image": str(tmp_path / f"{number}.png")})

    def run(reward: Any) -> list[dict[str, Any]]:
        config = AsyncGRPOConfig(
            output_dir=str(tmp_path / "out"),
            max_steps=2,
            num_generations=2,
            max_completion_length=6,
            token_budget=128,
            vllm_server_base_url=vllm,
            dtype="float32",
            use_cpu=True,
            bf16=False,
            report_to="none",
            logging_steps=1,
            save_strategy="no",
        )
        trainer = AsyncGRPOTrainer(
            model=str(tmp_path),
            reward_funcs=[reward],
            args=config,
            train_dataset=Dataset.from_list(rows * 4),
            processing_class=tokenizer,
            weight_transfer=NoTransfer(),
        )
        trainer.train()
        return [entry for entry in trainer.state.log_history if "reward" in entry]

    return run


def test_with_a_service_it_runs_to_the_end(train: Any) -> None:
    with loopback_service("--metric", "vela", "--devices", "cpu") as service:
        logs = train(RemoteReward(service.url, "vela", name="remote"))
    assert len(logs) == 2
    assert all(0 < entry["rewards/remote"] < 1 for entry in logs)


def test_a_reward_in_the_worker_says_that_it_runs_on_the_cpu(train: Any, capfd: pytest.CaptureFixture[str]) -> None:
    logs = train(MetricReward("vela", name="here"))
    assert len(logs) == 2
    assert all(0 < entry["rewards/here"] < 1 for entry in logs)
    assert "GPUs are hidden from this process" in capfd.readouterr().err
