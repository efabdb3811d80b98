"""verl's way to a new device, used for none: VERL_USE_EXTERNAL_MODULES=verl_on_cpu, VERL_PLATFORM=cpu."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry
from verl.utils import distributed

__all__ = ["NoAccelerator"]

# By default verl asks torch for "cpu:gloo" and "DEVICE:BACKEND", and torch refuses a device that comes twice.
distributed.initialize_global_process_group_ray = partial(
    distributed.initialize_global_process_group_ray, backend="cpu:gloo"
)

if "vllm._custom_ops" in sys.modules:  # a process of vLLM
    # oneDNN's layers pack their weights and drop them, so that no new ones can be loaded.
    sys.modules["vllm._custom_ops"]._supports_onednn = False


def _memory_of_nothing() -> ModuleType:
    """As much of `torch.cuda` as verl asks of a device."""
    module = ModuleType("nothing")
    for name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"):
        setattr(module, name, lambda *_: 0)
    for name in ("empty_cache", "synchronize", "set_device", "reset_peak_memory_stats", "ipc_collect"):
        setattr(module, name, lambda *_: None)
    module.mem_get_info = lambda *_: (0, 1)
    module.is_available = lambda: False
    module.current_device = lambda: "cpu"
    module.device_count = lambda: 1
    module.get_device_name = lambda *_: "cpu"
    return module


@PlatformRegistry.register(platform="cpu")
class NoAccelerator(PlatformBase):
    """torch on the CPU, gloo, and Ray's resource GPU, of which a test starts Ray with one that is not there."""

    device_name = "cpu"
    vendor_name = "none"
    device_module = _memory_of_nothing()

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None: ...

    def synchronize(self, device_index: int | None = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None: ...
