"""The settings of a training run, read from YAML or JSON on top of a metric's preset."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic.dataclasses import dataclass
from typing_extensions import Self

from reward.data.settings import STRICT, AtLeast0, AtLeast1, Names, Rate, Settings
from reward.errors import ConfigError

PAIR_LOSSES = ("bce", "bradley_terry")  # which are trained on pairs of captions, all others on ratings
OneOrMore = Annotated[Names, BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]
Positive = Annotated[float, Field(gt=0)]


@dataclass(frozen=True, config=STRICT)
class TrainingConfig(Settings):
    """Settings of one training run.

    Args:
        model: the metric's own settings (for VELA the fields of `VelaConfig`); the metric checks them.
        stages: {name: settings that differ from these}, trained one after the other, each from the weights of the one
            before; `model` and `stages` belong to the whole. Empty trains once. A later table drops a stage with null.
        loss: `"mse"` or `"l1"` (absolute difference) to human ratings, `"bce"`: binary cross-entropy on correct and
            incorrect captions, or `"bradley_terry"`: -log of the probability sigmoid(better - worse) of each pair.
        data: the data sets of ratings; empty takes those given to `train`.
        pairs: the data sets of correct and incorrect captions; empty takes those given to `train`.
        categories: kinds of errors of the pairs; empty takes all kinds in the data.
        sampling: how often each kind of error comes in an epoch: `"balanced"`, all equally often, or `"pool"`, each
            pair once and so each kind as often as the data have it.
        learning_rate: peak step size of AdamW with betas (0.9, 0.999).
        learning_rates: {start of parameters' names: their peak step size}, such as `{"text": 5e-5}` for VELA's language
            model; None trains all with `learning_rate`.
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
        reward.errors.ConfigError: training config: epochs must be greater than or equal to 1, got 0
    """

    place: ClassVar[str] = "training config: "

    model: dict[str, Any] = Field(default_factory=dict)
    stages: dict[str, dict[str, Any]] = Field(default_factory=dict)
    loss: Literal["mse", "l1", "bce", "bradley_terry"] = "mse"
    data: OneOrMore = ()
    pairs: OneOrMore = ()
    categories: OneOrMore = ()
    sampling: Literal["balanced", "pool"] = "balanced"
    learning_rate: Positive = 1e-4
    learning_rates: dict[str, Positive] | None = None
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_ratio: Rate = 0.0
    max_grad_norm: Positive = 1.0
    batch_size: AtLeast1 = 4
    accumulation: AtLeast1 = 1
    epochs: AtLeast1 = 10
    max_steps: AtLeast1 | None = None
    eval_steps: AtLeast1 | None = None
    patience: AtLeast1 = 1
    eval_batch_size: AtLeast1 = 8
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    seed: AtLeast0 = 0
    reference_free_rate: Annotated[float, Field(ge=0, le=1)] = 0.0
    max_references: AtLeast1 | None = None
    workers: AtLeast0 = 0
    test_parts: OneOrMore = ("dci_val", "dci_test", "test")
    scenes_train: AtLeast1 = 4000
    scenes_val: AtLeast1 = 300
    scenes_test: AtLeast0 = 400
    scenes_seed: AtLeast0 = 20_000

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        sizes = {"batch_size": self.batch_size} if self.loss in PAIR_LOSSES else {}
        if self.loss == "bradley_terry":  # whose loss is of whole pairs, also in an evaluation
            sizes["eval_batch_size"] = self.eval_batch_size
        for name, size in sizes.items():
            if size % 2:
                raise ConfigError(f"training config: {name} must be divisible by 2 (two captions per pair), got {size}")
        for name, settings in self.stages.items():
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):  # it names a folder
                raise ConfigError(
                    f"training config: the name of a stage is a text of letters, digits, _, . and -, got {name!r}"
                )
            shared = sorted({"model", "stages"} & settings.keys())
            if shared:
                raise ConfigError(f"training config: stage {name!r} cannot set {', '.join(shared)}")
            self.stage(name)
        return self

    def stage(self, name: str) -> TrainingConfig:
        """The settings of one stage: these, changed by those of the stage; its seed is the common one plus its number.

        Example:
            >>> config = TrainingConfig(batch_size=8, stages={"pairs": {"loss": "bce"}, "ratings": {"batch_size": 6}})
            >>> config.stage("ratings").batch_size, config.stage("ratings").seed
            (6, 1)
        """
        common = self._values()
        del common["stages"]
        seed = self.seed + list(self.stages).index(name)
        try:
            return make_config(common, {"seed": seed}, self.stages[name])
        except ConfigError as error:
            raise ConfigError(f"stage {name!r}: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain JSON values; `make_config` reads them back."""
        plain: dict[str, Any] = json.loads(json.dumps(self._values()))  # tuples become lists, as in a file
        return plain

    def _values(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


def read_config_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads a `.yaml`, `.yml` or `.json` file that holds one table of settings."""
    import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own

    path = Path(path)
    if path.suffix not in (".yaml", ".yml", ".json"):
        raise ConfigError(f"a config file ends in .yaml, .yml or .json, got {path}")
    parse = json.loads if path.suffix == ".json" else yaml.safe_load
    try:
        values = parse(path.read_text(encoding="utf-8"))
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
    settings: dict[str, Any] = {}
    for layer in layers:
        settings = _merged(settings, layer)
    stages = settings.get("stages")
    # A stage that a later table sets to null is dropped here, and not before: any layer may name it.
    if isinstance(stages, Mapping):
        settings["stages"] = {name: changes for name, changes in stages.items() if changes is not None}
    return TrainingConfig(**{str(name): value for name, value in settings.items()})


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in changes.items():
        before = merged.get(name)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            value = _merged(before, value)
        merged[name] = value
    return merged
