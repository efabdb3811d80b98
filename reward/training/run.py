"""One training run: loads the rows, trains and evaluates the network, and writes the checkpoint and its record."""

from __future__ import annotations

import os
import shutil
import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from reward.errors import ConfigError
from reward.metrics.base import MetricSpec
from reward.training.config import TrainingConfig
from reward.training.evaluation import compare_figures, evaluate_parts, figures_of, joined_figures
from reward.training.record import STAGES, STATES, check_output, is_complete, read_record, write_record
from reward.training.rows import Joined, TrainingRows, load_rows, make_order

if TYPE_CHECKING:
    from accelerate import PartialState
    from torch import nn

    from reward.training.trainer import MetricTrainer


class MetricTraining(Protocol):
    """What the module `training.py` in a metric's folder provides.

    The network is called with the batch of the collator without `labels`. Its output has `scores` of shape (N,), and
    `logits` of the same shape if `LOSSES` holds `"bce"`.
    """

    LOSSES: tuple[str, ...]
    PRESETS: Mapping[str, Mapping[str, Any]]

    def make_model(self, settings: Mapping[str, Any], *, texts: Callable[[], list[str]], precision: str) -> nn.Module:
        """A new network from the table `model` of a configuration; `texts` returns captions for a new tokenizer."""
        ...

    def load_model(self, folder: Path, settings: Mapping[str, Any], *, precision: str) -> nn.Module:
        """The network of a checkpoint folder, to be trained on; what `settings` say of its architecture is ignored."""
        ...

    def checkpoint_settings(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """A checkpoint's config.json in the form of the table `model`."""
        ...

    def make_collator(self, model: nn.Module) -> Callable[[Sequence[Mapping[str, Any]]], dict[str, Any]]:
        """A function from rows to a batch: first `labels` (N,) and `aspect` (N,), then the other inputs."""
        ...

    def save_model(self, model: nn.Module, folder: Path, *, card: str) -> None:
        """Writes a checkpoint folder that the metric's scorer can load."""
        ...


@dataclass(frozen=True)
class TrainingResult:
    """Outcome of a run.

    Args:
        folder: the checkpoint.
        figures: {part: {"tau_c": ..., "tau_c_<aspect>": ..., "mse": ..., "n": ...}}, or for pairs {part: {"accuracy":
            ..., "accuracy_<category>": ..., "auc": ..., "n": pairs}}. A part that is also scored without references has
            a second entry `"<part> (reference-free)"`. Of several data sets, parts are called `"<part> of <data set>"`,
            and the validation part has the means weighted by the shares. After stages, these are the figures of the
            last one.
        steps: optimizer steps taken, in the last stage.
        best_step: step of the checkpoint that was kept.
        stages: {name: outcome of the stage}, in order; empty for a run without stages.
        before: figures on the validation part of the checkpoint that the run, or its first stage, went on from.
    """

    folder: Path
    figures: dict[str, dict[str, float]]
    steps: int
    best_step: int
    stages: Mapping[str, TrainingResult] = field(default_factory=dict)
    before: Mapping[str, float] | None = None


def train_once(
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
    other_stages: Collection[str] = (),
    on_start: Callable[[], None] = lambda: None,
) -> TrainingResult:
    """One run without stages, or one stage; see `reward.training.loop.train`.

    Args:
        data: {data set: share}.
        on_ready: see `train`.
        start: checkpoint folder to go on from, instead of a new network.
        init: where `start` came from, for the record, if not from the stage before.
        other_stages: kinds of errors that other stages train.
        on_start: called in the main process before the first step, when data and settings have been checked.
    """
    from transformers import set_seed

    from reward.training.card import make_card
    from reward.training.trainer import has_stopped, last_checkpoint

    record = first_record(spec, data, config, init)
    if init is None and start is not None:
        record["start"] = os.path.relpath(start, output)  # so that both can be moved together
    process = begin(output, record, resume=resume)
    if (complete := finished(output)) is not None:
        return complete
    began = time.monotonic()

    rows = load_rows(spec, data, config)
    rows.warn_of_left_out(other_stages)
    set_seed(config.seed)  # before the network: heads and adapters start from random numbers
    model = _make_network(training, config, rows, start)
    if process.is_main_process:
        on_ready()
    trainer = _make_trainer(model, training.make_collator(model), spec, rows, output / STATES, config)
    if process.is_main_process:
        on_start()
        if not resume:
            write_record(output, record)  # not earlier: a command that failed on its settings leaves nothing to resume
    state = last_checkpoint(output / STATES) if resume else None
    before = (read_record(output) or {}).get("before") if state is not None else None
    if init is not None and before is None:
        # with which the result is compared: a training that only does harm must not look like a success
        before = evaluate_parts(trainer, rows, config, spec, (config.validation_part,))[config.validation_part]
        if process.is_main_process:
            write_record(output, {**record, "before": before})
        set_seed(config.seed)  # a resumed run does not evaluate here
    if state is not None and has_stopped(state, config.patience):
        trainer.restore_best(state)  # killed after its last step; the Trainer would take one more
    else:
        trainer.train(resume_from_checkpoint=str(state) if state is not None else None)

    figures = evaluate_parts(trainer, rows, config, spec)
    steps, best = trainer.state.global_step, trainer.state.best_global_step or trainer.state.global_step
    result = TrainingResult(output, figures, steps, best, before=before)
    if process.is_main_process:
        if before is not None:
            words, rise = compare_figures(before, figures[config.validation_part])
            if rise <= 0:
                where = f"the part {config.validation_part!r}: {words}"
                fix = "Train longer, with another learning_rate, or on more data"
                warnings.warn(f"the training did not help on {where}. {fix}", stacklevel=2)
        facts = {
            **record,
            "command": command,
            "rows": {part: len(part_rows) for part, part_rows in rows.parts().items()},
            "epoch": rows.per_epoch(),
            "pairs": rows.counts(),
            "steps": steps,
            "best_step": best,
            "processes": process.num_processes,
            "device": str(trainer.args.device),
            "seconds": round(time.monotonic() - began),
            "resumed": state is not None,
            **({} if before is None else {"before": before}),
            "figures": figures,
            "history": trainer.state.log_history,
        }
        training.save_model(model, output, card=make_card(spec, facts))
        write_record(output, facts)
        shutil.rmtree(output / STATES, ignore_errors=True)
    process.wait_for_everyone()
    return result


def _make_network(
    training: MetricTraining, config: TrainingConfig, rows: TrainingRows, start: Path | None
) -> nn.Module:
    """The network to train: a new one, or that of a checkpoint folder."""
    if start is None:
        model = training.make_model(config.model, texts=rows.texts, precision=config.precision)
    else:
        model = training.load_model(start, config.model, precision=config.precision)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError("model settings: every weight is frozen, so there is nothing to train")
    return model


def first_record(
    spec: MetricSpec, data: Mapping[str, float], config: TrainingConfig, init: Mapping[str, str] | None
) -> dict[str, Any]:
    """What a run is known by, and what must be the same when it is resumed."""
    names: Any = [f"{source}:{share:g}" for source, share in data.items()] if len(data) > 1 else next(iter(data))
    record = {"metric": spec.name, "data": names, "config": config.to_dict()}
    return record if init is None else {**record, "init": init}


def finished(folder: Path) -> TrainingResult | None:
    """What a folder's record says of its run; None if there is none, or an unfinished one."""
    record = read_record(folder)
    if record is None or not is_complete(folder):
        return None
    stages = {name: finished(folder / STAGES / name) for name in record.get("stages", ())}
    before = next((stage.before for stage in stages.values() if stage is not None), record.get("before"))
    done = {name: stage for name, stage in stages.items() if stage is not None}
    return TrainingResult(folder, record["figures"], record["steps"], record["best_step"], done, before)


def begin(output: Path, record: Mapping[str, Any], *, resume: bool) -> PartialState:
    """The processes of a run, after the main one has checked its folder; see `check_output`."""
    from accelerate import PartialState

    process = PartialState(cpu=use_cpu())
    if process.is_main_process:
        check_output(output, record, resume=resume)
    process.wait_for_everyone()
    return process


def use_cpu() -> bool:
    """Whether to train on the CPU, which accelerate must be told before it joins processes without an accelerator."""
    import torch
    from accelerate.utils import parse_flag_from_env

    return parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.accelerator.is_available()


def _make_trainer(
    model: nn.Module,
    collate: Callable[[Sequence[Mapping[str, Any]]], dict[str, Any]],
    spec: MetricSpec,
    rows: TrainingRows,
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
        # The accuracy on some hundred pairs jumps by whole points while the loss still falls.
        metric_for_best_model="tau_c" if config.loss != "bce" else "loss" if len(rows.sets) == 1 else "share_loss",
        greater_is_better=config.loss != "bce",
        restore_callback_states_from_checkpoint=True,  # how much of the patience is used up
        dataloader_num_workers=config.workers,
        dataloader_pin_memory=torch.cuda.is_available(),
        remove_unused_columns=False,
        label_names=["labels", "aspect"],
        logging_steps=20,
        report_to="none",
        use_cpu=use_cpu(),
        ddp_find_unused_parameters=False,
    )
    if args.n_gpu > 1:
        raise ConfigError("several GPUs in one process are not supported: start the run with `accelerate launch`")

    held_out = rows.of_part(config.validation_part)

    def compute_metrics(prediction: Any) -> dict[str, float]:
        if len(rows.sets) == 1:
            return figures_of(prediction, held_out[next(iter(rows.sets))], spec)
        return joined_figures(prediction, held_out, rows.shares, spec)

    trainer = MetricTrainer(
        model,
        order=make_order(rows, config, args),
        loss=config.loss,
        args=args,
        data_collator=collate,
        train_dataset=rows.train,
        eval_dataset=Joined([part.sorted_by_length() for part in held_out.values()]),
        compute_metrics=compute_metrics,
        callbacks=[EarlyStoppingCallback(early_stopping_patience=config.patience)],
    )
    if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        raise ConfigError("DeepSpeed and FSDP are not supported: start the processes with plain data parallelism")
    return trainer
