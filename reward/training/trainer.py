"""MetricTrainer: transformers.Trainer with losses on scores, a resumable order of rows, and small checkpoints."""

from __future__ import annotations

import json
import logging
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from reward.errors import CheckpointError, TrainingError
from reward.training.sampling import EpochOrder

logger = logging.getLogger(__name__)

_STATE_FILE = "trainer_state.json"  # the Trainer writes it last


def bradley_terry(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean of -log sigmoid(better - worse) over pairs, whose better caption comes first; `targets` say nothing more.

    Source: Bradley and Terry, Rank Analysis of Incomplete Block Designs (1952).

    Example:
        >>> bradley_terry(torch.tensor([3.0, 3.0]), torch.tensor([1.0, 0.0])).item()  # log 2: as likely as not
        0.6931471824645996
    """
    return F.softplus(scores[1::2] - scores[::2]).mean()


_LOSSES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "bce": F.binary_cross_entropy_with_logits,
    "bradley_terry": bradley_terry,
}


def mean_loss(name: str, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean loss over a batch, in float32 whatever type autocast computes the outputs in.

    Args:
        name: `"mse"`, `"l1"`, `"bce"` (binary cross-entropy, computed from logits), or `"bradley_terry"`.
        outputs: scores (N,), or logits (N,) for `"bce"`.
        targets: ratings (N,) in [0, 1], or 1 for a correct caption and 0 for an incorrect one.

    Source: BEiTScore, section 3.2, for `"bce"` on pairs and then `"l1"` on ratings.

    Example:
        >>> mean_loss("mse", torch.tensor([0.5, 1.0]), torch.tensor([0.0, 1.0])).item()
        0.125
    """
    if outputs.shape != targets.shape:
        raise ValueError(f"the outputs have shape {tuple(outputs.shape)}, the targets {tuple(targets.shape)}")
    return _LOSSES[name](outputs.float(), targets.float())


class MetricTrainer(Trainer):
    """Trains a network whose output has `scores` (N,), and `logits` (N,) for pairs, against `labels` of each batch.

    It differs from its base class in four ways. It has losses on scores, in which every row of a step weighs the same,
    also in a batch that is not full. The order of the rows is a function of seed and epoch. It tells the data set the
    epoch, so that random choices about a row can change with it. Parts of the network can have their own step size.

    Args:
        network: what is trained.
        order: order of the training rows.
        loss: see `reward.training.config.TrainingConfig`.
        learning_rates: as there.
        kwargs: as for `transformers.Trainer`, except `model`.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        order: EpochOrder,
        loss: str = "mse",
        learning_rates: Mapping[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(model=_Scores(network), **kwargs)
        self._learning_rates = learning_rates or {}
        # The loss is a mean over the batch, so the base class must divide it by the number of accumulated batches.
        self.model_accepts_loss_kwargs = False
        self.loss_is_scaled_for_ga = False
        self._order, self._loss = order, loss
        self.add_callback(_TellEpoch([self._order, self.train_dataset]))

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        output = model(**{name: value for name, value in inputs.items() if name != "labels"})
        # From logits, the loss of a pair is finite also where a score is exactly 1.
        predictions = output["logits"] if self._loss == "bce" else output["scores"]
        loss = mean_loss(self._loss, predictions, inputs["labels"])
        if model.training and num_items_in_batch is not None:
            batches = self.current_gradient_accumulation_steps * self.args.world_size
            loss = loss * (len(inputs["labels"]) * batches / num_items_in_batch)  # 1 where all batches are full
        return (loss, {"loss": loss, "scores": output["scores"]}) if return_outputs else loss

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> tuple[list[Any], Any]:
        """The batches of a step, and how many rows they have in all processes: the base class counts tokens only."""
        batches, _ = super().get_batch_samples(*args, **kwargs)
        rows = sum(len(batch["labels"]) for batch in batches)
        if self.args.world_size > 1:
            rows = int(self.accelerator.reduce(torch.tensor(rows, device=self.args.device)))
        return batches, rows

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """As in the base class, which would log a loss of NaN as 0 and continue."""
        try:
            loss: torch.Tensor = super().training_step(*args, **kwargs)
        except torch.OutOfMemoryError as error:
            size, times = self.args.per_device_train_batch_size, self.args.gradient_accumulation_steps
            raise TrainingError(
                f"the device has too little memory for a step with batch_size {size} and accumulation {times}: set a "
                "smaller batch_size with as much more accumulation, which trains the same, or model: "
                "{gradient_checkpointing: true}"
            ) from error
        if not torch.isfinite(loss):
            raise TrainingError(
                f"the loss is {loss.item()} at step {self.state.global_step + 1}: lower learning_rate, use precision "
                "bf16 or fp32, or check that the weights it started from are finite"
            )
        return loss

    def create_optimizer(self, *args: Any, **kwargs: Any) -> torch.optim.Optimizer:
        """As in the base class, with groups of their own for the parameters that `learning_rates` names."""
        is_new = self.optimizer is None
        optimizer: torch.optim.Optimizer = super().create_optimizer(*args, **kwargs)
        if is_new:
            for start, rate in self._learning_rates.items():
                self._set_rate(optimizer, start, rate)
        return optimizer

    def _set_rate(self, optimizer: torch.optim.Optimizer, start: str, rate: float) -> None:
        named = {id(value) for name, value in self.model.network.named_parameters() if name.startswith(start)}
        for group in list(optimizer.param_groups):
            moved = [value for value in group["params"] if id(value) in named]
            if moved:
                group["params"] = [value for value in group["params"] if id(value) not in named]
                optimizer.add_param_group({**group, "params": moved, "lr": rate})  # with the group's weight decay

    def _get_train_sampler(self, train_dataset: Any = None) -> EpochOrder:
        return self._order

    def restore_best(self, checkpoint: Path) -> None:
        """Restores the state that `train` ends in, from the last checkpoint of a run that has stopped."""
        self.state = TrainerState.load_from_json(str(checkpoint / _STATE_FILE))
        best = self.state.best_model_checkpoint
        folder = checkpoint.parent / Path(best).name if best else checkpoint
        self.model.load_state_dict(load_file(folder / "model.safetensors"))


class _Scores(nn.Module):
    """Returns only scores and logits, and hides `config` from the Trainer, which expects one of transformers.

    Its state is the trained parameters alone, because frozen backbones are large and do not change.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        return {name: value.detach().contiguous() for name, value in self.named_parameters() if value.requires_grad}

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        if state_dict.keys() != self.state_dict().keys():
            raise CheckpointError("the checkpoint is of a run with other trained parameters; use the same settings")
        return super().load_state_dict({**super().state_dict(), **state_dict})

    def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        output = self.network(**inputs)
        return {name: getattr(output, name) for name in ("scores", "logits") if hasattr(output, name)}


class _TellEpoch(TrainerCallback):
    """Sets `epoch` of the given objects at the start of an epoch, also of the one that a resumed run starts in."""

    def __init__(self, targets: list[Any]) -> None:
        self._targets = targets

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        for target in self._targets:
            target.epoch = int(state.epoch or 0)


def last_checkpoint(folder: str | os.PathLike[str]) -> Path | None:
    """The newest complete checkpoint of a trainer's output folder, to be given as `resume_from_checkpoint`.

    A kill while a checkpoint is written leaves it cut. `resume_from_checkpoint=True` takes the newest folder and fails
    on it each time; here it is passed over, with a warning that names it.

    Args:
        folder: the `output_dir` of any trainer of transformers or TRL.

    Returns:
        The checkpoint's folder; None if there is none, or no such folder.

    Example:
        >>> print(last_checkpoint("no/such/folder"))  # trainer.train(resume_from_checkpoint=last_checkpoint("out"))
        None
    """
    numbered = [path for path in Path(folder).glob("checkpoint-*") if path.name.rpartition("-")[2].isdecimal()]
    for path in sorted(numbered, key=lambda path: int(path.name.rpartition("-")[2]), reverse=True):
        fault = _what_is_cut(path)
        if fault is None:
            return path
        logger.warning("%s is not complete, as after a kill, and is passed over: %s", path, fault)
    return None


def _what_is_cut(checkpoint: Path) -> str | None:
    """What a checkpoint lacks; None if it is whole. Of the files of tensors, only the ends are looked at."""
    try:
        json.loads((checkpoint / _STATE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return f"no whole {_STATE_FILE}"
    for file in sorted(checkpoint.iterdir()):
        is_cut = False
        if file.suffix == ".safetensors":
            try:
                with safe_open(file, "pt"):
                    pass
            except (SafetensorError, OSError):
                is_cut = True
        elif file.suffix in (".pt", ".pth", ".bin"):  # of torch.save
            is_cut = not zipfile.is_zipfile(file)
        if is_cut:
            return f"{file.name} is cut"
    return None


def has_stopped(checkpoint: Path, patience: int) -> bool:
    """Whether the run that wrote a checkpoint had already taken its last step, or stopped early."""
    state = TrainerState.load_from_json(str(checkpoint / _STATE_FILE))
    stopping = state.stateful_callbacks["EarlyStoppingCallback"]
    if isinstance(stopping, list):  # of several such callbacks
        stopping = stopping[0]
    used = stopping["attributes"]["early_stopping_patience_counter"]
    return state.global_step >= state.max_steps or bool(used >= patience)
