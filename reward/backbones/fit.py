"""Checks a configuration against its weights before a network is built and takes memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TypeVar

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from reward.checkpoints.weight_files import shape_faults
from reward.errors import CapRewardError, CheckpointError, MissingExtraError

ModuleT = TypeVar("ModuleT", bound=nn.Module)


@contextmanager
def on_meta(*, needs_transformers: bool = True) -> Iterator[None]:
    """Context in which networks are built with shapes but without memory.

    Args:
        needs_transformers: False for a network of this package alone, which saves a second.
    """
    if needs_transformers:
        # PyTorch's compiler, which this module imports, cannot start under the device "meta" in version 2.6.
        import_module("transformers.generation.utils")
    with torch.device("meta"), _Uninitialised():
        yield


@contextmanager
def float32_by_default() -> Iterator[None]:
    """Context in which networks are built in float32, whatever default dtype the user's program has set."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)


class _Uninitialised(TorchFunctionMode):
    """Leaves out `torch.nn.init`: on "meta" there is nothing to fill, and PyTorch would load its compiler for it."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(function, "__module__", None) == "torch.nn.init":
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return function(*args, **kwargs)


@contextmanager
def foreign_errors(where: str) -> Iterator[None]:
    """Turns any error of another library that reads a checkpoint into a CheckpointError.

    A package that is missing is no fault of a file, and becomes a MissingExtraError.

    Args:
        where: what is being read, for the message.
    """
    try:
        yield
    except CapRewardError:
        raise
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"{where} cannot be read, because the package {error.name!r} is not installed"
        ) from error
    except Exception as error:  # transformers, tokenizers, open_clip and peft raise many built-in errors
        if "trust_remote_code" in str(error):
            raise CheckpointError(
                f"{where} wants to run code of its own (auto_map in its configuration), which is refused. Who trusts "
                "its maker loads a judge or a policy from Python with trust_remote_code=True; metrics, configurations "
                "and commands have no such setting"
            ) from error
        reason = " ".join(str(error).strip().splitlines()[:2])
        raise CheckpointError(f"{where} cannot be read: {type(error).__name__}: {reason:.300}") from error


def leaves(settings: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted path, value) of all plain values in nested tables and lists."""
    if isinstance(settings, Mapping):
        for key, value in settings.items():
            yield from leaves(value, f"{path}.{key}" if path else str(key))
    elif isinstance(settings, (list, tuple)):
        for item in settings:
            yield from leaves(item, path)
    else:
        yield path, settings


def check_fit(
    make: Callable[[], ModuleT],
    shapes: Mapping[str, tuple[int, ...]],
    *,
    where: str,
    prefix: str = "",
    needs_transformers: bool = True,
) -> ModuleT:
    """Compares the network that a configuration describes with the header of its weights.

    Args:
        make: builds the network; it is called on the device "meta".
        shapes: {name: shape} of the weights, see `reward.checkpoints.weight_files.read_header`.
        where: what is being read, for messages.
        prefix: start of the names of the network's weights.
        needs_transformers: see `on_meta`.

    Returns:
        The network, on the device "meta".
    """
    with foreign_errors(where), on_meta(needs_transformers=needs_transformers):
        network = make()
    expected = {f"{prefix}{name}": tuple(value.shape) for name, value in network.state_dict().items()}
    stored = {name: shape for name, shape in shapes.items() if name.startswith(prefix)}
    faults = shape_faults(expected, stored)
    if faults:
        raise CheckpointError(f"{where} does not fit the weights: the file {faults}")
    return network
