"""Weights in files, and in networks: read without running code, and loaded only where all of them fit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from reward.errors import CheckpointError, first_line

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["load_strict", "load_tensors", "shape_faults"]


def load_tensors(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Reads named tensors onto the CPU without running any code of the file.

    Args:
        path: `.safetensors`, or a PyTorch file (`.pt`, `.pth`, `.bin`), which may hold nothing but tensors and plain
            containers. The state dict may be under the key `state_dict` or `model`.

    Raises:
        CheckpointError: the file is missing, damaged, of another kind, or a pickle that would run code.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"weights file {str(path)!r} does not exist")
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(path)
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{str(path)!r} is not a readable safetensors file: {error}") from error
    if path.suffix in (".pt", ".pth", ".bin"):
        return _load_pickled(path)
    raise CheckpointError(f"{str(path)!r} has an unknown suffix; known: .safetensors, .pt, .pth, .bin")


def _load_pickled(path: Path) -> dict[str, Tensor]:
    import pickle

    import torch

    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{str(path)!r} is damaged or holds more than tensors, and is refused because loading it could run code: "
            f"{first_line(error)} If you trust its maker, convert it to .safetensors first."
        ) from error
    except (OSError, RuntimeError, EOFError, ValueError) as error:
        raise CheckpointError(f"{str(path)!r} is not a readable PyTorch file: {first_line(error)}") from error
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(isinstance(value, torch.Tensor) for value in content.values()):
        raise CheckpointError(f"{str(path)!r} does not hold a dict of tensors")
    return dict(content)


def load_strict(module: nn.Module, tensors: Mapping[str, Tensor], *, where: str) -> None:
    """Loads tensors into a module. Every key must be present and have the right shape, and none may be left over.

    If a key does not fit, the module is not changed: no network ever scores with random weights.

    Args:
        module: its `state_dict()` states the keys and shapes.
        tensors: {key: tensor}; cast to the module's dtypes.
        where: the source of the tensors, for messages.

    Raises:
        CheckpointError: the keys do not fit, or the module is on the device "meta".
    """
    needed = {key: tuple(value.shape) for key, value in module.state_dict().items()}
    faults = shape_faults(needed, {key: tuple(value.shape) for key, value in tensors.items()})
    if faults:
        raise CheckpointError(f"{where} {faults}. Refusing to score with wrong weights.")
    empty = [name for name, parameter in module.named_parameters() if parameter.is_meta]
    if empty:
        raise CheckpointError(f"{where}: {_listed('the network has no memory for', empty)}; build it on a real device")
    module.load_state_dict(dict(tensors), strict=True)


def shape_faults(needed: Mapping[str, tuple[int, ...]], given: Mapping[str, tuple[int, ...]]) -> str:
    """Describes how some tensors differ from the needed ones, for a message; empty if they fit.

    Example:
        >>> shape_faults({"weight": (2, 3), "bias": (2,)}, {"weight": (2, 4)})
        'lacks 1 key (bias); has mis-shaped 1 key (weight is (2, 4), not (2, 3))'
    """
    shapes = [
        f"{key} is {given[key]}, not {shape}" for key, shape in needed.items() if key in given and given[key] != shape
    ]
    faults = [
        _listed("lacks", [key for key in needed if key not in given]),
        _listed("has unknown", [key for key in given if key not in needed]),
        _listed("has mis-shaped", shapes),
    ]
    return "; ".join(filter(None, faults))


def _listed(verb: str, keys: list[str]) -> str:
    if not keys:
        return ""
    more = f", and {len(keys) - 5} more" if len(keys) > 5 else ""
    return f"{verb} {len(keys)} key{'s' * (len(keys) > 1)} ({', '.join(keys[:5])}{more})"
