"""The memory of a training step, counted from the shapes of its tensors."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


@dataclass(frozen=True)
class StepMemory:
    """Bytes that a training step takes at most.

    Args:
        weights: all weights and buffers.
        optimizer: gradients of the trained weights, and AdamW's two averages of them.
        batch: what the passes through the network make and keep, at their peak.
    """

    weights: int
    optimizer: int
    batch: int

    @property
    def total(self) -> int:
        return self.weights + self.optimizer + self.batch


def count_step(model: nn.Module, batch: Mapping[str, Any], *, precision: str = "fp32") -> StepMemory:
    """Counts the memory of a training step, without taking that memory and without computing.

    The forward and the backward pass run with weights that have shapes and types but no values. Not counted is what a
    device needs besides: CUDA's own context, the workspace of its kernels, and gaps between tensors. With `precision`
    bf16 it is counted as on a GPU, whose autocast keeps LayerNorm in float32; a CPU then takes less.

    Args:
        model: a network on the CPU whose output has `scores` of shape (N,); it is counted as it trains.
        batch: from the metric's collator.
        precision: as in `reward.training.config.TrainingConfig`.

    Example:
        >>> from types import SimpleNamespace
        >>> class Net(nn.Linear):
        ...     def forward(self, x):
        ...         return SimpleNamespace(scores=super().forward(x).squeeze(-1))
        >>> count_step(Net(1000, 1, bias=False), {"x": torch.zeros(8, 1000)}).total > 4 * 4 * 1000
        True
    """
    mode, counter = FakeTensorMode(allow_non_fake_inputs=True), _Counter()
    named = [*model.named_parameters(), *model.named_buffers()]
    empty = {f"network.{name}": _without_values(mode, value) for name, value in named}
    counter.ignore([*empty.values(), *(value for _, value in named)])
    # The batch keeps its values, because networks read lengths from it. What meets a weight has none.
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    was_training = model.training
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=precision != "fp32")
    try:
        with counter, autocast, _NormsInFloat32() if precision != "fp32" else nullcontext():
            functional_call(_Passes(model).train(), empty, (inputs,))
    finally:
        model.train(was_training)
    weights, trained = _bytes(model.parameters()), _bytes(p for p in model.parameters() if p.requires_grad)
    weights += _bytes(model.buffers())
    # the passes have made the gradients, too
    return StepMemory(weights, 3 * trained, _bytes(inputs.values()) + max(0, counter.peak - trained))


class _Passes(nn.Module):
    """Forward and backward pass in one, so that layers that are computed again see the same weights."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Mapping[str, torch.Tensor]) -> None:
        self.network(**inputs).scores.float().sum().backward()


class _Counter(TorchDispatchMode):
    """Adds up the memory of all tensors that operations make, until they are freed."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.peak = 0
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()

    def ignore(self, tensors: Sequence[torch.Tensor]) -> None:
        for value in tensors:
            self._seen.add(value.untyped_storage())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for value in tree_leaves(out):
            if isinstance(value, torch.Tensor) and (storage := value.untyped_storage()) not in self._seen:
                self._seen.add(storage)
                self.bytes += storage.nbytes()
                self.peak = max(self.peak, self.bytes)
                weakref.finalize(storage, self._free, storage.nbytes())
        return out

    def _free(self, size: int) -> None:
        self.bytes -= size


class _NormsInFloat32(TorchFunctionMode):
    """Does what a GPU's autocast does and a CPU's does not: LayerNorm is computed, and kept, in float32."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.functional.layer_norm:
            args = [value.float() if isinstance(value, torch.Tensor) else value for value in args]
        return func(*args, **(kwargs or {}))


def _without_values(mode: FakeTensorMode, value: torch.Tensor) -> torch.Tensor:
    return mode.from_tensor(value).detach().requires_grad_(value.requires_grad)


def _bytes(tensors: Any) -> int:
    return sum(value.numel() * value.element_size() for value in tensors if isinstance(value, torch.Tensor))
