"""Before a training starts: the memory of its steps, counted and real, and what is said where it does not fit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from transformers import Qwen2Config, Qwen2Model

from reward.errors import ConfigError
from reward.metrics.vela.backbones import add_lora
from reward.metrics.vela.config import LoraSettings
from reward.training import plan
from reward.training.config import TrainingConfig
from reward.training.loop import plan_training, train
from reward.training.memory import DeviceMemory, StepMemory, count_step
from tests.reward.training.small_runs import small_beitscore, small_config


class AdaptedDecoder(nn.Module):
    """A frozen language model with adapters, and a score from its states."""

    def __init__(self, dtype: torch.dtype, *, checkpointing: bool) -> None:
        super().__init__()
        config = Qwen2Config(
            **{"vocab_size": 100, "hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 6},
            **{"num_attention_heads": 4, "num_key_value_heads": 2},
        )
        self.decoder: Any = add_lora(Qwen2Model(config).to(dtype=dtype).requires_grad_(False), LoraSettings())
        for name, value in self.decoder.named_parameters():
            value.requires_grad_(".lora_" in name)
        if checkpointing:
            self.decoder.gradient_checkpointing_enable({"use_reentrant": False})
        self.head = nn.Linear(128, 1)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        states = self.decoder(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).last_hidden_state
        return SimpleNamespace(scores=self.head(states.float().mean(1)).squeeze(-1))


@pytest.mark.filterwarnings("ignore:`gradient_checkpointing_enable`")
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize(("dtype", "precision"), [(torch.float32, "fp32"), (torch.bfloat16, "bf16")])
def test_the_memory_of_a_step_is_what_a_step_takes(dtype: torch.dtype, precision: str, checkpointing: bool) -> None:
    network = AdaptedDecoder(dtype, checkpointing=checkpointing).train()
    mask = torch.ones(4, 128, dtype=torch.long)
    mask[0, 100:] = 0
    batch = {"input_ids": torch.ones_like(mask), "attention_mask": mask}
    before = {name: value.clone() for name, value in network.state_dict().items()}
    counted = count_step(network, {**batch, "labels": torch.zeros(4)}, precision=precision)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    trained = sum(value.numel() * 4 for value in network.parameters() if value.requires_grad)
    assert counted.optimizer == 3 * trained
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            scores = network(**batch).scores
        scores.float().sum().backward()
    events = profiler.profiler.kineto_results.events()
    taken = peak = 0
    for event in sorted((event for event in events if event.name() == "[memory]"), key=lambda event: event.start_ns()):
        taken += event.nbytes()
        peak = max(peak, taken)
    assert counted.batch + trained == pytest.approx(peak, rel=0.05)


def device_of(monkeypatch: pytest.MonkeyPatch, total: int, free: int) -> None:
    """A device with so many MiB, on which the weights take 2 and each row of a batch 10."""
    monkeypatch.setattr(plan, "device_memory", lambda _: DeviceMemory("the card", total << 20, free << 20))
    monkeypatch.setattr(
        plan, "count_step", lambda model, batch, **_: StepMemory(2 << 20, 0, 10 * len(batch["labels"]) << 20)
    )


@pytest.mark.parametrize(
    ("settings", "total", "fix"),
    [
        ({"batch_size": 4}, 30, r"batch_size: 2 with accumulation: 2, which takes 22 MiB; or model: \{gradient_check"),
        ({"batch_size": 4, "accumulation": 3}, 14, "batch_size: 1 with accumulation: 12, which takes 12 MiB; or"),
        ({"batch_size": 4, "precision": "bf16"}, 8, r"file of --config model: \{gradient_.*; or a smaller backbone$"),
        ({"batch_size": 6, "model": {"gradient_checkpointing": True}}, 60, "batch_size: 3 .*; or precision: bf16$"),
    ],
)
def test_a_step_that_cannot_fit_is_refused_with_what_to_change(
    settings: dict[str, Any], total: int, fix: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    device_of(monkeypatch, total, total)
    said: list[str] = []

    def show(plan: Any) -> None:
        said.extend(plan.lines())
        plan.check()

    with pytest.raises(ConfigError, match=f"a step takes [46]2 MiB, and the card has {total} MiB, .*{fix}"):
        train("vela", "scenes", tmp_path, small_config(**settings), on_plan=show)
    assert said[-1] == f"the card has {total} MiB, {total + 2} MiB of them free"
    assert not any(tmp_path.iterdir())


def test_a_step_for_which_little_is_free_is_warned_of(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    device_of(monkeypatch, 400, 62)
    with pytest.warns(UserWarning, match="a step takes 62 MiB, and the card has 400 MiB, 64 MiB of them free"):
        train("vela", "scenes", tmp_path, small_config(max_steps=2))


@pytest.mark.parametrize(
    ("metric", "config", "rows", "steps", "stages"),
    [
        ("vela", small_config(epochs=3, accumulation=2), {"train": 36, "val": 24}, 9, [""]),
        ("beitscore", small_beitscore(), {"train": 16, "val": 12}, 4, ["1a", "1b", "1c", "2"]),
    ],
)
def test_a_plan_counts_rows_and_steps_and_trains_nothing(
    metric: str, config: TrainingConfig, rows: dict[str, int], steps: int, stages: list[str]
) -> None:
    plans = plan_training(metric, "scenes", config)
    assert [each.stage for each in plans] == stages
    assert (plans[0].rows, plans[0].steps) == (rows, steps)
    assert all(isinstance(each.step, StepMemory) and each.step.batch > 0 for each in plans)


def test_a_network_that_cannot_run_without_values_is_planned_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def reads_a_weight(*_: Any, **options: Any) -> None:
        raise RuntimeError("a value is read\nsecond line")

    monkeypatch.setattr(plan, "count_step", reads_a_weight)
    assert plan_training("vela", "scenes", small_config())[0].lines()[-1] == (
        "memory of a step: not known, RuntimeError: a value is read"
    )
