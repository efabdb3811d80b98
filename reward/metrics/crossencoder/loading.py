"""Loads cross-encoders of sentence-transformers: whole, and without importing or calling what a folder names."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import CrossEncoder
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.cross_encoder.modules import LogitScore
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import nn

from reward.backbones.fit import foreign_errors
from reward.backbones.pretrained import load_network
from reward.data.json_files import read_json
from reward.errors import CheckpointError, DataError

ACTIVATIONS: dict[str, type[nn.Module]] = {"sigmoid": nn.Sigmoid, "none": nn.Identity}
_ACTIVATION_OF_CLASS = {"Sigmoid": "sigmoid", "Identity": "none"}  # as sentence-transformers names them in a folder
_MODEL_SETTINGS = ("prompts", "default_prompt_name", "keep_in_fp32_modules")  # of config_sentence_transformers.json
_SAFE_LOADING = {"local_files_only": True, "trust_remote_code": False}


class StrictTransformer(Transformer):
    """The library's module, with a network whose weights all come from its folder, and none of them from a pickle."""

    def _load_model(self, source: str, task: str, config: Any, *_: Any, **options: Any) -> Any:
        from sentence_transformers.base.modules.transformer import TRANSFORMER_TASK_TO_AUTO_MODEL

        model_class = TRANSFORMER_TASK_TO_AUTO_MODEL[task]
        dtype = options["dtype"] or "auto"
        return load_network(source, model_class, "cross-encoder", dtype=dtype, strict=True, config=config)


# A folder that the model is saved to, and the fingerprint of a score, name the library's class: ours differs in how it
# is loaded alone.
StrictTransformer.__module__, StrictTransformer.__name__ = Transformer.__module__, Transformer.__name__


# The classes that modules.json may name, by their last name.
_MODULE_CLASSES: dict[str, Any] = {
    "Transformer": StrictTransformer,
    "LogitScore": LogitScore,
    "Pooling": Pooling,
    "Dense": Dense,
}


def load_cross_encoder(folder: Path, *, device: torch.device, dtype: Any, activation: str | None) -> CrossEncoder:
    """Loads a folder as `CrossEncoder(folder)` would, but for what could run code or leave weights out.

    Args:
        folder: of sentence-transformers, or of a model of transformers.
        device: where the model goes.
        dtype: of its weights; None is the one that is stored.
        activation: a key of `ACTIVATIONS`; None is what the folder names, else the library's rule.

    Raises:
        CheckpointError: the folder needs code, names what is not known here, or lacks weights.
    """
    where = f"cross-encoder {str(folder)!r}"
    if (folder / "adapter_config.json").is_file():
        raise CheckpointError(f"{where} holds adapters: merge them into their model, and save that")
    with foreign_errors(where):
        config = _read_optional(folder / "config_sentence_transformers.json")
        modules: Any
        if config.get("model_type") == "CrossEncoder":
            modules = OrderedDict()
            for entry in _read_optional(folder / "modules.json"):
                modules[entry["name"]] = _load_module(folder, entry, where, dtype)
        else:
            modules = _modules_of_transformers(folder, where, dtype)
        settings = {name: config[name] for name in _MODEL_SETTINGS if name in config}
        model = CrossEncoder(modules=modules, device=str(device), activation_fn=nn.Identity(), **settings)
        if model.num_labels != 1:
            raise CheckpointError(f"{where} gives {model.num_labels} numbers a pair; a reward is one number")
        model.activation_fn = ACTIVATIONS[activation or _stored_activation(config, model, where)]()
    return model.eval()


def _load_module(folder: Path, entry: dict[str, Any], where: str, dtype: Any) -> nn.Module:
    """Loads an entry of modules.json by our own table of classes: nothing that the file names is imported."""
    library, _, name = entry["type"].rpartition(".")
    if not library.startswith("sentence_transformers.") or name not in _MODULE_CLASSES:
        raise CheckpointError(
            f"{where} asks for the module {entry['type']!r}, which is not run; known are {', '.join(_MODULE_CLASSES)}. "
            "If you trust its maker: CrossEncoderScorer(CrossEncoder(FOLDER, trust_remote_code=True))"
        )
    module_folder = (folder / entry["path"]).resolve()
    if not module_folder.is_relative_to(folder.resolve()):
        raise CheckpointError(f"{where}: the module path {entry['path']!r} leaves its folder")
    module_class = _MODULE_CLASSES[name]
    _refuse_foreign_settings(module_class.load_config(str(module_folder)), where)
    options: dict[str, Any] = {}
    if name == "Transformer":
        options = {**_SAFE_LOADING, "model_kwargs": {"dtype": dtype}}
    module: nn.Module = module_class.load(str(module_folder), **options)
    return module


def _refuse_foreign_settings(settings: dict[str, Any], where: str) -> None:
    """Refuses settings of a module that choose another method, class or repository."""
    for name in ("config_kwargs", "config_args", "tokenizer_name_or_path"):
        if settings.get(name):
            raise CheckpointError(f"{where} asks for {name}={settings[name]!r}, which is not read; leave it out")
    methods = {modality.get("method") for modality in settings.get("modality_config", {}).values()}
    if not methods <= {"forward"}:
        raise CheckpointError(f"{where} asks for the methods {sorted(map(str, methods))}; only forward is called")
    activation = settings.get("activation_function", "torch.nn.modules.")
    if not activation.startswith("torch.nn.modules."):
        raise CheckpointError(f"{where} asks for the activation {activation!r}, which is not of torch.nn")


def _modules_of_transformers(folder: Path, where: str, dtype: Any) -> list[nn.Module]:
    """The modules of a folder of transformers, as `CrossEncoder` chooses them."""
    architectures = _read_optional(folder / "config.json").get("architectures") or [""]
    architecture = architectures[0]
    if architecture.endswith("ForConditionalGeneration"):
        raise CheckpointError(
            f"{where} has no modules.json of sentence-transformers, which says how a {architecture} scores: give a "
            "revision that has it. As a judge that says yes: -m vqascore=FOLDER"
        )
    options: dict[str, Any] = {
        "model_kwargs": {"dtype": dtype},
        "processor_kwargs": _SAFE_LOADING,
        "config_kwargs": _SAFE_LOADING,
    }
    if not architecture.endswith("ForCausalLM"):
        return [StrictTransformer(str(folder), transformer_task="sequence-classification", **options)]
    # A language model scores a pair by its log-odds of "yes".
    language_model = StrictTransformer(str(folder), transformer_task="text-generation", **options)
    yes, no = (language_model.tokenizer.convert_tokens_to_ids(word) for word in ("yes", "no"))
    if yes == no:
        raise CheckpointError(f"{where} has no tokens 'yes' and 'no', whose log-odds would be its score")
    return [language_model, LogitScore(true_token_id=yes, false_token_id=no)]


def _stored_activation(config: dict[str, Any], model: CrossEncoder, where: str) -> str:
    """The activation that a folder names, as a key of `ACTIVATIONS`; the library would call whatever it names."""
    network_config = model.config
    stored = (
        config.get("activation_fn")
        or getattr(network_config, "sentence_transformers", {}).get("activation_fn")
        or getattr(network_config, "sbert_ce_default_activation_function", None)
        or "torch.nn.Sigmoid"
    )
    library, _, name = str(stored).rpartition(".")
    if not library.startswith("torch.nn") or name not in _ACTIVATION_OF_CLASS:
        raise CheckpointError(
            f"{where} asks for the activation {stored!r}, which is not run; choose one: activation='sigmoid' or 'none'"
        )
    return _ACTIVATION_OF_CLASS[name]


def _read_optional(file: Path) -> Any:
    """A JSON file; an empty dict if it is not there."""
    if not file.is_file():
        return {}
    try:
        return read_json(file)
    except DataError as error:
        raise CheckpointError(f"cross-encoder: {error}") from error
