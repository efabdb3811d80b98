"""`train`: one run of training, or several stages, from a data set and settings to a checkpoint folder."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from reward.checkpoints import read_config, resolve_checkpoint
from reward.errors import ConfigError
from reward.fingerprints import fingerprint_source
from reward.metrics.base import MetricSpec
from reward.registry import check_loading, metric_spec
from reward.training.config import TrainingConfig
from reward.training.record import RECORD_FILE, STAGES, read_record, write_record
from reward.training.rows import load_rows
from reward.training.run import MetricTraining, TrainingResult, begin, finished, first_record, train_once
from reward.training.shares import make_shares

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
    data: str | os.PathLike[str] | Mapping[str, float | None],
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
        data: see `reward.training.data.load_parts`, and for pairs `reward.training.pairs.load_pairs`. Several, as
            {data set: share, or None for a part of what is left}, are mixed: an epoch takes all rows of the first and,
            chosen by seed and epoch, as many of the others as make up their shares, repeated where they have fewer. The
            figures that stop the training are means over the data sets with a validation part, weighted by the shares.
        output: the checkpoint folder, made if absent.
        config: settings; see `TrainingConfig`.
        resume: continue from the last state in `output`; the result is that of an unbroken run. A complete run with
            these settings is not trained again.
        command: the command that started the run, for the model card.
        init: folder or Hub id of a checkpoint of this metric to go on from, with its architecture, tokenizer and
            weights; `config.model` may be empty. The result compares the figures before and after.
        on_ready: called in the main process before the run, or each stage, when its data and network are there.

    Returns:
        Figures on the validation and test parts, and the folder of the checkpoint.
    """
    spec = _trained_spec(metric_spec(metric), config.model)
    training = metric_training(spec)
    losses = {config.stage(name).loss for name in config.stages} or {config.loss}
    if unfit := sorted(losses - set(training.LOSSES)):
        raise ConfigError(
            f"{spec.name} cannot be trained with the loss {unfit[0]}; known: {', '.join(training.LOSSES)}"
        )
    shares = make_shares(data)
    options: dict[str, Any] = {"resume": resume, "command": command, "on_ready": on_ready}
    if init is not None:
        check_loading(init, metric=spec.name)
        folder = resolve_checkpoint(init, metric=spec.name)
        settings = training.checkpoint_settings(read_config(folder, metric=spec.name))
        if differing := list(_contradictions("model", config.model, settings)):
            raise ConfigError(
                f"the settings contradict the checkpoint {os.fspath(init)!r}: {'; '.join(differing)}. Leave "
                "them out, or train without a checkpoint"
            )
        spec = _trained_spec(spec, settings)
        options |= {"start": folder, "init": {"source": os.fspath(init), "fingerprint": fingerprint_source(folder)}}
    run = _train_stages if config.stages else train_once
    return run(training, spec, shares, Path(output), config, **options)


def _contradictions(name: str, stated: Any, held: Any) -> Iterator[str]:
    """What the settings say of a checkpoint that is not so; what they do not say is taken from it."""
    if isinstance(stated, Mapping) and isinstance(held, Mapping):
        for key, value in stated.items():
            if key != "gradient_checkpointing":  # changes memory and time, and nothing else
                yield from _contradictions(f"{name}.{key}", value, held.get(key))
    elif stated != held and (stated or held):
        yield f"{name} is {stated!r}, and of the checkpoint {held!r:.200}"


def _train_stages(
    training: MetricTraining,
    spec: MetricSpec,
    data: Mapping[str, float],
    output: Path,
    config: TrainingConfig,
    *,
    resume: bool,
    command: str | None,
    on_ready: Callable[[], None],
    start: Path | None = None,
    init: Mapping[str, str] | None = None,
) -> TrainingResult:
    """Trains the stages of a configuration one after the other; see `train`."""
    from reward.training.card import make_card

    record = first_record(spec, data, config, init)
    process = begin(output, record, resume=resume)
    if (complete := finished(output)) is not None:
        return complete
    results: dict[str, TrainingResult] = {}
    for name in config.stages:
        if (done := finished(output / STAGES / name)) is not None:
            results[name] = done
        else:
            load_rows(spec, data, config.stage(name))  # so that faulty data are reported now, not hours later

    def write_first_record() -> None:
        if read_record(output) is None:
            write_record(output, record)

    kinds = {kind for name in config.stages for kind in config.stage(name).categories}
    for name in config.stages:
        folder = output / STAGES / name
        if name not in results:
            begun = read_record(folder) is not None
            try:
                results[name] = train_once(
                    *(training, spec, data, folder, config.stage(name)),
                    resume=begun,
                    command=command,
                    start=start,
                    init=init,
                    other_stages=kinds,
                    on_ready=on_ready,
                    on_start=write_first_record,
                )
            finally:
                if process.is_main_process:
                    for empty in (folder, output / STAGES):  # of a stage that did not begin, for a corrected command
                        if empty.is_dir() and not any(empty.iterdir()):
                            empty.rmdir()
        start, init = folder, None

    last = results[name]
    if process.is_main_process:
        for path in last.folder.iterdir():
            if path.name not in (RECORD_FILE, _CARD):
                shutil.copy2(path, output / path.name)
        stages = {name: read_record(output / STAGES / name) or {} for name in config.stages}
        told = {**record, "command": command}
        (output / _CARD).write_text(make_card(spec, {**told, "stages": stages}), encoding="utf-8")
        figures = {"figures": last.figures, "steps": last.steps, "best_step": last.best_step}
        write_record(output, {**told, **figures, "stages": list(stages)})
    process.wait_for_everyone()
    return TrainingResult(
        output, last.figures, last.steps, last.best_step, results, next(iter(results.values())).before
    )


def _trained_spec(spec: MetricSpec, settings: Mapping[str, Any]) -> MetricSpec:
    """The spec of the checkpoint that a run writes, with the aspects that the table `model` names."""
    aspects = settings.get("aspects")
    if aspects is None:
        return spec
    names = isinstance(aspects, (list, tuple)) and all(isinstance(name, str) and name for name in aspects)
    if not names or not aspects or len(set(aspects)) < len(aspects):
        raise ConfigError(f"model settings: aspects must be a list of different names, got {aspects!r}")
    return spec.with_aspects(aspects)
