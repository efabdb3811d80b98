"""Loads networks and tokenizers of transformers, without running their code and without random weights."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

from reward.backbones.fit import foreign_errors, leaves, on_meta
from reward.checkpoints.folders import unsharded_loading
from reward.checkpoints.weight_files import read_header, refuse_stored_integers
from reward.errors import CheckpointError, ConfigError

# The value head of TRL, which LLaMA-Factory keeps in a file of its own, and that of ...ForSequenceClassification.
REWARD_HEADS = ("v_head.summary.", "score.")
_VALUE_HEAD = "value_head.safetensors"
_COUNTED = (".position_ids", ".inv_freq")  # older files have them; they are computed, not learned


def load_pretrained(
    source: str | os.PathLike[str],
    model_class: Any,
    reader_class: Any,
    kind: str,
    *,
    dtype: torch.dtype | str | None = None,
    trust_remote_code: bool = False,
    strict: bool = False,
    apart: tuple[str, ...] = (),
) -> tuple[Any, Any]:
    """Loads a model of transformers with its tokenizer or processor.

    Args:
        reader_class: for example `transformers.AutoTokenizer`.
        source, model_class, kind, dtype, trust_remote_code, strict, apart: see `load_network`, also for what it raises.
    """
    trust = bool(trust_remote_code)
    model = load_network(source, model_class, kind, dtype=dtype, trust_remote_code=trust, strict=strict, apart=apart)
    with foreign_errors(
        f"{kind} {os.fspath(source)!r}: its tokenizer or processor (tokenizer*.json, *processor*.json, "
        "chat_template.jinja)"
    ):
        reader = reader_class.from_pretrained(source, trust_remote_code=trust)
    return model, reader


def load_network(
    source: str | os.PathLike[str],
    model_class: Any,
    kind: str,
    *,
    dtype: torch.dtype | str | None = None,
    trust_remote_code: bool = False,
    strict: bool = False,
    apart: tuple[str, ...] = (),
    **options: Any,
) -> Any:
    """Loads a model of transformers, and makes sure that all its weights come from the source.

    Args:
        source: folder or Hub id.
        model_class: for example `transformers.AutoModel`, or the class of a network.
        kind: name of the model in messages.
        dtype: dtype of the weights.
        trust_remote_code: whether Python files of the source may run. They can do whatever you can do.
        strict: whether weights that the network does not have are refused.
        apart: how the names of weights begin that may be in the source or in the network alone: those of another head.
        options: further arguments of `from_pretrained`.
    """
    from transformers import AutoConfig, PreTrainedConfig

    where = f"{kind} {os.fspath(source)!r}"
    trust = bool(trust_remote_code)
    _refuse_two_sets(Path(source), where)
    with foreign_errors(f"{where}: its config.json"), unsharded_loading():
        plain, _ = PreTrainedConfig.get_config_dict(source)
        if not trust:
            _refuse_kernels(plain, where)
        config = AutoConfig.from_pretrained(source, trust_remote_code=trust)
    if Path(source).is_dir() and not trust and not hasattr(config, "quantization_config"):
        _refuse_much_larger(config, model_class, weight_files(source), where)
    # this also reads generation_config.json, and some values of config.json for the first time
    reading = foreign_errors(f"{where}: its weights, config.json or generation_config.json")
    with reading, unsharded_loading(), _without_report() if strict else nullcontext():
        model, report = model_class.from_pretrained(
            source, dtype=dtype or torch.float32, trust_remote_code=trust, output_loading_info=True, **options
        )
    refuse_unfit(where, missing=[name for name in report["missing_keys"] if not name.startswith(apart)])
    is_quantised = hasattr(config, "quantization_config")
    if not is_quantised:  # transformers knows how to read what its quantisation wrote
        refuse_stored_integers(weight_files(source), model, where=where)
    if strict:
        # quantisation keeps more than one tensor for a weight, and transformers reads them
        owners = tuple({name.rpartition(".")[0] + "." for name in model.state_dict()}) if is_quantised else ()
        beside = Path(source) / _VALUE_HEAD
        names = [*report["unexpected_keys"], *(read_header(beside).shapes if beside.is_file() else ())]
        left = [name for name in names if not (name.startswith(owners + apart) or name.endswith(_COUNTED))]
        refuse_unfit(where, left=left)
    dropped = sorted(name for name in report["unexpected_keys"] if _is_of_a_layer(name, model))
    if dropped:
        raise CheckpointError(
            f"{where} has weights of layers that its config.json leaves out ({', '.join(dropped[:3])}, ...); "
            "refusing to use a part of a network"
        )
    return model


@contextmanager
def _without_report() -> Iterator[None]:
    """Context in which transformers does not list weights that are missing and left over, which are refused below."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)


def _refuse_two_sets(folder: Path, where: str) -> None:
    """Refuses a folder with weights in one file and in shards: transformers leaves the one when it saves the other.

    It would read the one file, which may be the older; an index whose shards are gone is no second set.
    """
    for name in ("model.safetensors", "pytorch_model.bin"):
        shards = sorted(folder.glob(name.replace(".", "-*-of-*.")))
        if shards and (folder / name).is_file():
            raise CheckpointError(
                f"{where} has two sets of weights, {name} and {len(shards)} shards ({shards[0].name}, ...), and does "
                f"not say which is the newer: delete {name}, or the shards and {name}.index.json"
            )


def _refuse_much_larger(config: Any, model_class: Any, files: Iterable[Path], where: str) -> None:
    """Refuses a configuration of a network with more than twice the numbers that are stored, before it takes memory.

    A part that is null stands for the library's usual size, which is billions of numbers.
    """
    shapes = [shape for file in files if file.suffix == ".safetensors" for shape in read_header(file).shapes.values()]
    if not shapes:
        return
    with foreign_errors(f"{where}: its config.json"), unsharded_loading(), on_meta():
        network = getattr(model_class, "from_config", model_class)(config)
    needed, stored = sum(parameter.numel() for parameter in network.parameters()), sum(map(math.prod, shapes))
    if needed > 2 * stored:
        raise CheckpointError(
            f"{where}: its config.json asks for a network of {needed:,} numbers, but its weights are {stored:,}: "
            "a part of the configuration is missing or of another model"
        )


def weight_files(source: str | os.PathLike[str], *, value_head: bool = False) -> list[Path]:
    """The files of weights that transformers has loaded from a folder or from its copy of a Hub repository.

    Args:
        source: folder or Hub id.
        value_head: whether the file of a value head beside them is one.
    """
    from transformers.utils import cached_file

    config = Path(source) / "config.json" if Path(source).is_dir() else cached_file(source, "config.json")
    assert config is not None  # it has been read
    folder = Path(config).parent
    files = sorted(folder.glob("model*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    return [*files, *folder.glob(_VALUE_HEAD)] if value_head else files


def refuse_unfit(where: str, *, missing: Iterable[str] = (), left: Iterable[str] = ()) -> None:
    """Raises CheckpointError if weights are missing, which would be random, or left over, which would do nothing."""
    for names, fault, refusal in (
        (sorted(missing), "lacks {} weights that its config.json asks for", "use random ones"),
        (sorted(left), "has {} weights that the network of its config.json has no place for", "leave them out"),
    ):
        if names:
            is_head = fault.startswith("has") and any(name.startswith(REWARD_HEADS) for name in names)
            hint = ". With such a head it is a reward model: -m vlmreward=FOLDER" if is_head else ""
            told = f"{fault.format(len(names))} ({', '.join(names[:5])}); refusing to {refusal}{hint}"
            raise CheckpointError(f"{where} {told}")


def _is_of_a_layer(name: str, model: nn.Module) -> bool:
    """Whether a weight has the name of a layer of the model but for its number; unused heads do not."""
    alike = {re.sub(r"\.\d+\.", ".N.", each) for each in model.state_dict() if re.search(r"\.\d+\.", each)}
    return re.sub(r"\.\d+\.", ".N.", name).endswith(tuple(alike))


def build_decoder(architecture: Mapping[str, Any]) -> nn.Module:
    """Builds a language model without head and with random weights, which the caller must load or train.

    Args:
        architecture: a configuration of transformers with its `model_type`.
    """
    from transformers import AutoConfig, AutoModel

    settings = dict(architecture)
    with unsharded_loading():
        _refuse_kernels(settings, "the language model")
        config = AutoConfig.for_model(settings.pop("model_type"), **settings)
        return AutoModel.from_config(config, trust_remote_code=False)


def read_tokenizer(folder: str | os.PathLike[str]) -> Any:
    """Reads the tokenizer of a checkpoint folder: `tokenizer.json` and `tokenizer_config.json`."""
    from transformers import PreTrainedTokenizerFast

    path = Path(folder) / "tokenizer.json"
    if not path.is_file():
        raise CheckpointError(f"{str(folder)!r} has no tokenizer.json, which its configuration needs")
    with foreign_errors(f"{str(path)!r} (or tokenizer_config.json beside it)"):
        # not AutoTokenizer, which would look for a model_type in config.json
        return PreTrainedTokenizerFast.from_pretrained(folder, trust_remote_code=False)


def _refuse_kernels(settings: Mapping[str, Any], where: str) -> None:
    """Refuses what lies in other repositories: attention kernels, which would be run, and networks of timm."""
    for path, value in leaves(settings):
        if path.rpartition(".")[2] == "architecture" and (":" in str(value) or "/" in str(value)):
            raise CheckpointError(f"{where} asks for {path}={value!r}, which is a network outside of the checkpoint")
        if path.endswith("_implementation") and "/" in str(value):
            raise CheckpointError(
                f"{where} asks for {path}={value!r}, which is code from the Hub; remove it from the configuration"
            )


def parse_dtype(dtype: torch.dtype | str | None) -> torch.dtype | None:
    """The floating-point dtype of a name; a dtype and None stay as they are.

    Example:
        >>> parse_dtype("bfloat16")
        torch.bfloat16
    """
    parsed = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if dtype is not None and not (isinstance(parsed, torch.dtype) and parsed.is_floating_point):
        raise ConfigError(f"dtype must be such as 'float32', 'bfloat16' or 'float16', got {dtype!r}")
    return parsed


def usable_device(device: torch.device | str | None) -> torch.device:
    """The device of a name; None is the GPU if there is one. Call it before anything is loaded.

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
    # torch raises different errors for a missing device; TypeError is for a value that is not a device
    except (RuntimeError, AssertionError, ImportError, TypeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"device {str(device)!r} cannot be used: {reason:.200}") from error
