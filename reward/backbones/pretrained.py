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
from reward.checkpoints.folders import CONFIG_FILE, unsharded_loading
from reward.checkpoints.weight_files import REWARD_HEADS, read_header, refuse_stored_integers
from reward.errors import CheckpointError, ConfigError

VALUE_HEAD = "value_head.safetensors"
_COMPUTED = (".position_ids", ".inv_freq")  # tensors of older files that are computed, not learned
_LAYER_NUMBER = re.compile(r"\.\d+\.")


def load_pretrained(
    checkpoint: str | os.PathLike[str],
    model_class: Any,
    reader_class: Any,
    kind: str,
    *,
    trust_remote_code: bool = False,
    **options: Any,
) -> tuple[Any, Any]:
    """Loads a model of transformers with its tokenizer or processor.

    Args:
        reader_class: of the tokenizer or processor, for example `transformers.AutoTokenizer`.
        checkpoint, model_class, kind, trust_remote_code, options: see `load_network`, also for what it raises.
    """
    model = load_network(checkpoint, model_class, kind, trust_remote_code=trust_remote_code, **options)
    files = "tokenizer*.json, *processor*.json, chat_template.jinja"
    with foreign_errors(f"{kind} {os.fspath(checkpoint)!r}: its tokenizer or processor ({files})"):
        reader = reader_class.from_pretrained(checkpoint, trust_remote_code=bool(trust_remote_code))
    return model, reader


def load_network(
    checkpoint: str | os.PathLike[str],
    model_class: Any,
    kind: str,
    *,
    dtype: torch.dtype | str | None = None,
    trust_remote_code: bool = False,
    strict: bool = False,
    apart: tuple[str, ...] = (),
    **options: Any,
) -> Any:
    """Loads a model of transformers, and makes sure that all its weights come from the checkpoint.

    Args:
        checkpoint: folder or Hub id.
        model_class: for example `transformers.AutoModel`, or the class of a network.
        kind: name of the model in messages.
        dtype: dtype of the weights; None is float32.
        trust_remote_code: whether Python files of the checkpoint may run. They can do whatever you can do.
        strict: whether weights that the network does not have are refused.
        apart: how the names of weights begin that may be in the checkpoint or the network alone: those of another head.
        options: further arguments of `from_pretrained`.

    Raises:
        CheckpointError: files are missing or broken, do not fit each other, or would run code.
    """
    from transformers import AutoConfig, PreTrainedConfig

    where = f"{kind} {os.fspath(checkpoint)!r}"
    trust = bool(trust_remote_code)
    # What the files show is checked before transformers builds anything, and what it did is checked afterwards.
    _refuse_two_sets(Path(checkpoint), where)
    _refuse_unconfigured(Path(checkpoint), where)
    with foreign_errors(f"{where}: its config.json"), unsharded_loading():
        settings, _ = PreTrainedConfig.get_config_dict(checkpoint)
        if not trust:
            _refuse_kernels(settings, where)
        config = AutoConfig.from_pretrained(checkpoint, trust_remote_code=trust)
    # What quantisation wrote is of other types and sizes than the network, and transformers knows how to read it.
    is_quantised = hasattr(config, "quantization_config")
    if Path(checkpoint).is_dir() and not trust and not is_quantised:
        _refuse_much_larger(config, model_class, weight_files(checkpoint), where)
    # This also reads generation_config.json, and some values of config.json for the first time.
    errors = foreign_errors(f"{where}: its weights, config.json or generation_config.json")
    silence = _without_report() if strict else nullcontext()
    with errors, unsharded_loading(), silence:
        model, report = model_class.from_pretrained(
            checkpoint, dtype=dtype or torch.float32, trust_remote_code=trust, output_loading_info=True, **options
        )
    # transformers fills what is missing with random numbers, and only warns.
    refuse_unfit(where, missing=[name for name in report["missing_keys"] if not name.startswith(apart)])
    if not is_quantised:
        refuse_stored_integers(weight_files(checkpoint), model, where=where)
    if strict:
        refuse_unfit(where, left=_left_over(report["unexpected_keys"], checkpoint, model, is_quantised, apart))
    _refuse_layers_left_out(report["unexpected_keys"], model, where)
    return model


def _refuse_unconfigured(folder: Path, where: str) -> None:
    """Refuses a folder without a config.json, such as the output folder of a trainer, and says what it holds."""
    if not folder.is_dir() or (folder / CONFIG_FILE).is_file():
        return
    content = ", ".join(sorted(path.name for path in folder.glob("checkpoint-*"))) or "no checkpoint-*"
    if (folder / "adapter_config.json").is_file():
        content = "an adapter: write model.merge_and_unload().save_pretrained(FOLDER), and name that folder"
    raise CheckpointError(f"{where} has no {CONFIG_FILE}; it holds {content}")


def _left_over(
    unexpected: Iterable[str],
    checkpoint: str | os.PathLike[str],
    model: nn.Module,
    is_quantised: bool,
    apart: tuple[str, ...],
) -> list[str]:
    """Names of weights that the checkpoint has and the network does not, but for those of a head that is read apart."""
    names = list(unexpected)
    value_head = Path(checkpoint) / VALUE_HEAD
    if value_head.is_file():
        names += read_header(value_head).shapes
    beginnings = apart
    if is_quantised:  # which keeps more than one tensor for a weight
        beginnings += tuple({name.rpartition(".")[0] + "." for name in model.state_dict()})
    return [name for name in names if not name.startswith(beginnings) and not name.endswith(_COMPUTED)]


def _refuse_layers_left_out(unexpected: Iterable[str], model: nn.Module, where: str) -> None:
    """Refuses weights that have the name of a layer of the model but for its number; unused heads are none."""
    numbered = [name for name in model.state_dict() if _LAYER_NUMBER.search(name)]
    layers = tuple({_LAYER_NUMBER.sub(".N.", name) for name in numbered})
    dropped = sorted(name for name in unexpected if _LAYER_NUMBER.sub(".N.", name).endswith(layers))
    if dropped:
        raise CheckpointError(
            f"{where} has weights of layers that its config.json leaves out ({', '.join(dropped[:3])}, ...); "
            "refusing to use a part of a network"
        )


@contextmanager
def _without_report() -> Iterator[None]:
    """Context in which transformers does not list weights that are missing and left over: here they are refused."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)


def _refuse_two_sets(folder: Path, where: str) -> None:
    """Refuses a folder with weights in one file and in shards: transformers would read the one file."""
    # It leaves the one when it saves the other, so the file may be the older. An index without shards is no second set.
    for name in ("model.safetensors", "pytorch_model.bin"):
        shards = sorted(folder.glob(name.replace(".", "-*-of-*.")))
        if shards and (folder / name).is_file():
            raise CheckpointError(
                f"{where} has two sets of weights, {name} and {len(shards)} shards ({shards[0].name}, ...), and does "
                f"not say which is the newer: delete {name}, or the shards and {name}.index.json"
            )


def _refuse_much_larger(config: Any, model_class: Any, files: Iterable[Path], where: str) -> None:
    """Refuses a configuration of a network with more than twice the numbers that are stored, before it takes memory."""
    # A part of a configuration that is null stands for the library's usual size, which is billions of numbers.
    stored = 0
    for file in files:
        if file.suffix == ".safetensors":
            stored += sum(map(math.prod, read_header(file).shapes.values()))
    if not stored:
        return
    with foreign_errors(f"{where}: its config.json"), unsharded_loading(), on_meta():
        network = getattr(model_class, "from_config", model_class)(config)
    numbers = sum(parameter.numel() for parameter in network.parameters())
    if numbers > 2 * stored:
        raise CheckpointError(
            f"{where}: its config.json asks for a network of {numbers:,} numbers, but its weights are {stored:,}: "
            "a part of the configuration is missing or of another model"
        )


def weight_files(checkpoint: str | os.PathLike[str], *, value_head: bool = False) -> list[Path]:
    """The files of weights that transformers has loaded from a folder or from its copy of a Hub repository.

    Args:
        checkpoint: folder or Hub id.
        value_head: whether the file of a value head beside them is one.
    """
    from transformers.utils import cached_file

    config = Path(checkpoint) / "config.json" if Path(checkpoint).is_dir() else cached_file(checkpoint, "config.json")
    assert config is not None  # it has been read
    folder = Path(config).parent
    files = sorted(folder.glob("model*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    if value_head:
        files += folder.glob(VALUE_HEAD)
    return files


def refuse_unfit(where: str, *, missing: Iterable[str] = (), left: Iterable[str] = ()) -> None:
    """Raises CheckpointError if weights are missing, which would be random, or left over, which would do nothing."""
    missing, left = sorted(missing), sorted(left)
    if missing:
        raise CheckpointError(
            f"{where} lacks {len(missing)} weights that its config.json asks for ({', '.join(missing[:5])}); refusing "
            "to use random ones"
        )
    if left:
        hint = ""
        if any(name.startswith(REWARD_HEADS) for name in left):
            hint = ". With such a head it is a reward model: -m vlmreward=FOLDER"
        raise CheckpointError(
            f"{where} has {len(left)} weights that the network of its config.json has no place for "
            f"({', '.join(left[:5])}); refusing to leave them out{hint}"
        )


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
    """The floating-point dtype of a name; a dtype and None stay as they are."""
    if dtype is None:
        return None
    parsed = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(parsed, torch.dtype) or not parsed.is_floating_point:
        raise ConfigError(f"dtype must be such as 'float32', 'bfloat16' or 'float16', got {dtype!r}")
    return parsed


def usable_device(device: torch.device | str | None) -> torch.device:
    """The device of a name; None is the GPU if there is one. Call it before anything is loaded."""
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(0, device=device)
        return torch.device(device)
    # torch raises different errors for a missing device; TypeError is for a value that is not a device
    except (RuntimeError, AssertionError, ImportError, TypeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"device {str(device)!r} cannot be used: {reason:.200}") from error
