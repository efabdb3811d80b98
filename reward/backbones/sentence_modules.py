"""Loads modules of sentence-transformers: whole, and without importing or calling what a folder names."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.cross_encoder.modules import LogitScore
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import nn

from reward.backbones.pretrained import load_network
from reward.checkpoints.folders import SENTENCE_TRANSFORMERS_CONFIG
from reward.data.json_files import read_json
from reward.errors import CheckpointError, DataError

SAFE_LOADING = {"local_files_only": True, "trust_remote_code": False}
_METHODS = {"forward", "get_image_features", "get_text_features"}  # of a network, that a folder may choose
_MODEL_SETTINGS = ("prompts", "default_prompt_name", "keep_in_fp32_modules")  # of a model, in its configuration


class StrictTransformer(Transformer):
    """The library's module, with a network whose weights all come from its folder, and none of them from a pickle."""

    def _load_model(self, source: str, task: str, config: Any, *_: Any, **options: Any) -> Any:
        from sentence_transformers.base.modules.transformer import TRANSFORMER_TASK_TO_AUTO_MODEL

        model_class = TRANSFORMER_TASK_TO_AUTO_MODEL[task]
        dtype = options["dtype"] or "auto"
        # Features are the states of a model that may have been saved with the head that writes.
        apart = ("lm_head.",) if task == "feature-extraction" else ()
        kind = "model of sentence-transformers"
        return load_network(source, model_class, kind, dtype=dtype, strict=True, apart=apart, config=config)


# A folder that the model is saved to, and the fingerprint of a score, name the library's class: ours differs in how it
# is loaded alone.
StrictTransformer.__module__, StrictTransformer.__name__ = Transformer.__module__, Transformer.__name__

# The classes that modules.json may name, by their last name.
_MODULE_CLASSES: dict[str, Any] = {
    "Transformer": StrictTransformer,
    "LogitScore": LogitScore,
    "Pooling": Pooling,
    "Dense": Dense,
    "Normalize": Normalize,
}


def read_settings(folder: Path, where: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a folder's configuration of sentence-transformers says; and of it, the settings that every model takes.

    Raises:
        CheckpointError: the folder, which `where` names in messages, holds adapters.
    """
    if (folder / "adapter_config.json").is_file():
        raise CheckpointError(f"{where} holds adapters: merge them into their model, and save that")
    config = read_optional(folder / SENTENCE_TRANSFORMERS_CONFIG)
    return config, {name: config[name] for name in _MODEL_SETTINGS if name in config}


def load_modules(folder: Path, where: str, *, dtype: Any, by_hand: str) -> OrderedDict[str, nn.Module]:
    """Loads the modules that modules.json lists, by our own table of classes; empty if there is no such file.

    Args:
        folder: of sentence-transformers.
        where: names the model in messages.
        dtype: of the weights; None is the one that is stored.
        by_hand: what to write for a model with other modules, whose maker is trusted.

    Raises:
        CheckpointError: the folder needs code, names what is not known here, or lacks weights.
    """
    modules = OrderedDict[str, nn.Module]()
    for entry in read_optional(folder / "modules.json"):
        library, _, name = entry["type"].rpartition(".")
        if not library.startswith("sentence_transformers.") or name not in _MODULE_CLASSES:
            raise CheckpointError(
                f"{where} asks for the module {entry['type']!r}, which is not run; known are "
                f"{', '.join(_MODULE_CLASSES)}. If you trust its maker: {by_hand}"
            )
        module_folder = (folder / entry["path"]).resolve()
        if not module_folder.is_relative_to(folder.resolve()):
            raise CheckpointError(f"{where}: the module path {entry['path']!r} leaves its folder")
        if not module_folder.is_dir():
            raise CheckpointError(f"{where}: modules.json names {entry['path']!r}, which is not there: fetch it whole")
        module_class = _MODULE_CLASSES[name]
        _refuse_foreign_settings(module_class.load_config(str(module_folder)), where)
        options: dict[str, Any] = {}
        if name == "Transformer":
            options = {**SAFE_LOADING, "model_kwargs": {"dtype": dtype}}
        modules[entry["name"]] = module_class.load(str(module_folder), **options)
    return modules


def _refuse_foreign_settings(settings: Mapping[str, Any], where: str) -> None:
    """Refuses settings of a module that choose another method, class or repository."""
    for name in ("config_kwargs", "config_args", "tokenizer_name_or_path"):
        if settings.get(name):
            raise CheckpointError(f"{where} asks for {name}={settings[name]!r}, which is not read; leave it out")
    methods = {modality.get("method") for modality in settings.get("modality_config", {}).values()}
    if not methods <= _METHODS:
        raise CheckpointError(
            f"{where} asks for the methods {', '.join(sorted(map(str, methods)))}; called are only "
            f"{', '.join(sorted(_METHODS))}"
        )
    activation = settings.get("activation_function", "torch.nn.modules.")
    if not activation.startswith("torch.nn.modules."):
        raise CheckpointError(f"{where} asks for the activation {activation!r}, which is not of torch.nn")


def read_optional(file: Path) -> Any:
    """A JSON file; an empty dict if it is not there."""
    if not file.is_file():
        return {}
    try:
        return read_json(file)
    except DataError as error:
        raise CheckpointError(str(error)) from error
