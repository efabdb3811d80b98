"""The one training loop: data and a metric's plug in, a checkpoint folder with its card out."""

from __future__ import annotations

import importlib
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from reward.errors import ConfigError, TrainingError
from reward.metrics.base import MetricSpec
from reward.registry import metric_spec
from reward.training.config import TrainingConfig
from reward.training.data import Judgements
from reward.training.evaluation import agreement, pair_accuracy
from reward.training.pairs import CaptionPairs
from reward.training.record import STATES, check_output, write_record
from reward.training.rows import TrainingRows, load_rows, make_order

if TYPE_CHECKING:
    from torch import nn

    from reward.training.trainer import MetricTrainer

__all__ = ["TrainingPlug", "TrainingResult", "train", "training_plug"]


class TrainingPlug(Protocol):
    """What the module `training.py` of a metric's folder offers.

    The network is called with what the collator gives except `labels`; its output has `scores` of shape (N,), and
    `logits` of the same shape if `LOSSES` has `"bce"`. A metric that is trained in stages also has
    `load_model(folder, settings)`, which gives the network of a checkpoint folder to train on.
    """

    LOSSES: tuple[str, ...]
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
        figures: {part: {"tau_c": ..., "tau_c_<aspect>": ..., "mse": ..., "n": ...}}, for pairs {part: {"accuracy": ...,
            "accuracy_<category>": ..., "auc": ..., "n": pairs}}; a part shown without references as well has a second
            entry `"<part> (reference-free)"`. Of a run in stages: those of the last one.
        steps: optimizer steps taken, in the last stage.
        best_step: step of the checkpoint that was kept.
        stages: {name: outcome of the stage}, in their order; empty if there were none.
    """

    folder: Path
    figures: dict[str, dict[str, float]]
    steps: int
    best_step: int
    stages: Mapping[str, TrainingResult] = field(default_factory=dict)


def training_plug(spec: MetricSpec) -> TrainingPlug:
    """The training module of a metric.

    Raises:
        ConfigError: the metric cannot be trained.

    Example:
        >>> sorted(training_plug(metric_spec("beitscore")).PRESETS)
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
    start: str | os.PathLike[str] | None = None,
) -> TrainingResult:
    """Trains a metric on human judgments, or on correct and incorrect captions, and writes a checkpoint folder.

    Runs on the device that accelerate chooses; started by `accelerate launch` or `torchrun`, it uses all processes. The
    state of an unfinished run lies in `<output>/checkpoints` and is removed when the checkpoint is complete. A run in
    stages (`config.stages`) leaves a checkpoint of each in `<output>/stages`; see `reward.training.stages`.

    Args:
        metric: registry name.
        data: see `reward.training.data.load_parts`, and for pairs `reward.training.pairs.load_pairs`.
        output: the checkpoint folder, made if absent.
        config: settings; see `TrainingConfig`.
        resume: go on from the last state in `output`, which gives what an unbroken run would have given.
        command: how the run was started, for the model card.
        start: checkpoint folder of this metric whose weights to start from, instead of what `config.model` says.

    Returns:
        Figures on the validation and test parts, and where the checkpoint is.

    Raises:
        ConfigError: the metric has no training or not this kind, or its own settings are refused.
        DataError: the data set cannot be loaded or lacks parts, columns, ratings or captions.
        OutputError: the folder holds something already, or another run's state.
        TrainingError: the loss is not finite, or the network gives every caption one score in the end.
    """
    spec = trained_spec(metric_spec(metric), config)
    check_plug(spec, training_plug(spec), config, start)
    if config.stages:
        from reward.training.stages import train_stages

        return train_stages(spec, data, Path(output), config, resume=resume, command=command)
    return run_once(spec, data, Path(output), config, resume=resume, command=command, start=start)


def run_once(
    spec: MetricSpec,
    data: str | os.PathLike[str],
    output: Path,
    config: TrainingConfig,
    *,
    resume: bool,
    command: str | None,
    start: str | os.PathLike[str] | None = None,
    ready: Callable[[], None] = lambda: None,
) -> TrainingResult:
    """A run without stages, or one stage; see `train`.

    Args:
        ready: called in the main process when data and settings have proved usable, before the first step.
    """
    from accelerate import PartialState
    from transformers import set_seed

    from reward.training.card import make_card
    from reward.training.trainer import has_stopped, last_checkpoint

    plug = training_plug(spec)
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
        model = plug.make_model(config.model, texts=rows.parts[config.train_part].texts, precision=config.precision)
    else:
        model = plug.load_model(Path(start), config.model)  # type: ignore[attr-defined]  # check_plug looked for it
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError("model settings: every weight is frozen, so there is nothing to train")
    trainer = _make_trainer(model, plug, spec, rows, output / STATES, config)
    if process.is_main_process:
        ready()
        if not resume:
            write_record(output, record)  # not before: a folder that holds nothing but a mistake needs no resuming
    state = last_checkpoint(output / STATES) if resume else None
    if state is not None and has_stopped(state, config.patience):
        trainer.restore_best(state)  # killed after its last step: the Trainer would take one more
    else:
        trainer.train(resume_from_checkpoint=str(state) if state is not None else None)

    figures = _evaluate(trainer, rows.parts, config, spec)
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
        plug.save_model(model, output, card=make_card(spec, facts))
        write_record(output, facts)
        shutil.rmtree(output / STATES, ignore_errors=True)
    process.wait_for_everyone()
    return result


def trained_spec(spec: MetricSpec, config: TrainingConfig) -> MetricSpec:
    """Facts of the checkpoint that a run makes: ratings go to aspects by name, in whatever order the network has them.

    Raises:
        ConfigError: `model.aspects` is no list of different names.
    """
    aspects = config.model.get("aspects")
    if aspects is None:
        return spec
    names = isinstance(aspects, (list, tuple)) and all(isinstance(name, str) and name for name in aspects)
    if not names or not aspects or len(set(aspects)) < len(aspects):
        raise ConfigError(f"model settings: aspects must be a list of different names, got {aspects!r}")
    return spec.with_aspects(aspects)


def check_plug(
    spec: MetricSpec, plug: TrainingPlug, config: TrainingConfig, start: str | os.PathLike[str] | None
) -> None:
    """Refuses losses and stages that a metric's training does not know."""
    losses = [config.stage(name).loss for name in config.stages] if config.stages else [config.loss]
    losses += ["bce"] * bool(config.pair_weight)
    unfit = sorted(set(losses) - set(plug.LOSSES))
    if unfit:
        raise ConfigError(f"{spec.name} cannot be trained with the loss {unfit[0]}; known: {', '.join(plug.LOSSES)}")
    if (config.stages or start is not None) and not hasattr(plug, "load_model"):
        raise ConfigError(f"{spec.name} cannot be trained on from a checkpoint, and so not in stages")


def use_cpu() -> bool:
    """Whether to train on the CPU, which accelerate must be told before it joins processes without an accelerator."""
    import torch
    from accelerate.utils import parse_flag_from_env

    return parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.accelerator.is_available()


def _make_trainer(
    model: nn.Module,
    plug: TrainingPlug,
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
        # Accuracy on some hundred pairs jumps by points while the loss still falls.
        metric_for_best_model="loss" if config.loss == "bce" else "tau_c",
        greater_is_better=config.loss != "bce",
        restore_callback_states_from_checkpoint=True,  # the patience used up so far
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
        data_collator=partial(_with_pair, plug.make_collator(model)),
        train_dataset=rows.train,
        eval_dataset=held_out.sorted_by_length(),
        compute_metrics=lambda prediction: _figures(prediction, held_out, spec),
        callbacks=[EarlyStoppingCallback(early_stopping_patience=config.patience)],
    )
    if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        raise ConfigError("DeepSpeed and FSDP are not supported: start the processes with plain data parallelism")
    return trainer


def _with_pair(
    collate: Callable[[Sequence[Mapping[str, Any]]], dict[str, Any]], rows: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """A batch with the number of each row's pair, -1 for a rated row, if there are pairs in it."""
    import torch

    batch = collate(rows)
    if any("pair" in row for row in rows):
        batch["pair"] = torch.tensor([row.get("pair", -1) for row in rows])
    return batch


def _figures(prediction: Any, rows: Judgements | CaptionPairs, spec: MetricSpec) -> dict[str, float]:
    if isinstance(rows, CaptionPairs):
        targets, kinds, pairs = prediction.label_ids
        return pair_accuracy(prediction.predictions, targets, kinds, pairs, rows.categories)
    targets, aspect_ids = prediction.label_ids
    return agreement(prediction.predictions, targets, aspect_ids, spec.aspects)


def _check_learned(scores: Any, part: str) -> None:
    """Refuses a network that gives everything one score: its figures would look like those of a hard task."""
    if len(scores) > 1 and scores.min() == scores.max():
        raise TrainingError(
            f"nothing was learned: every caption of the part {part!r} gets the score {scores.min():.6g}. Train longer "
            "(epochs, max_steps), with a higher learning_rate, or a shorter warm-up (warmup_ratio)"
        )


def _evaluate(
    trainer: MetricTrainer, parts: Mapping[str, Judgements | CaptionPairs], config: TrainingConfig, spec: MetricSpec
) -> dict[str, dict[str, float]]:
    figures: dict[str, dict[str, float]] = {}
    for part, rows in parts.items():
        if part == config.train_part:
            continue
        views = {part: rows}
        if isinstance(rows, Judgements) and 0 < config.reference_free_rate < 1:
            views[f"{part} (reference-free)"] = rows.without_references()
        for name, view in views.items():
            output = trainer.predict(view.sorted_by_length())
            if part == config.validation_part:
                _check_learned(output.predictions, part)
            figures[name] = {
                **_figures(output, view, spec),
                "n": len(view) // (2 if isinstance(view, CaptionPairs) else 1),
            }
    return figures
