"""`train`: one run of training, or several stages, from a data set and settings to a checkpoint folder."""

from __future__ import annotations

import importlib
import os
import shutil
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reward.checkpoints.fingerprints import fingerprint_source
from reward.checkpoints.folders import read_config, resolve_checkpoint
from reward.errors import ConfigError
from reward.metrics.base import MetricSpec
from reward.registry import check_loading, metric_spec
from reward.training.config import TrainingConfig
from reward.training.record import RECORD_FILE, STAGES, read_record, write_record
from reward.training.rows import Rows, load_rows
from reward.training.run import MetricTraining, TrainingResult, begin, finished, train_stage
from reward.training.tables import TRAIN

if TYPE_CHECKING:
    from accelerate import PartialState

_CARD = "README.md"


def metric_training(spec: MetricSpec) -> MetricTraining:
    """The training module of a metric.

    Example:
        >>> sorted(metric_training(metric_spec("beitscore")).PRESETS)
        ['paper', 'tiny']
    """
    package = spec.scorer.partition(":")[0].rpartition(".")[0]
    try:
        return importlib.import_module(f"{package}.training")
    except ModuleNotFoundError as error:
        if error.name != f"{package}.training":
            raise
        raise ConfigError(f"the metric {spec.name!r} cannot be trained: {package} has no module training") from None


def train(
    metric: str,
    data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    config: TrainingConfig,
    *,
    resume: bool = False,
    command: str | None = None,
    init: str | os.PathLike[str] | None = None,
    on_ready: Callable[[], None] = lambda: None,
) -> TrainingResult:
    """Trains a metric on human judgments, or on correct and incorrect captions, and writes a checkpoint folder.

    Training runs on the device that accelerate chooses, and in all processes that `accelerate launch` or `torchrun`
    starts. The state of an unfinished run is kept in `<output>/checkpoints` until the checkpoint is complete.

    With `config.stages`, each stage starts from the checkpoint of the stage before and leaves its own, with a card and
    a record, in `<output>/stages/<name>`; the checkpoint of the last stage is also copied to `output`. A resumed run
    continues in the stage that was interrupted and gives what an unbroken run gives.

    Args:
        metric: registry name.
        data: see `reward.training.tables.load_tables`. The rows of several data sets are taken together; all must have
            the part `train`, and one the part `val`.
        output: the checkpoint folder, made if absent.
        config: settings; see `TrainingConfig`.
        resume: continue from the last state in `output`; the result is that of an unbroken run. A complete run with
            these settings is not trained again, and finished stages are kept.
        command: the command that started the run, for the model card.
        init: folder or Hub id of a checkpoint of this metric to go on from, with its architecture, tokenizer and
            weights, which `config.model` must not state. The result compares the figures before and after.
        on_ready: called in the main process before the run, or each stage, when data and network are there.

    Returns:
        Figures on the validation and test parts, and the folder of the checkpoint.
    """
    import torch

    spec = _trained_spec(metric_spec(metric), config.model)
    training = metric_training(spec)
    stages = {name: config.stage(name) for name in config.stages} or {"": config}
    if any(own.precision == "fp16" for own in stages.values()) and not torch.cuda.is_available():
        raise ConfigError("precision fp16 needs a CUDA device: use bf16 or fp32")
    if unfit := sorted({own.loss for own in stages.values()} - set(training.LOSSES)):
        raise ConfigError(
            f"{spec.name} cannot be trained with the loss {unfit[0]}; known: {', '.join(training.LOSSES)}"
        )
    sources = [os.fspath(each) for each in ([data] if isinstance(data, (str, os.PathLike)) else data)]
    if not sources or len(set(sources)) < len(sources):
        raise ConfigError(f"name each data set once, and at least one, got {sources}")
    output, start = Path(output), None
    record: dict[str, Any] = {"metric": spec.name, "data": sources[0] if len(sources) == 1 else sources}
    record["config"] = config.to_dict()
    if init is not None:
        check_loading(init, metric=spec.name)
        start = resolve_checkpoint(init, metric=spec.name)
        if stated := sorted(config.model.keys() - {"gradient_checkpointing"}):
            raise ConfigError(
                f"the checkpoint {os.fspath(init)!r} says what the network is: leave out the settings of model "
                f"{', '.join(stated)}, or train without a checkpoint"
            )
        spec = _trained_spec(spec, read_config(start, metric=spec.name))
        record["init"] = {"source": os.fspath(init), "fingerprint": fingerprint_source(start)}
    process = begin(output, record, resume=resume)
    if (complete := finished(output)) is not None:
        return complete

    folders = {name: output / STAGES / name if name else output for name in stages}
    results = {name: done for name, folder in folders.items() if (done := finished(folder)) is not None}
    begun = {name for name, folder in folders.items() if read_record(folder) is not None}
    process.wait_for_everyone()  # until all have looked
    # The rows of all stages, so that faulty data are reported now, not hours later.
    rows = {name: load_rows(spec, sources, own) for name, own in stages.items() if name not in results}
    _warn_of_left_out(rows.values(), {kind for own in stages.values() for kind in own.categories})

    def ready() -> None:
        on_ready()
        if config.stages and read_record(output) is None:
            write_record(output, record)

    known_by = record
    for name, own in stages.items():
        folder = folders[name]
        if name not in results:
            facts = {**known_by, "config": own.to_dict()}
            options: dict[str, Any] = {"resume": name in begun, "start": start, "command": command, "ready": ready}
            results[name] = train_stage(training, spec, rows[name], folder, own, facts, process, **options)
        start, known_by = folder, {key: record[key] for key in ("metric", "data")}
        known_by["start"] = f"../{name}"
    return _join_stages(spec, output, record, results, command, process) if config.stages else results[name]


def _warn_of_left_out(stages: Iterable[Mapping[str, Rows]], trained: Collection[str]) -> None:
    """Warns of kinds of errors in the data to train on that no stage trains."""
    left: dict[str, int] = {}
    for rows in stages:
        left |= getattr(rows[TRAIN], "left_out", {})
    if lost := {kind: count for kind, count in left.items() if kind not in trained}:
        warnings.warn(
            f"the data have pairs of the kinds {', '.join(f'{kind} ({count:,})' for kind, count in lost.items())}, "
            "which no stage trains: name them in `categories`, or leave out their columns or rows",
            stacklevel=3,
        )


def _join_stages(
    spec: MetricSpec,
    output: Path,
    record: Mapping[str, Any],
    stages: Mapping[str, TrainingResult],
    command: str | None,
    process: PartialState,
) -> TrainingResult:
    """Copies the checkpoint of the last stage to the folder of the run, with a card and a record of all stages."""
    from reward.training.card import make_card

    last = list(stages.values())[-1]
    if process.is_main_process:
        for path in last.folder.iterdir():
            if path.name not in (RECORD_FILE, _CARD):
                shutil.copy2(path, output / path.name)
        told = {**record, "command": command}
        records = {name: read_record(stage.folder) or {} for name, stage in stages.items()}
        (output / _CARD).write_text(make_card(spec, {**told, "stages": records}), encoding="utf-8")
        figures = {"figures": last.figures, "steps": last.steps, "best_step": last.best_step}
        write_record(output, {**told, **figures, "stages": list(stages)})
    process.wait_for_everyone()
    before = next(iter(stages.values())).before
    return TrainingResult(output, last.figures, last.steps, last.best_step, stages, before)


def _trained_spec(spec: MetricSpec, settings: Mapping[str, Any]) -> MetricSpec:
    """The spec of the checkpoint that a run writes, with the aspects that the table `model` names."""
    aspects = settings.get("aspects")
    if aspects is None:
        return spec
    names = isinstance(aspects, (list, tuple)) and all(isinstance(name, str) and name for name in aspects)
    if not names or not aspects or len(set(aspects)) < len(aspects):
        raise ConfigError(f"model settings: aspects must be a list of different names, got {aspects!r}")
    return spec.with_aspects(aspects)
