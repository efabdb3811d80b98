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
_NAMED = {"Sigmoid": "sigmoid", "Identity": "none"}  # as sentence-transformers names them in a folder


class _Whole(Transformer):
    """The library's module, with a network whose weights all come from its folder."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.__class__ = Transformer  # it differs in how it is loaded alone

    def _load_model(self, source: str, task: str, config: Any, *_: Any, **options: Any) -> Any:
        from sentence_transformers.base.modules.transformer import TRANSFORMER_TASK_TO_AUTO_MODEL

        classes = TRANSFORMER_TASK_TO_AUTO_MODEL
        dtype = options["dtype"] or "auto"
        return load_network(source, classes[task], "cross-encoder", dtype=dtype, strict=True, config=config)


_MODULES = {each.__name__: each for each in (LogitScore, Pooling, Dense)} | {"Transformer": _Whole}


def load_cross_encoder(folder: Path, *, device: torch.device, dtype: Any, activation: str | None) -> CrossEncoder:
    """Loads a folder as `CrossEncoder(folder)` would, but for what could run code or leave weights out.

    Args:
        activation: a key of `ACTIVATIONS`; None is what the folder names, else the library's rule.

    Raises:
        CheckpointError: the folder needs code, names what is not known here, or lacks weights.
    """
    where = f"cross-encoder {str(folder)!r}"
    if (folder / "adapter_config.json").is_file():
        raise CheckpointError(f"{where} holds adapters: merge them into their model, and save that")
    loading = {"local_files_only": True, "trust_remote_code": False}
    with foreign_errors(where):
        own = _read(folder / "config_sentence_transformers.json")
        if own.get("model_type") == "CrossEncoder":
            listed = _read(folder / "modules.json")
            modules: Any = OrderedDict((each["name"], _module(folder, each, where, loading, dtype)) for each in listed)
        else:
            modules = _plain_modules(folder, where, loading, dtype)
        names = ("prompts", "default_prompt_name", "keep_in_fp32_modules")
        settings = {name: own[name] for name in names if name in own}
        model = CrossEncoder(modules=modules, device=str(device), activation_fn=nn.Identity(), **settings)
        if model.num_labels != 1:
            raise CheckpointError(f"{where} gives {model.num_labels} numbers a pair; a reward is one number")
        model.activation_fn = ACTIVATIONS[activation or _activation(own, model, where)]()
    return model.eval()


def _module(folder: Path, listed: dict[str, Any], where: str, loading: dict[str, Any], dtype: Any) -> nn.Module:
    """A module of modules.json, by our table of classes: nothing that the file names is imported."""
    library, _, name = listed["type"].rpartition(".")
    if not library.startswith("sentence_transformers.") or name not in _MODULES:
        raise CheckpointError(
            f"{where} asks for the module {listed['type']!r}, which is not run; known are {', '.join(_MODULES)}. If "
            "you trust its maker: CrossEncoderScorer(CrossEncoder(FOLDER, trust_remote_code=True))"
        )
    place = (folder / listed["path"]).resolve()
    if not place.is_relative_to(folder.resolve()):
        raise CheckpointError(f"{where}: the module path {listed['path']!r} leaves its folder")
    _check(_MODULES[name].load_config(str(place)), where)
    options = {**loading, "model_kwargs": {"dtype": dtype}} if name == "Transformer" else {}
    module: nn.Module = _MODULES[name].load(str(place), **options)
    return module


def _check(settings: dict[str, Any], where: str) -> None:
    """Refuses settings of a module that choose another method, class or repository."""
    for name in ("config_kwargs", "config_args", "tokenizer_name_or_path"):
        if settings.get(name):
            raise CheckpointError(f"{where} asks for {name}={settings[name]!r}, which is not read; leave it out")
    methods = {each.get("method") for each in settings.get("modality_config", {}).values()}
    if not methods <= {"forward"}:
        raise CheckpointError(f"{where} asks for the methods {sorted(map(str, methods))}; only forward is called")
    activation = settings.get("activation_function", "torch.nn.modules.")
    if not activation.startswith("torch.nn.modules."):
        raise CheckpointError(f"{where} asks for the activation {activation!r}, which is not of torch.nn")


def _plain_modules(folder: Path, where: str, loading: dict[str, Any], dtype: Any) -> list[nn.Module]:
    """The modules of a folder of transformers, as `CrossEncoder` chooses them."""
    architecture = (_read(folder / "config.json").get("architectures") or [""])[0]
    if architecture.endswith("ForConditionalGeneration"):
        raise CheckpointError(
            f"{where} has no modules.json of sentence-transformers, which says how a {architecture} scores: give a "
            "revision that has it. As a judge that says yes: -m vqascore=FOLDER"
        )
    options = {"model_kwargs": {"dtype": dtype}, "processor_kwargs": loading, "config_kwargs": loading}
    if not architecture.endswith("ForCausalLM"):
        return [_Whole(str(folder), transformer_task="sequence-classification", **options)]
    language = _Whole(str(folder), transformer_task="text-generation", **options)
    yes, no = (language.tokenizer.convert_tokens_to_ids(word) for word in ("yes", "no"))
    if yes == no:
        raise CheckpointError(f"{where} has no tokens 'yes' and 'no', whose log-odds would be its score")
    return [language, LogitScore(true_token_id=yes, false_token_id=no)]


def _activation(own: dict[str, Any], model: CrossEncoder, where: str) -> str:
    """The activation that a folder names; the library would call whatever it names."""
    config = model.config
    named = own.get("activation_fn") or getattr(config, "sentence_transformers", {}).get("activation_fn")
    named = named or getattr(config, "sbert_ce_default_activation_function", None) or "torch.nn.Sigmoid"
    library, _, name = str(named).rpartition(".")
    if not library.startswith("torch.nn") or name not in _NAMED:
        raise CheckpointError(
            f"{where} asks for the activation {named!r}, which is not run; choose one: activation='sigmoid' or 'none'"
        )
    return _NAMED[name]


def _read(file: Path) -> Any:
    """A JSON file; an empty dict if it is not there."""
    if not file.is_file():
        return {}
    try:
        return read_json(file)
    except DataError as error:
        raise CheckpointError(f"cross-encoder: {error}") from error
