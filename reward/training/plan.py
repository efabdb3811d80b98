"""What a training run will take, told before it starts: rows, steps and memory."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from reward.errors import ConfigError
from reward.training.config import TrainingConfig
from reward.training.memory import DeviceMemory, StepMemory, count_step, device_memory
from reward.training.rows import TrainingRows

__all__ = ["TrainingPlan", "make_plan"]

_TIGHT = 0.9  # CUDA's context, workspaces and gaps, which are not counted, take some of the rest


@dataclass(frozen=True)
class TrainingPlan:
    """Rows, steps and memory of a run, or of one of its stages.

    Args:
        config: its settings.
        rows: {part: number of rows}: ratings, one aspect each, or captions of pairs.
        steps: most optimizer steps.
        step: memory of one step with the longest captions; or a text, why it cannot be counted.
        device: memory of the device; None where it is not known.
        smaller: a smaller batch size that fits, with its memory, if the one of the settings does not.
        stage: name of the stage, if there are stages.
    """

    config: TrainingConfig
    rows: Mapping[str, int]
    steps: int
    step: StepMemory | str
    device: DeviceMemory | None
    smaller: tuple[int, StepMemory] | None = None
    stage: str = ""

    def lines(self) -> list[str]:
        """What a command prints of it."""
        title = f"stage {self.stage}: " if self.stage else ""
        a_step = self.config.batch_size * self.config.accumulation
        lines = [f"{title}{', '.join(f'{part} {count:,}' for part, count in self.rows.items())} rows"]
        lines.append(f"at most {self.steps:,} steps, each of {a_step:,} rows a process")
        if isinstance(self.step, str):
            return [*lines, f"memory of a step: not known, {self.step}"]
        parts = ("weights", self.step.weights), ("optimizer", self.step.optimizer), ("batch", self.step.batch)
        shares = ", ".join(f"{name} {_size(count)}" for name, count in parts)
        lines.append(f"memory of a step with the longest captions, as counted: {_size(self.step.total)} ({shares})")
        return lines if self.device is None else [*lines, _has(self.device)]

    def check(self) -> None:
        """Warns if the memory that is free will hardly be enough.

        Raises:
            ConfigError: the device has less memory in all.
        """
        if isinstance(self.step, str) or self.device is None or self._fits(self.step):
            return
        problem = f"a step takes {_size(self.step.total)}, and {_has(self.device)}. {self._way_out()}"
        if self.step.total > self.device.total:
            raise ConfigError(problem)
        warnings.warn(problem, stacklevel=2)

    def _fits(self, step: StepMemory) -> bool:
        return self.device is None or step.total <= _TIGHT * self.device.free

    def _way_out(self) -> str:
        fixes = []
        if self.smaller is not None:
            size, memory = self.smaller
            times = self.config.accumulation * self.config.batch_size // size
            fixes.append(f"batch_size: {size} with accumulation: {times}, which takes {_size(memory.total)}")
        if not self.config.model.get("gradient_checkpointing"):
            fixes.append("model: {gradient_checkpointing: true}, which computes layers again instead of keeping them")
        if self.config.precision == "fp32":
            fixes.append("precision: bf16")
        if self.smaller is None:
            fixes.append("a smaller backbone")
        return f"Set in the file of --config {'; or '.join(fixes)}"


def make_plan(
    model: nn.Module,
    collate: Callable[[Sequence[Mapping[str, Any]]], dict[str, Any]],
    rows: TrainingRows,
    config: TrainingConfig,
    *,
    device: torch.device,
    processes: int = 1,
) -> TrainingPlan:
    """The plan of a run whose rows and network are ready.

    Args:
        model: the network, on the CPU.
        collate: makes a batch of rows.
        device: where it will be trained.
        processes: how many train together, each with a batch.
    """

    def count(size: int) -> StepMemory:
        counted = count_step(model, collate(rows.longest(size)), precision=config.precision)
        more = counted.optimizer // 3 if processes > 1 else 0  # gradients on their way between processes
        return StepMemory(counted.weights, counted.optimizer + more, counted.batch)

    captions = sum(rows.per_epoch().values()) * (2 if config.loss == "bce" else 1)
    a_step = config.batch_size * config.accumulation * processes
    counts = {part: len(own) for part, own in rows.parts().items()}
    steps = config.max_steps or config.epochs * math.ceil(captions / a_step)
    memory = device_memory(device)
    try:
        step = count(config.batch_size)
    except ConfigError:
        raise
    except Exception as error:  # a network may do what cannot be done without values; it can be trained all the same
        return TrainingPlan(config, counts, steps, f"{type(error).__name__}: {error}".splitlines()[0], memory)
    if memory is not None and device.type == "cpu":
        memory = replace(memory, free=memory.free + step.weights)  # they are there already
    plan = TrainingPlan(config, counts, steps, step, memory)
    least = 2 if config.loss == "bce" else 1
    size = config.batch_size
    while not plan._fits(step) and size % (2 * least) == 0:
        size //= 2
        if plan._fits(smaller := count(size)):
            return replace(plan, smaller=(size, smaller))
    return plan


def _has(device: DeviceMemory) -> str:
    return f"{device.name} has {_size(device.total)}, {_size(device.free)} of them free"


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**29 else f"{count / 2**20:.0f} MiB"
