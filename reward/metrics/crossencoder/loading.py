"""Loads cross-encoders of sentence-transformers: whole, and without importing or calling what a folder names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder.modules import LogitScore
from torch import nn

from reward.backbones.fit import foreign_errors
from reward.backbones.sentence_modules import (
    SAFE_LOADING,
    StrictTransformer,
    load_modules,
    read_optional,
    read_settings,
)
from reward.errors import CheckpointError

ACTIVATIONS: dict[str, type[nn.Module]] = {"sigmoid": nn.Sigmoid, "none": nn.Identity}
_ACTIVATION_OF_CLASS = {"Sigmoid": "sigmoid", "Identity": "none"}  # as sentence-transformers names them in a folder
_BY_HAND = "CrossEncoderScorer(CrossEncoder(FOLDER, trust_remote_code=True))"


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
    with foreign_errors(where):
        config, settings = read_settings(folder, where)
        modules: Any
        if config.get("model_type") == "CrossEncoder":
            modules = load_modules(folder, where, dtype=dtype, by_hand=_BY_HAND)
            _check_head(modules, where)
        else:
            modules = _modules_of_transformers(folder, where, dtype)
        model = CrossEncoder(modules=modules, device=str(device), activation_fn=nn.Identity(), **settings)
        if model.num_labels != 1:
            raise CheckpointError(f"{where} gives {model.num_labels} numbers a pair; a reward is one number")
        model.activation_fn = ACTIVATIONS[activation or _stored_activation(config, model, where)]()
    return model.eval()


def _check_head(modules: Mapping[str, nn.Module], where: str) -> None:
    """Refuses modules of which none gives scores: the library would take the model's other numbers for some."""
    names = [type(module).__name__ for module in modules.values()]
    outputs = [getattr(module, "module_output_name", None) for module in modules.values()]
    if "LogitScore" not in names and "scores" not in outputs:
        raise CheckpointError(
            f"{where}: its modules.json leads to no head (it lists {', '.join(names) or 'nothing'}): a LogitScore of "
            'the tokens yes and no, or a Dense with "module_output_name": "scores", is missing. Give a revision that '
            "lists it. As a judge that says yes: -m vqascore=FOLDER"
        )


def _modules_of_transformers(folder: Path, where: str, dtype: Any) -> list[nn.Module]:
    """The modules of a folder of transformers, as `CrossEncoder` chooses them."""
    architectures = read_optional(folder / "config.json").get("architectures") or [""]
    architecture = architectures[0]
    if architecture.endswith("ForConditionalGeneration"):
        raise CheckpointError(
            f"{where} has no modules.json of sentence-transformers, which says how a {architecture} scores: give a "
            "revision that has it. As a judge that says yes: -m vqascore=FOLDER"
        )
    options: dict[str, Any] = {
        "model_kwargs": {"dtype": dtype},
        "processor_kwargs": SAFE_LOADING,
        "config_kwargs": SAFE_LOADING,
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
