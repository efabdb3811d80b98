"""One training run: loads the rows, trains and evaluates the network, and writes the checkpoint and its record."""

from __future__ import annotations

import shutil
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from reward.errors import ConfigError
from reward.metrics.base import MetricSpec
from reward.training.caption_pairs import CaptionPairs
from reward.training.config import PAIR_LOSSES, TrainingConfig
from reward.training.figures import compare_figures, evaluate_parts, figures_of, predicted_figures
from reward.training.record import STAGES, STATES, check_run_folder, is_complete, read_record, write_record
from reward.training.rows import TrainingRows, make_order
from reward.training.splits import TRAIN, VALIDATION

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

    def load_for_training(self, folder: Path, settings: Mapping[str, Any], *, precision: str) -> nn.Module:
        """The network of a checkpoint folder, to be trained on; what `settings` say of its architecture is ignored."""
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
            ..., "accuracy_<category>": ..., "auc": ..., "n": pairs, "low": ..., "high": ...}}, the last two the ends of
            the accuracy's 95 % interval. A part that is also scored without references has
            a second entry `"<part> (reference-free)"`. After stages, these are the figures of the last one.
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


def train_stage(
    training: MetricTraining,
    spec: MetricSpec,
    rows: Mapping[str, TrainingRows],
    output: Path,
    config: TrainingConfig,
    record: dict[str, Any],
    process: PartialState,
    *,
    resume: bool,
    start: Path | None,
    command: str | None,
    ready: Callable[[], None],
) -> TrainingResult:
    """Trains one network with one configuration; see `reward.training.loop.train`.

    Args:
        rows: {part: rows}.
        record: what the run is known by. With `init`, the result is compared with the checkpoint that it names.
        process: one of those of the run.
        resume: go on with the run that `output` holds.
        start: checkpoint folder to go on from, instead of a new network.
        command: the command that started the run, for the model card.
        ready: called before the first step, when data and settings have been checked.
    """
    from transformers import set_seed

    from reward.training.card import make_card
    from reward.training.trainer import has_stopped, last_checkpoint

    began = time.monotonic()
    set_seed(config.seed)  # before the network: heads and adapters start from random numbers
    if start is None:
        model = training.make_model(config.model, texts=rows[TRAIN].texts, precision=config.precision)
    else:
        model = training.load_for_training(start, config.model, precision=config.precision)
    trained = [name for name, value in model.named_parameters() if value.requires_grad]
    for part in config.learning_rates or ():
        if not any(name.startswith(part) for name in trained):
            tops = ", ".join(dict.fromkeys(name.partition(".")[0] for name in trained))
            raise ConfigError(f"learning_rates: no trained parameter begins with {part!r}; they begin with {tops}")
    if process.is_main_process:
        ready()
        if not resume:
            output.mkdir(parents=True, exist_ok=True)
            write_record(output, record)  # not earlier: a command that failed on its settings leaves nothing to resume
    trainer = _make_trainer(model, training.make_collator(model), spec, rows, output / STATES, config)
    state = last_checkpoint(output / STATES) if resume else None
    before = None
    if state is not None:
        before = (read_record(output) or {}).get("before")
    if "init" in record and before is None:
        # with which the result is compared: a training that only does harm must not look like a success
        before = predicted_figures(trainer, rows[VALIDATION], spec)
        if process.is_main_process:
            write_record(output, {**record, "before": before})
        set_seed(config.seed)  # a resumed run does not evaluate here
    if state is not None and has_stopped(state, config.patience):
        trainer.restore_best(state)  # killed after its last step; the Trainer would take one more
    else:
        trainer.train(resume_from_checkpoint=None if state is None else str(state))

    figures = evaluate_parts(trainer, rows, config, spec)
    steps = trainer.state.global_step
    best_step = trainer.state.best_global_step or steps
    if process.is_main_process:
        facts = {
            **record,
            "command": command,
            "rows": {part: len(rows_of_part) for part, rows_of_part in rows.items()},
            "pairs": {part: pairs.counts() for part, pairs in rows.items() if isinstance(pairs, CaptionPairs)},
            "steps": steps,
            "best_step": best_step,
            "processes": process.num_processes,
            "device": str(trainer.args.device),
            "seconds": round(time.monotonic() - began),
            "resumed": state is not None,
            "figures": figures,
            "history": trainer.state.log_history,
        }
        if before is not None:
            facts["before"] = before
            words, rise = compare_figures(before, figures[VALIDATION])
            if rise <= 0:
                fix = "Train longer, with another learning_rate, or on more data"
                warnings.warn(f"the training did not help on the part {VALIDATION!r}: {words}. {fix}", stacklevel=2)
        training.save_model(model, output, card=make_card(spec, facts))
        write_record(output, facts)
        shutil.rmtree(output / STATES, ignore_errors=True)
    process.wait_for_everyone()
    return TrainingResult(output, figures, steps, best_step, before=before)


def finished(folder: Path) -> TrainingResult | None:
    """What a folder's record says of its run; None if there is none, or an unfinished one."""
    record = read_record(folder)
    if record is None or not is_complete(folder):
        return None
    before = record.get("before")
    stages = {}
    for name in record.get("stages", ()):
        stage = finished(folder / STAGES / name)
        if stage is not None:
            stages[name] = stage
    if stages:
        before = next(iter(stages.values())).before
    return TrainingResult(folder, record["figures"], record["steps"], record["best_step"], stages, before)


def begin(output: Path, record: Mapping[str, Any], *, resume: bool) -> PartialState:
    """The processes of a run, after the main one has checked its folder; see `check_run_folder`."""
    from accelerate import PartialState

    process = PartialState(cpu=use_cpu())
    if process.is_main_process:
        check_run_folder(output, record, resume=resume)
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
    rows: Mapping[str, TrainingRows],
    states: Path,
    config: TrainingConfig,
) -> MetricTrainer:
    import torch
    from transformers import EarlyStoppingCallback, TrainingArguments

    from reward.training.trainer import MetricTrainer

    # The Trainer keeps the best checkpoint only if it saves whenever it evaluates.
    interval = "steps" if config.eval_steps else "epoch"
    is_pairs = config.loss in PAIR_LOSSES
    schedule: str = config.schedule
    if schedule == "constant":
        schedule = "constant_with_warmup"
    args = TrainingArguments(
        output_dir=str(states),
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        adam_beta1=0.9,
        adam_beta2=0.999,
        lr_scheduler_type=schedule,
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
        eval_strategy=interval,
        save_strategy=interval,
        eval_steps=config.eval_steps,
        save_steps=config.eval_steps or 500,
        save_total_limit=2,
        load_best_model_at_end=True,
        # The accuracy on some hundred pairs jumps by whole points while the loss still falls.
        metric_for_best_model="loss" if is_pairs else "tau_c",
        greater_is_better=not is_pairs,
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

    trainer = MetricTrainer(
        model,
        order=make_order(rows[TRAIN], config, args),
        loss=config.loss,
        learning_rates=config.learning_rates,
        args=args,
        data_collator=collate,
        train_dataset=rows[TRAIN],
        eval_dataset=rows[VALIDATION].sorted_by_length(),  # the order changes no figure, and saves padding
        compute_metrics=lambda prediction: figures_of(prediction, rows[VALIDATION], spec),
        callbacks=[EarlyStoppingCallback(early_stopping_patience=config.patience)],
    )
    if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        raise ConfigError("DeepSpeed and FSDP are not supported: start the processes with plain data parallelism")
    return trainer
