"""The card that is measured, with the interface of the simulated one, and what its figures depend on."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import peft
import torch
import transformers
import trl

import reward
from tests.fake_cuda import GIB, FakeDevice

NetworkT = TypeVar("NetworkT")
LEAST = 24  # GB of a card that the stages were made for; one of 24 GB shows a little less
FIX = (
    "Run it on a machine with an NVIDIA card of 24 GB or more, with its driver and a build of PyTorch for CUDA. "
    "Without one, `make gpu SIMULATED=1` runs the stages as far as they go."
)


class Card:
    """A real card, in the place of `tests.fake_cuda.FakeDevice`."""

    name = "cuda"

    def build(self, make: Callable[[], NetworkT], dtype: torch.dtype = torch.float32) -> NetworkT:
        """A network with random weights, made on the card."""
        default = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            with torch.device(self.name):
                return make()
        finally:
            torch.set_default_dtype(default)

    @contextmanager
    def run(self) -> Iterator[None]:
        """Context after which `peak` is that of what ran in it."""
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        yield
        torch.cuda.synchronize()

    @property
    def bytes(self) -> int:
        return torch.cuda.memory_allocated()

    @property
    def peak(self) -> int:
        return torch.cuda.max_memory_allocated()


@dataclass(frozen=True)
class Place:
    """Where a stage runs.

    Args:
        simulated: without a card: sizes are counted on `FakeDevice`, and what needs values runs small on the CPU.
        folder: for files of the stage.
    """

    simulated: bool
    folder: Path

    @property
    def device(self) -> str:
        """Where networks with values run."""
        return "cpu" if self.simulated else "cuda"

    def card(self) -> Any:
        return FakeDevice() if self.simulated else Card()

    def wait(self) -> None:
        if not self.simulated:
            torch.cuda.synchronize()

    def forget_peak(self) -> None:
        """Waits; the most memory is then that of what follows."""
        if not self.simulated:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()


def what_is_missing() -> str | None:
    """Why there is no card to measure, and the fix; None if there is one."""
    if torch.cuda.is_available():
        return None
    if torch.version.cuda is None:
        reason = f"torch {torch.__version__} is a build without CUDA"
    else:
        reason = f"torch {torch.__version__}, built for CUDA {torch.version.cuda}, finds no card or no driver"
    return f"There is no GPU to measure: {reason}. {FIX}"


def facts(simulated: bool) -> dict[str, str]:
    """What is kept beside figures; those of other facts than the date's are measured anew."""
    found = {"card": "simulated"}
    if not simulated:
        properties = torch.cuda.get_device_properties(0)
        found = {
            "card": f"{torch.cuda.device_count()} x {properties.name}, {properties.total_memory / GIB:.0f} GiB",
            "driver": _asked("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader") or "unknown",
        }
    found |= {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "trl": trl.__version__,
        "peft": peft.__version__,
        "python": platform.python_version(),
        "capreward": f"{reward.__version__}, {_asked('git', 'rev-parse', '--short', 'HEAD') or 'no clone'}",
        "system": f"{sys.platform}, {platform.machine()}",
    }
    return found


def _asked(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip().partition("\n")[0]
