"""One training run: loads the rows, trains and evaluates the network, and writes the checkpoint and its record."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from reward.errors import ConfigError
from reward.metrics.base import MetricSpec
from reward.training.config import TrainingConfig
from reward.training.evaluation import evaluate_parts, figures_of
from reward.training.record import STATES, check_output, write_record
from reward.training.rows import TrainingRows, load_rows, make_order

if TYPE_CHECKING:
    from torch import nn

    from reward.training.trainer import MetricTrainer

__all__ = ["MetricTraining", "TrainingResult", "train_once", "use_cpu"]


class MetricTraining(Protocol):
    """What the module `training.py` in a metric's folder provides.

    The network is called with the batch of the collator without `labels`. Its output has `scores` of shape (N,), and
    `logits` of the same shape if `LOSSES` holds `"bce"`. A metric that can be trained in stages also has
    `load_model(folder, settings)`, which returns the network of a checkpoint folder for further training.
    """

    LOSSES: tuple[str, ...]
    PRESETS: Mapping[str, Mapping[str, Any]]

    def make_model(self, settings: Mapping[str, Any], *, texts: Callable[[], list[str]], precision: str) -> nn.Module:
        """A new network from the table `model` of a configuration; `texts` returns captions for a new tokenizer."""
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
            a second entry `"<part> (reference-free)"`. After stages, these are the figures of the last one.
        steps: optimizer steps taken, in the last stage.
        best_step: step of the checkpoint that was kept.
        stages: {name: outcome of the stage}, in order; empty for a run without stages.
    """

    folder: Path
    figures: dict[str, dict[str, float]]
    steps: int
    best_step: int
    stages: Mapping[str, TrainingResult] = field(default_factory=dict)


def train_once(
    training: MetricTraining,
    spec: MetricSpec,
    data: str | os.PathLike[str],
    output: Path,
    config: TrainingConfig,
    *,
    resume: bool,
    command: str | None,
    start: str | os.PathLike[str] | None = None,
    on_start: Callable[[], None] = lambda: None,
) -> TrainingResult:
    """One run without stages, or one stage; see `reward.training.loop.train`.

    Args:
        on_start: called in the main process before the first step, when data and settings have been checked.
    """
    from accelerate import PartialState
    from transformers import set_seed

    from reward.training.card import make_card
    from reward.training.trainer import has_stopped, last_checkpoint

    process = PartialState(cpu=use_cpu())
    record = {"metric": spec.name, "data": str(data), "config": config.to_dict()}
    if start is not None:
        record["start"] = os.path.relpath(start, output)  # so that both can be moved together
    if process.is_main_process:
        check_output(output, record, resume=resume)
    process.wait_for_everyone()
    began = time.monotonic()

    rows = load_rows(spec, data, config)
    set_seed(config.seed)  # before the network: heads and adapters start from random numbers
    if start is None:
        model = training.make_model(config.model, texts=rows.parts[config.train_part].texts, precision=config.precision)
    else:
        model = training.load_model(Path(start), config.model)  # type: ignore[attr-defined]  # `train` checked that it has it
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError("model settings: every weight is frozen, so there is nothing to train")
    trainer = _make_trainer(model, training.make_collator(model), spec, rows, output / STATES, config)
    if process.is_main_process:
        on_start()
        if not resume:
            write_record(output, record)  # not earlier: a command that failed on its settings leaves nothing to resume
    state = last_checkpoint(output / STATES) if resume else None
    if state is not None and has_stopped(state, config.patience):
        trainer.restore_best(state)  # killed after its last step; the Trainer would take one more
    else:
        trainer.train(resume_from_checkpoint=str(state) if state is not None else None)

    figures = evaluate_parts(trainer, rows.parts, config, spec)
    steps, best = trainer.state.global_step, trainer.state.best_global_step or trainer.state.global_step
    result = TrainingResult(output, figures, steps, best)
    if process.is_main_process:
        facts = {
            **record,
            "command": command,
            "rows": {part: len(part_rows) for part, part_rows in rows.parts.items()},
            "pairs": rows.counts(),
            "steps": steps,
            "best_step": best,
            "processes": process.num_processes,
            "device": str(trainer.args.device),
            "seconds": round(time.monotonic() - began),
            "resumed": state is not None,
            "figures": figures,
            "history": trainer.state.log_history,
        }
        training.save_model(model, output, card=make_card(spec, facts))
        write_record(output, facts)
        shutil.rmtree(output / STATES, ignore_errors=True)
    process.wait_for_everyone()
    return result


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
        metric_for_best_model="loss" if config.loss == "bce" else "tau_c",
        greater_is_better=config.loss != "bce",
        restore_callback_states_from_checkpoint=True,  # how much of the patience is used up
        dataloader_num_workers=config.workers,
        dataloader_pin_memory=torch.cuda.is_available(),
        remove_unused_columns=False,
        label_names=["labels", "aspect", "pair"] if config.loss == "bce" else ["labels", "aspect"],
        logging_steps=20,
        report_to="none",
        use_cpu=use_cpu(),
        ddp_find_unused_parameters=False,
    )
    if args.n_gpu > 1:
        raise ConfigError("several GPUs in one process are not supported: start the run with `accelerate launch`")

    held_out = rows.parts[config.validation_part]
    trainer = MetricTrainer(
        model,
        order=make_order(rows.train, config, args),
        loss=config.loss,
        pair_weight=config.pair_weight,
        args=args,
        data_collator=partial(with_pair_numbers, collate),
        train_dataset=rows.train,
        eval_dataset=held_out.sorted_by_length(),
        compute_metrics=lambda prediction: figures_of(prediction, held_out, spec),
        callbacks=[EarlyStoppingCallback(early_stopping_patience=config.patience)],
    )
    if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        raise ConfigError("DeepSpeed and FSDP are not supported: start the processes with plain data parallelism")
    return trainer


def with_pair_numbers(
    collate: Callable[[Sequence[Mapping[str, Any]]], dict[str, Any]], rows: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The batch and, if it holds pairs, the number of each row's pair; -1 for a rated row."""
    import torch

    batch = collate(rows)
    if any("pair" in row for row in rows):
        batch["pair"] = torch.tensor([row.get("pair", -1) for row in rows])
    return batch
