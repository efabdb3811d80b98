"""The settings of a training run, read from YAML or JSON on top of a metric's preset."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reward.errors import ConfigError

# {type of a setting: what a value must be, whether it is that}
_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "int": ("a whole number", lambda value: type(value) is int),  # not a bool
    "float": ("a number", lambda value: type(value) in (int, float) and math.isfinite(value)),
    "bool": ("true or false", lambda value: isinstance(value, bool)),
    "str": ("a name", lambda value: isinstance(value, str) and bool(value)),
    "tuple[str, ...]": ("a list of different names", lambda value: _are_names(value) and len(set(value)) == len(value)),
}
_CHOICES = {
    "precision": ("fp32", "bf16", "fp16"),
    "schedule": ("constant", "linear", "cosine"),
    "loss": ("mse", "l1", "bce"),
    "sampling": ("balanced", "pool"),
}
_AT_LEAST_1: tuple[str, Callable[[float], bool]] = (" of at least 1", lambda value: value >= 1)
# {setting: its range in words, whether a number is in it}; other whole numbers are at least 1
_RANGES: dict[str, tuple[str, Callable[[float], bool]]] = {
    **dict.fromkeys(("learning_rate", "max_grad_norm"), (" above 0", lambda value: value > 0)),
    **dict.fromkeys(
        ("seed", "workers", "scenes_test", "scenes_seed", "weight_decay"), (" of at least 0", lambda value: value >= 0)
    ),
    "warmup_ratio": (" in [0, 1)", lambda value: 0 <= value < 1),
    "reference_free_rate": (" in [0, 1]", lambda value: 0 <= value <= 1),
}


def _are_names(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(each, str) and each for each in value)


def _check(name: str, type_name: str, value: Any) -> None:
    kind, *optional = type_name.split(" | ")
    if kind.startswith("Mapping") or (optional and value is None):  # `make_config` checks tables
        return
    words, holds = _TYPES[kind]
    extent, is_inside = _RANGES.get(name, _AT_LEAST_1 if kind == "int" else ("", lambda _: True))
    if name in _CHOICES:
        words, holds = f"one of {', '.join(_CHOICES[name])}", lambda given: given in _CHOICES[name]
    if not (holds(value) and is_inside(value)):
        null = ", or null" if optional else ""
        hint = "; YAML reads 1e-4 as text, write 1.0e-4" if kind == "float" and isinstance(value, str) else ""
        raise ConfigError(f"training config: {name} must be {words}{extent}{null}, got {value!r}{hint}")


@dataclass(frozen=True)
class TrainingConfig:
    """Settings of one training run.

    Args:
        model: the metric's own settings (for VELA the fields of `VelaConfig`); the metric checks them.
        stages: {name: settings that differ from these}, trained one after the other, each from the weights of the one
            before; `model` and `stages` belong to the whole. Empty trains once. A later table drops a stage with null.
        loss: `"mse"` or `"l1"` (absolute difference) to human ratings, or `"bce"`: binary
            cross-entropy on correct and incorrect captions.
        data: the data sets of ratings; empty takes those given to `train`.
        pairs: the data sets of correct and incorrect captions; empty takes those given to `train`.
        categories: kinds of errors of the pairs; empty takes all kinds in the data.
        sampling: how often each kind of error comes in an epoch: `"balanced"`, all equally often, or `"pool"`, each
            pair once and so each kind as often as the data have it.
        learning_rate: peak step size of AdamW with betas (0.9, 0.999).
        weight_decay: AdamW's weight decay; not applied to biases and norms.
        schedule: `"constant"`, `"linear"` or `"cosine"` decay to 0, after the warm-up.
        warmup_ratio: share of all steps in which the rate rises from 0, in [0, 1).
        max_grad_norm: gradients are clipped to this norm.
        batch_size: captions per process and forward pass; a pair is two.
        accumulation: forward passes per optimizer step.
        epochs: largest number of passes over the training part; has no effect if `max_steps` is set.
        max_steps: largest number of optimizer steps, in place of `epochs`; None leaves the limit to `epochs`.
        eval_steps: steps between evaluations on the validation part; None evaluates after each epoch.
        patience: training stops after this many evaluations without a better tau-c (for pairs: a lower loss). The
            best checkpoint is kept.
        eval_batch_size: captions per process and forward pass of an evaluation.
        precision: `"fp32"`, or mixed precision in `"bf16"` or `"fp16"` (fp16 needs a CUDA device).
        seed: seed of new weights, dropout, order of the data and the choice of references.
        reference_free_rate: share of training rows without references, in [0, 1], so that one model can score with
            and without them; at 1 the validation part has none either.
        max_references: at most this many references per row: in training a random choice anew each epoch, else the
            first ones. None keeps all.
        workers: processes that prepare batches beside each training process.
        test_parts: parts reported in the model card, beside `train` and `val`; those that the data lack are left out.
        scenes_train, scenes_val, scenes_test: numbers of rated captions (or pairs) in the parts `train`, `val` and
            `test` when the data are the synthetic scenes.
        scenes_seed: seed of the scenes' part `train`; `val` and `test` use the next two.

    Example:
        >>> TrainingConfig(epochs=2).patience
        1
        >>> TrainingConfig(epochs=0)
        Traceback (most recent call last):
        ...
        reward.errors.ConfigError: training config: epochs must be a whole number of at least 1, got 0
    """

    model: Mapping[str, Any] = field(default_factory=dict)
    stages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    loss: str = "mse"
    data: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    sampling: str = "balanced"
    learning_rate: float = 1e-4
    weight_decay: float = 0.01
    schedule: str = "constant"
    warmup_ratio: float = 0.0
    max_grad_norm: float = 1.0
    batch_size: int = 4
    accumulation: int = 1
    epochs: int = 10
    max_steps: int | None = None
    eval_steps: int | None = None
    patience: int = 1
    eval_batch_size: int = 8
    precision: str = "fp32"
    seed: int = 0
    reference_free_rate: float = 0.0
    max_references: int | None = None
    workers: int = 0
    test_parts: tuple[str, ...] = ("dci_val", "dci_test", "test")
    scenes_train: int = 4000
    scenes_val: int = 300
    scenes_test: int = 400
    scenes_seed: int = 20_000

    def __post_init__(self) -> None:
        for name in ("test_parts", "categories", "data", "pairs"):
            value = getattr(self, name)
            if isinstance(value, list):  # as YAML and JSON give it
                object.__setattr__(self, name, tuple(value))
            elif isinstance(value, str) and value and name in ("data", "pairs"):
                object.__setattr__(self, name, (value,))
        for each in dataclasses.fields(self):
            _check(each.name, str(each.type), getattr(self, each.name))
        if self.loss == "bce" and self.batch_size % 2:
            raise ConfigError(
                f"training config: batch_size must be divisible by 2 (two captions per pair), got {self.batch_size}"
            )
        for name, settings in self.stages.items():
            if not (isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name)):  # it names a folder
                raise ConfigError(
                    f"training config: the name of a stage is a text of letters, digits, _, . and -, got {name!r}"
                )
            if not isinstance(settings, Mapping):
                raise ConfigError(f"training config: stage {name!r} must be a table of settings, got {settings!r}")
            if shared := sorted({"model", "stages"} & set(settings)):
                raise ConfigError(f"training config: stage {name!r} cannot set {', '.join(shared)}")
            self.stage(name)

    def stage(self, name: str) -> TrainingConfig:
        """The settings of one stage: these, changed by the stage's own; its seed is the common one plus its place.

        Example:
            >>> config = TrainingConfig(batch_size=8, stages={"pairs": {"loss": "bce"}, "ratings": {"batch_size": 6}})
            >>> config.stage("ratings").batch_size, config.stage("ratings").seed
            (6, 1)
        """
        own = {"seed": self.seed + list(self.stages).index(name), **self.stages[name]}
        settings = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "stages"}
        try:
            return make_config(settings, own)
        except ConfigError as error:
            raise ConfigError(f"stage {name!r}: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain JSON values; `make_config` reads them back."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        plain: dict[str, Any] = json.loads(json.dumps(values))  # tuples become the lists that a file gives back
        return plain


def read_config_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads a `.yaml`, `.yml` or `.json` file that holds one table of settings."""
    import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own

    path = Path(path)
    readers: dict[str, Callable[[str], Any]] = {".json": json.loads, **dict.fromkeys((".yaml", ".yml"), yaml.safe_load)}
    if path.suffix not in readers:
        raise ConfigError(f"a config file ends in .yaml, .yml or .json, got {path}")
    try:
        values = readers[path.suffix](path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read the config file {path}: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path} must hold a table of settings, got {type(values).__name__}")
    return values


def make_config(*layers: Mapping[str, Any]) -> TrainingConfig:
    """One configuration from several tables: later ones win; tables inside `model` and `stages` merge key by key.

    Example:
        >>> make_config({"epochs": 3, "model": {"a": {"b": 1}}}, {"model": {"a": {"c": 2}}}).model
        {'a': {'b': 1, 'c': 2}}
    """
    known = {f.name for f in dataclasses.fields(TrainingConfig)}
    merged: dict[str, Any] = {}
    tables: dict[str, dict[str, Any]] = {"model": {}, "stages": {}}
    for layer in layers:
        unknown = sorted(set(layer) - known)
        if unknown:
            names = ", ".join(sorted(known))
            raise ConfigError(f"training config: unknown settings {', '.join(unknown)}; known: {names}")
        merged.update(layer)
        for name, table in tables.items():
            part = layer.get(name, {})
            if not isinstance(part, Mapping):
                raise ConfigError(f"training config: {name} must be a table of settings, got {part!r}")
            tables[name] = _merged(table, part)
    stages = {name: settings for name, settings in tables["stages"].items() if settings is not None}
    return TrainingConfig(**{**merged, "model": tables["model"], "stages": stages})


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = _merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged
