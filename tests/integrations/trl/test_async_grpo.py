"""Asynchronous GRPO: its worker process hides the GPUs and calls the reward, here one of a real service.

TRL's trainer and worker are real. Stand-ins are what needs a GPU: vLLM, and the kernel of the attention.
"""

import json
import random
from pathlib import Path

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


def random_letters(handler, body):
    """Answers as vLLM does."""
    choice = {"token_ids": random.choices(LETTERS, k=6), "logprobs": {"token_logprobs": [-1.0] * 6}}
    send(handler, json.dumps({"choices": [choice]}).encode())


class NoTransfer:
    """Sends the weights nowhere."""

    def send_weights(self, iterator):
        for _ in iterator:
            pass

    def __getattr__(self, name):
        return lambda: None


def tiny_policy(folder):
    """A Qwen2 in a folder, and its tokenizer."""
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = (Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja").read_text(encoding="utf-8")
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = Qwen2Config(vocab_size=len(tokenizer), num_key_value_heads=1, **sizes)
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder), tokenizer


def test_a_reward_of_a_service_and_one_in_the_worker_which_says_that_it_runs_on_the_cpu(tmp_path, monkeypatch, capfd):
    async_grpo = pytest.importorskip("trl.experimental.async_grpo")
    async_grpo_trainer = pytest.importorskip("trl.experimental.async_grpo.async_grpo_trainer")
    async_rollout_worker = pytest.importorskip("trl.experimental.async_grpo.async_rollout_worker")
    monkeypatch.setattr(async_rollout_worker, "is_vllm_available", lambda: True)
    monkeypatch.setattr(async_grpo_trainer, "get_peak_flops_per_device", lambda *arguments: 1e12)
    monkeypatch.setattr(async_grpo_trainer, "TREE_ATTENTION", "sdpa")
    images = [tmp_path / f"{number}.png" for number in range(2)]
    for image, picture in zip(images, pictures(2), strict=True):
        picture.save(image)
    asked = [{"role": "user", "content": "Describe it."}]
    rows = [{"prompt": asked, "image": str(image)} for image in images] * 4
    model, tokenizer = tiny_policy(tmp_path / "policy")
    sizes = {"max_steps": 2, "num_generations": 2, "max_completion_length": 6, "token_budget": 128}
    quiet = {"report_to": "none", "logging_steps": 1, "save_strategy": "no"}
    with serving(random_letters) as vllm, loopback_service("--metric", "length") as service:
        trainer = async_grpo.AsyncGRPOTrainer(
            model=model,
            reward_funcs=[RemoteReward(service.url, "length", name="remote"), MetricReward("vela", name="here")],
            args=async_grpo.AsyncGRPOConfig(
                str(tmp_path / "out"),
                vllm_server_base_url=vllm,
                dtype="float32",
                use_cpu=True,
                bf16=False,
                **sizes,
                **quiet,
            ),
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            weight_transfer=NoTransfer(),
        )
        trainer.train()
    logs = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert len(logs) == 2
    for entry in logs:
        assert entry["rewards/remote"] >= 1  # words
        assert 0 < entry["rewards/here"] < 1
    assert "GPUs are hidden from this process" in capfd.readouterr().err
