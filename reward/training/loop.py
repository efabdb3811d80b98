"""`train`: one run of training, or several stages, from a data set and settings to a checkpoint folder."""

from __future__ import annotations

import importlib
import os
import shutil
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reward.checkpoints.fingerprints import fingerprint_checkpoint
from reward.checkpoints.folders import read_config, resolve_checkpoint
from reward.errors import ConfigError
from reward.metrics.base import MetricSpec
from reward.registry import check_loading, list_metrics, metric_spec
from reward.training.config import TrainingConfig
from reward.training.record import RECORD_FILE, STAGES, read_record, write_record
from reward.training.rows import TrainingRows, load_rows
from reward.training.splits import TRAIN
from reward.training.stage import MetricTraining, TrainingResult, begin, finished, train_stage

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


def trainable_metrics() -> list[str]:
    """Names of the metrics that can be trained.

    Example:
        >>> "vela" in trainable_metrics()
        True
    """
    names = []
    for name in list_metrics():
        package = metric_spec(name).scorer.partition(":")[0].rpartition(".")[0]
        if find_spec(f"{package}.training") is not None:
            names.append(name)
    return names


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
        data: see `reward.training.splits.load_splits`. The rows of several data sets are taken together; all must have
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
    for stage in stages.values():
        if stage.precision == "fp16" and not torch.cuda.is_available():
            raise ConfigError("precision fp16 needs a CUDA device: use bf16 or fp32")
        if stage.loss not in training.LOSSES:
            losses = ", ".join(training.LOSSES)
            raise ConfigError(f"{spec.name} cannot be trained with the loss {stage.loss}; known: {losses}")
    if isinstance(data, (str, os.PathLike)):
        data = [data]
    names = [os.fspath(name) for name in data]
    if not names or len(set(names)) < len(names):
        raise ConfigError(f"name each data set once, and at least one, got {names}")
    output = Path(output)
    # What a run is recognised by when it is resumed.
    record: dict[str, Any] = {
        "metric": spec.name,
        "data": names[0] if len(names) == 1 else names,
        "config": config.to_dict(),
    }
    start = None
    if init is not None:
        check_loading(init, metric=spec.name)
        start = resolve_checkpoint(init, model=spec.name)
        stated = sorted(config.model.keys() - {"gradient_checkpointing"})
        if stated:
            raise ConfigError(
                f"the checkpoint {os.fspath(init)!r} says what the network is: leave out the settings of model "
                f"{', '.join(stated)}, or train without a checkpoint"
            )
        if spec.sources == "checkpoint":  # a folder of this library, which may state aspects
            spec = _trained_spec(spec, read_config(start, metric=spec.name))
        record["init"] = {"source": os.fspath(init), "fingerprint": fingerprint_checkpoint(start)}
    process = begin(output, record, resume=resume)
    # Asked again for a run that is whole, nothing is trained: its record has all that the result holds.
    complete = finished(output)
    if complete is not None:
        return complete

    # What an earlier process left, which a resumed run keeps.
    folders = {name: output / STAGES / name if name else output for name in stages}
    results: dict[str, TrainingResult] = {}
    begun = set()
    for name, folder in folders.items():
        result = finished(folder)
        if result is not None:
            results[name] = result
        if read_record(folder) is not None:
            begun.add(name)
    process.wait_for_everyone()  # until all have looked
    # The rows of all stages, so that faulty data are reported now, not hours later.
    rows = {name: load_rows(spec, names, stage) for name, stage in stages.items() if name not in results}
    _warn_of_left_out(rows.values(), stages.values())

    def ready() -> None:
        on_ready()
        if config.stages and read_record(output) is None:
            write_record(output, record)

    # The first stage starts from `init`, each further one from the checkpoint of the stage before.
    facts = record
    for name, stage in stages.items():
        if name not in results:
            results[name] = train_stage(
                training,
                spec,
                rows[name],
                folders[name],
                stage,
                {**facts, "config": stage.to_dict()},
                process,
                resume=name in begun,
                start=start,
                command=command,
                ready=ready,
            )
        start = folders[name]
        facts = {"metric": record["metric"], "data": record["data"], "start": f"../{name}"}
    if not config.stages:
        return results[""]
    return _join_stages(spec, output, record, results, command, process)


def _warn_of_left_out(stages: Iterable[Mapping[str, TrainingRows]], configs: Iterable[TrainingConfig]) -> None:
    """Warns of kinds of errors in the data to train on that no stage trains."""
    left_out: dict[str, int] = {}
    for rows in stages:
        left_out |= getattr(rows[TRAIN], "left_out", {})
    for config in configs:
        for category in config.categories:
            left_out.pop(category, None)
    if left_out:
        kinds = ", ".join(f"{kind} ({count:,})" for kind, count in left_out.items())
        warnings.warn(
            f"the data have pairs of the kinds {kinds}, which no stage trains: name them in `categories`, or leave out "
            "their columns or rows",
            stacklevel=3,
        )


def _join_stages(
    spec: MetricSpec,
    output: Path,
    record: Mapping[str, Any],
    stages: dict[str, TrainingResult],
    command: str | None,
    process: PartialState,
) -> TrainingResult:
    """Copies the checkpoint of the last stage to the folder of the run, with a card and a record of all stages."""
    from reward.training.card import make_card

    first, last = next(iter(stages.values())), next(reversed(stages.values()))
    if process.is_main_process:
        for path in last.folder.iterdir():
            if path.name not in (RECORD_FILE, _CARD):
                shutil.copy2(path, output / path.name)
        facts = {**record, "command": command}
        records = {name: read_record(stage.folder) or {} for name, stage in stages.items()}
        (output / _CARD).write_text(make_card(spec, {**facts, "stages": records}), encoding="utf-8")
        facts |= {"figures": last.figures, "steps": last.steps, "best_step": last.best_step, "stages": list(stages)}
        write_record(output, facts)
    process.wait_for_everyone()
    return TrainingResult(output, last.figures, last.steps, last.best_step, stages, first.before)


def _trained_spec(spec: MetricSpec, settings: Mapping[str, Any]) -> MetricSpec:
    """The spec of the checkpoint that a run writes, with the aspects that the table `model` names."""
    aspects = settings.get("aspects")
    if aspects is None:
        return spec
    is_list = isinstance(aspects, (list, tuple)) and all(isinstance(name, str) and name for name in aspects)
    if not is_list or not aspects or len(set(aspects)) < len(aspects):
        raise ConfigError(f"model settings: aspects must be a list of different names, got {aspects!r}")
    return spec.with_aspects(aspects)
