"""Work and traffic of a run, counted as PyTorch dispatches it, and what this machine can do of both at most."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.benchmarks.measuring import measure_seconds

__all__ = ["count_bytes", "least_seconds", "measured_peaks"]


class _Traffic(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not func.is_view:
            self.bytes += sum(
                value.numel() * value.element_size()
                for value in tree_leaves((args, kwargs, out))
                if isinstance(value, torch.Tensor)
            )
        return out


@contextmanager
def count_bytes() -> Iterator[Any]:
    """Context that counts the bytes of the inputs and outputs of all operations; gives a function that returns them.

    That is what memory moves if no operation is fused with the next and no cache helps.

    Example:
        >>> with count_bytes() as moved:
        ...     _ = torch.zeros(2, 3) @ torch.zeros(3, 4)
        >>> moved() == 4 * (6 + 12) + 4 * (6 + 12 + 8)
        True
    """
    with _Traffic() as traffic:
        yield lambda: traffic.bytes


def measured_peaks(
    device: str, *, side: int = 1536, repeats: int = 5, dtype: torch.dtype = torch.float32
) -> tuple[float, float]:
    """The most FLOP/s of a matrix product of a dtype and bytes/s of a copy that this machine reaches."""
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    source = torch.empty(2**26, dtype=torch.float32, device=device)
    target = torch.ones_like(source)
    seconds = measure_seconds({"product": lambda: a @ b, "copy": lambda: target.copy_(source)}, repeats, device)
    return 2 * side**3 / min(seconds["product"]), 2 * 4 * len(source) / min(seconds["copy"])


def least_seconds(flops: float, moved: float, peak: float, bandwidth: float) -> float:
    """The roofline: no run of this work is faster on a machine with these peaks."""
    return max(flops / peak, moved / bandwidth)
