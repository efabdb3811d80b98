"""The one training loop: data and a metric's plug in, a checkpoint folder with its card out."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from reward.errors import ConfigError, OutputError
from reward.metrics.base import MetricSpec
from reward.registry import metric_spec
from reward.training.config import TrainingConfig
from reward.training.data import Judgements, load_parts, make_judgements
from reward.training.evaluation import agreement

if TYPE_CHECKING:
    from torch import nn

    from reward.training.trainer import MetricTrainer

__all__ = ["TrainingPlug", "TrainingResult", "train", "training_plug"]

RECORD_FILE = "training.json"
_STATES = "checkpoints"


class TrainingPlug(Protocol):
    """What the module `training.py` of a metric's folder offers.

    The network is called with what the collator gives except `labels`; its output has `scores` of shape (N,).
    """

    PRESETS: Mapping[str, Mapping[str, Any]]

    def make_model(self, settings: Mapping[str, Any], *, texts: Callable[[], list[str]], precision: str) -> nn.Module:
        """A network to train from the `model` table of a configuration; `texts` gives captions for a new tokenizer."""
        ...

    def make_collator(self, model: nn.Module) -> Callable[[Sequence[Mapping[str, Any]]], dict[str, Any]]:
        """Judgements to a batch: first `labels` (N,) and `aspect` (N,), then what else the network needs."""
        ...

    def save_model(self, model: nn.Module, folder: Path, *, card: str) -> None:
        """Writes a checkpoint folder that the metric's scorer reads."""
        ...


@dataclass(frozen=True)
class TrainingResult:
    """Outcome of a run.

    Args:
        folder: the checkpoint.
        figures: {part: {"tau_c": ..., "tau_c_<aspect>": ..., "mse": ..., "n": ...}}; a part shown without references
            as well has a second entry `"<part> (reference-free)"`.
        steps: optimizer steps taken.
        best_step: step of the checkpoint that was kept.
    """

    folder: Path
    figures: dict[str, dict[str, float]]
    steps: int
    best_step: int


def training_plug(spec: MetricSpec) -> TrainingPlug:
    """The training module of a metric.

    Raises:
        ConfigError: the metric cannot be trained.

    Example:
        >>> sorted(training_plug(metric_spec("vela")).PRESETS)
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
    data: str | os.PathLike[str],
    output: str | os.PathLike[str],
    config: TrainingConfig,
    *,
    resume: bool = False,
    command: str | None = None,
) -> TrainingResult:
    """Trains a metric on human judgments and writes a checkpoint folder.

    Runs on the device that accelerate chooses; started by `accelerate launch` or `torchrun`, it uses all processes. The
    state of an unfinished run lies in `<output>/checkpoints` and is removed when the checkpoint is complete.

    Args:
        metric: registry name.
        data: see `reward.training.data.load_parts`.
        output: the checkpoint folder, made if absent.
        config: settings; see `TrainingConfig`.
        resume: go on from the last state in `output`, which gives what an unbroken run would have given.
        command: how the run was started, for the model card.

    Returns:
        Figures on the validation and test parts, and where the checkpoint is.

    Raises:
        ConfigError: the metric has no training, or its own settings are refused.
        DataError: the data set cannot be loaded or lacks parts, columns or ratings.
        OutputError: the folder holds something already, or another run's state.
    """
    from accelerate import PartialState
    from transformers import set_seed

    from reward.training.card import make_card
    from reward.training.trainer import has_stopped, last_checkpoint

    spec = metric_spec(metric)
    plug = training_plug(spec)
    output = Path(output)
    process = PartialState(cpu=_use_cpu())
    record = {"metric": metric, "data": str(data), "config": config.to_dict()}
    if process.is_main_process:
        _check_output(output, record, resume=resume)
    process.wait_for_everyone()
    start = time.monotonic()

    splits, root = load_parts(data, config)
    parts = {
        part: make_judgements(splits, part, spec, config, root=root)
        for part in (config.train_part, config.validation_part)
    }
    tests = [part for part in config.test_parts if any(name.partition(".")[0] == part for name in splits)]
    parts |= {part: make_judgements(splits, part, spec, config, root=root) for part in tests}

    set_seed(config.seed)  # before the network: heads and adapters start from random numbers
    model = plug.make_model(config.model, texts=parts[config.train_part].texts, precision=config.precision)
    trainer = _make_trainer(model, plug, spec, parts, output / _STATES, config)
    if process.is_main_process and not resume:
        _write_record(output, record)  # not before: a folder that holds nothing but a mistake needs no resuming
    state = last_checkpoint(output / _STATES) if resume else None
    if state is not None and has_stopped(state, config.patience):
        trainer.restore_best(state)  # killed after its last step: the Trainer would take one more
    else:
        trainer.train(resume_from_checkpoint=str(state) if state is not None else None)

    figures = _evaluate(trainer, parts, config, spec)
    steps, best = trainer.state.global_step, trainer.state.best_global_step or trainer.state.global_step
    result = TrainingResult(output, figures, steps, best)
    if process.is_main_process:
        facts = {
            **record,
            "command": command,
            "rows": {part: len(rows) for part, rows in parts.items()},
            "steps": steps,
            "best_step": best,
            "processes": process.num_processes,
            "device": str(trainer.args.device),
            "seconds": round(time.monotonic() - start),
            "resumed": state is not None,
            "figures": figures,
            "history": trainer.state.log_history,
        }
        plug.save_model(model, output, card=make_card(spec, facts))
        _write_record(output, facts)
        shutil.rmtree(output / _STATES, ignore_errors=True)
    process.wait_for_everyone()
    return result


def _use_cpu() -> bool:
    """Whether to train on the CPU, which accelerate must be told before it joins processes without an accelerator."""
    import torch
    from accelerate.utils import parse_flag_from_env

    return parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.accelerator.is_available()


def _check_output(output: Path, record: Mapping[str, Any], *, resume: bool) -> None:
    """Checks that the folder is free, or holds an unfinished run of the same settings that is to be resumed."""
    path = output / RECORD_FILE
    if resume:
        if not path.is_file():
            raise OutputError(f"there is no run to resume in {output}")
        found = json.loads(path.read_text(encoding="utf-8"))
        if "figures" in found and not (output / _STATES).exists():
            raise OutputError(f"the run in {output} is complete; there is nothing to resume")
        differing = [what for name in record for what in _differences(name, found.get(name), record[name])]
        if differing:
            raise OutputError(f"cannot resume in {output} with other settings: {', '.join(differing)}")
        return
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        hint = "resume the run in it, or give another folder" if path.is_file() else "give another folder"
        raise OutputError(f"the output folder {output} is not empty: {hint}")
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write to the output folder {output}: {error.strerror}") from error


def _differences(name: str, was: Any, now: Any) -> list[str]:
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        keys = dict.fromkeys([*was, *now])
        return [what for key in keys for what in _differences(f"{name}.{key}", was.get(key), now.get(key))]
    return [] if was == now else [f"{name} was {was!r} and is {now!r}"]


def _write_record(output: Path, record: Mapping[str, Any]) -> None:
    path = output / RECORD_FILE
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)


def _make_trainer(
    model: nn.Module,
    plug: TrainingPlug,
    spec: MetricSpec,
    parts: Mapping[str, Judgements],
    states: Path,
    config: TrainingConfig,
) -> MetricTrainer:
    import torch
    from transformers import EarlyStoppingCallback, TrainingArguments

    from reward.training.trainer import MetricTrainer

    moments = "steps" if config.eval_steps else "epoch"
    if config.precision == "fp16" and not torch.cuda.is_available():
        raise ConfigError("precision fp16 needs a CUDA device: use bf16 or fp32")
    args = TrainingArguments(
        output_dir=str(states),
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        adam_beta1=0.9,
        adam_beta2=0.999,
        lr_scheduler_type=config.schedule if config.schedule != "constant" else "constant_with_warmup",
        warmup_steps=config.warmup_ratio,  # a float below 1 is a share of all steps
        max_grad_norm=config.max_grad_norm,
        per_device_train_batch_size=config.batch_size,
        per_device_eval_batch_size=config.eval_batch_size,
        gradient_accumulation_steps=config.accumulation,
        num_train_epochs=config.epochs,
        max_steps=config.max_steps or -1,
        bf16=config.precision == "bf16",
        fp16=config.precision == "fp16",
        seed=config.seed,
        data_seed=config.seed,
        eval_strategy=moments,
        save_strategy=moments,
        eval_steps=config.eval_steps,
        save_steps=config.eval_steps or 500,
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="tau_c",
        greater_is_better=True,
        restore_callback_states_from_checkpoint=True,  # the patience used up so far
        dataloader_num_workers=config.workers,
        dataloader_pin_memory=torch.cuda.is_available(),
        remove_unused_columns=False,
        label_names=["labels", "aspect"],
        logging_steps=20,
        report_to="none",
        use_cpu=_use_cpu(),
        ddp_find_unused_parameters=False,
    )
    if args.n_gpu > 1:
        raise ConfigError("several GPUs in one process are not supported: start the run with `accelerate launch`")

    def compute_metrics(prediction: Any) -> dict[str, float]:
        targets, aspect_ids = prediction.label_ids
        return agreement(prediction.predictions, targets, aspect_ids, spec.aspects)

    train_rows = parts[config.train_part]
    trainer = MetricTrainer(
        model,
        lengths=train_rows.lengths() if config.group_by_length else None,
        args=args,
        data_collator=plug.make_collator(model),
        train_dataset=train_rows,
        eval_dataset=parts[config.validation_part].sorted_by_length(),
        compute_metrics=compute_metrics,
        callbacks=[EarlyStoppingCallback(early_stopping_patience=config.patience)],
    )
    if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        raise ConfigError("DeepSpeed and FSDP are not supported: start the processes with plain data parallelism")
    return trainer


def _evaluate(
    trainer: MetricTrainer, parts: Mapping[str, Judgements], config: TrainingConfig, spec: MetricSpec
) -> dict[str, dict[str, float]]:
    figures: dict[str, dict[str, float]] = {}
    for part, rows in parts.items():
        if part == config.train_part:
            continue
        views = {part: rows}
        if 0 < config.reference_free_rate < 1:
            views[f"{part} (reference-free)"] = rows.without_references()
        for name, view in views.items():
            output = trainer.predict(view.sorted_by_length())
            targets, aspect_ids = output.label_ids
            found = agreement(output.predictions, targets, aspect_ids, spec.aspects)
            figures[name] = {**found, "n": len(targets)}
    return figures
