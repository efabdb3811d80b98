"""Weights in files, and in networks: read without running code, and loaded only where all of them fit."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from reward.errors import CheckpointError, first_line

if TYPE_CHECKING:
    from torch import Tensor, nn

# The value head of TRL, which LLaMA-Factory keeps in a file of its own, and that of ...ForSequenceClassification.
REWARD_HEADS = ("v_head.summary.", "score.")


class Header(NamedTuple):
    """What a safetensors file says before its weights: {name: shape}, {name: type, such as `BF16`}, and metadata."""

    shapes: dict[str, tuple[int, ...]]
    types: dict[str, str]
    metadata: dict[str, str]


def read_header(path: str | os.PathLike[str]) -> Header:
    """The header of a safetensors file, in the file's order. No weights are read."""
    header = Header({}, {}, {})
    with _opened(path, "np") as file:
        for key in file.keys():  # noqa: SIM118  # it is no dict
            header.shapes[key] = tuple(file.get_slice(key).get_shape())
            header.types[key] = file.get_slice(key).get_dtype()
        header.metadata.update(file.metadata() or {})
    return header


@contextmanager
def _opened(path: str | os.PathLike[str], framework: str) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework) as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{str(path)!r} is not a readable safetensors file: {error}") from error


def load_tensors(path: str | os.PathLike[str], *, begin: str | tuple[str, ...] = "") -> dict[str, Tensor]:
    """Reads named tensors onto the CPU without running any code of the file.

    Args:
        path: `.safetensors`, or a PyTorch file (`.pt`, `.pth`, `.bin`), which may hold nothing but tensors and plain
            containers. The state dict may be under the key `state_dict` or `model`.
        begin: only tensors whose names begin so are read.

    Raises:
        CheckpointError: the file is missing, damaged, of another kind, or a pickle that would run code.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"weights file {str(path)!r} does not exist")
    if path.suffix == ".safetensors":
        with _opened(path, "pt") as file:
            return {key: file.get_tensor(key) for key in file.keys() if key.startswith(begin)}  # noqa: SIM118
    if path.suffix in (".pt", ".pth", ".bin"):
        return {key: value for key, value in _load_pickled(path).items() if key.startswith(begin)}
    raise CheckpointError(f"{str(path)!r} has an unknown suffix; known: .safetensors, .pt, .pth, .bin")


def _load_pickled(path: Path) -> dict[str, Tensor]:
    import pickle

    import torch

    try:
        # With `weights_only`, PyTorch refuses to call anything but what makes tensors and plain containers.
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{str(path)!r} is damaged or holds more than tensors, and is refused because loading it could run code: "
            f"{first_line(error)} If you trust its maker, convert it to .safetensors first."
        ) from error
    except (OSError, RuntimeError, EOFError, ValueError) as error:
        raise CheckpointError(f"{str(path)!r} is not a readable PyTorch file: {first_line(error)}") from error
    # Trainers put the weights beside their own state.
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
        where: what holds the tensors, for messages.

    Raises:
        CheckpointError: the keys do not fit, or integers are given for floats.
    """
    # All is checked before anything is loaded.
    state = module.state_dict()
    needed = {key: tuple(tensor.shape) for key, tensor in state.items()}
    faults = shape_faults(needed, {key: tuple(tensor.shape) for key, tensor in tensors.items()})
    if faults:
        raise CheckpointError(f"{where} {faults}. Refusing to score with wrong weights.")
    refuse_integers({key: tensors[key] for key, value in state.items() if value.is_floating_point()}, where=where)
    module.load_state_dict(dict(tensors), strict=True)


def refuse_integers(tensors: Mapping[str, Tensor], *, where: str) -> None:
    """Refuses weights that are no floats, as those of a quantised model: read as floats they are wrong."""
    _refuse_types({key: str(value.dtype) for key, value in tensors.items() if not value.is_floating_point()}, where)


def refuse_stored_integers(files: Iterable[Path], module: nn.Module, *, where: str) -> None:
    """The same for `.safetensors` and PyTorch files that another library has loaded into a network."""
    # The library may have renamed what stands before the last name. Integers whose last name is no float's, such as
    # `position_ids`, are no weights.
    last_names = {key.rpartition(".")[2] for key, value in module.state_dict().items() if value.is_floating_point()}
    integers: dict[str, str] = {}
    for file in files:
        if file.suffix == ".safetensors":
            types = read_header(file).types
        else:
            types = {key: str(tensor.dtype) for key, tensor in load_tensors(file).items()}
        for key, kind in types.items():
            # Headers write F16, BF16, F32, F8_E4M3, I8, U8, BOOL; torch writes torch.float16 and torch.int8.
            is_float = kind.startswith(("F", "BF", "torch.float", "torch.bfloat"))
            if not is_float and key.rpartition(".")[2] in last_names:
                integers[key] = kind
    _refuse_types(integers, where)


def _refuse_types(integers: Mapping[str, str], where: str) -> None:
    if integers:
        faults = _list_keys("has integers for", [f"{key} is {kind}" for key, kind in integers.items()])
        raise CheckpointError(
            f"{where} {faults}, where a network has floats. Quantised weights cannot be used: give those they were "
            "made from"
        )


def shape_faults(needed: Mapping[str, tuple[int, ...]], shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Describes how some tensors differ from the needed ones, for a message; empty if they fit.

    Example:
        >>> shape_faults({"weight": (2, 3), "bias": (2,)}, {"weight": (2, 4)})
        'lacks 1 key (bias); has mis-shaped 1 key (weight is (2, 4), not (2, 3))'
    """
    missing = [key for key in needed if key not in shapes]
    unknown = [key for key in shapes if key not in needed]
    wrong = [key for key in needed if key in shapes and shapes[key] != needed[key]]
    faults = [
        _list_keys("lacks", missing),
        _list_keys("has unknown", unknown),
        _list_keys("has mis-shaped", [f"{key} is {shapes[key]}, not {needed[key]}" for key in wrong]),
    ]
    return "; ".join(filter(None, faults))


def _list_keys(verb: str, keys: list[str]) -> str:
    """The verb with the number of keys and the first five; empty without any."""
    if not keys:
        return ""
    noun = "key" if len(keys) == 1 else "keys"
    names = ", ".join(keys[:5])
    if len(keys) > 5:
        names += f", and {len(keys) - 5} more"
    return f"{verb} {len(keys)} {noun} ({names})"
