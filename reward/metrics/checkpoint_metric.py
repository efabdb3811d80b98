"""Which metric a checkpoint is of, told by its configuration files."""

from __future__ import annotations

import os
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from reward.checkpoints.folders import (
    CONFIG_FILE,
    OPEN_CLIP_CONFIG,
    SENTENCE_TRANSFORMERS_CONFIG,
    config_folder,
    named_metric,
)
from reward.data.json_files import read_json
from reward.errors import CheckpointError, DataError
from reward.metrics.base import installed_specs


def metric_of_checkpoint(checkpoint: str | os.PathLike[str], revision: str | None = None) -> str:
    """Name of the metric that a checkpoint is of.

    Args:
        checkpoint: a folder or Hub id whose config.json names the metric, as `save_pretrained` writes it, or has a type
            that a metric reads (`MetricSpec.model_types`); or with an open_clip_config.json, for `clipscore`.
        revision: of a Hub id.

    Raises:
        CheckpointError: its files name no metric, or a type that several metrics read.
    """
    text = os.fspath(checkpoint)
    folder = config_folder(checkpoint, revision)
    name = named_metric(folder)
    if name is not None:
        return name
    # The most telling type comes first: two metrics may read one architecture, and sentence-transformers names its own.
    types = _model_types(folder)
    for model_type in types:
        metrics = []
        for spec in installed_specs().values():
            if any(fnmatchcase(model_type, pattern) for pattern in spec.model_types):
                metrics.append(spec.name)
        if len(metrics) > 1:
            lines = " or ".join(f"{metric}={text}" for metric in metrics)
            raise CheckpointError(f"{text!r} ({model_type}) can be scored with by several metrics: write {lines}")
        if metrics:
            return metrics[0]
    if (folder / OPEN_CLIP_CONFIG).is_file():
        return "clipscore"
    reason = f"its type is {types[-1]}" if types else f"it has no {CONFIG_FILE} that names one"
    raise CheckpointError(
        f"{text!r} does not say which metric it is for ({reason}): write NAME={text}; `capreward metrics` lists the "
        "names"
    )


def _model_types(folder: Path) -> list[str]:
    """The type of sentence-transformers, then the architectures and the type that a config.json names."""
    types: list[Any] = []
    for file in (SENTENCE_TRANSFORMERS_CONFIG, CONFIG_FILE):
        with suppress(DataError):  # a missing or damaged file names no type; loading says what is wrong with it
            config = read_json(folder / file)
            if isinstance(config, dict):
                types += [*(config.get("architectures") or []), config.get("model_type")]
    return [model_type for model_type in types if isinstance(model_type, str)]
