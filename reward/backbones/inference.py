"""The state in which a network scores: no gradients, eval mode, its own precision; and a bar for long runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from reward.errors import ConfigError

__all__ = ["number_format", "scoring_mode", "scoring_progress", "usable_device"]


def number_format(dtype: torch.dtype | str | None) -> torch.dtype | None:
    """The format of floating-point numbers that is meant, by name or as it is; None stays None.

    Raises:
        ConfigError: no such format.

    Example:
        >>> number_format("bfloat16")
        torch.bfloat16
    """
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if dtype is not None and not (isinstance(found, torch.dtype) and found.is_floating_point):
        raise ConfigError(f"dtype must be a format such as 'float32', 'bfloat16' or 'float16', got {dtype!r}")
    return found


def usable_device(device: torch.device | str | None) -> torch.device:
    """The device that is meant; None is a GPU if there is one. To be called before anything is loaded.

    Raises:
        ConfigError: no such device on this machine.

    Example:
        >>> usable_device("gpu9")
        Traceback (most recent call last):
        ...
        reward.errors.ConfigError: device 'gpu9' cannot be used: ...
    """
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(0, device=device)
        return torch.device(device)
    # whichever torch raises for a device that it has not; TypeError is for what is no device at all
    except (RuntimeError, AssertionError, ImportError, TypeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"device {str(device)!r} cannot be used: {reason:.200}") from error


@contextmanager
def scoring_mode(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Without gradients, without the caller's autocast, in eval mode; every module gets its own mode back after.

    A caller's autocast, around a whole generation say, must not change scores.

    Args:
        model: the network that scores.
        device: where it is.

    Example:
        >>> model = nn.Dropout()
        >>> with scoring_mode(model, torch.device("cpu")):
        ...     model.training, torch.is_inference_mode_enabled()
        (False, True)
        >>> model.training
        True
    """
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.inference_mode(), torch.autocast(device.type, enabled=False):
            yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def scoring_progress(name: str, total: int, shown: bool) -> Iterator[Callable[[int], None]]:
    """Gives a function to be called with the number of samples that are done; draws a bar if `shown`."""
    if not shown:
        yield lambda count: None
        return
    from rich.progress import Progress

    with Progress() as bar:
        task = bar.add_task(name, total=total)
        yield lambda count: bar.advance(task, count)
