"""MetricTrainer: transformers.Trainer with losses on scores, a resumable order of rows, and small checkpoints."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from reward.errors import TrainingError
from reward.training.losses import binary_cross_entropy, mean_absolute_error, mean_squared_error
from reward.training.sampling import EpochOrder, MixedOrder, PairOrder

__all__ = ["MetricTrainer", "has_stopped", "last_checkpoint"]

_STATE_FILE = "trainer_state.json"  # the Trainer writes it last
_TRAINED_FILE = "trained.safetensors"


class MetricTrainer(Trainer):
    """Trains a network whose output has `scores` (N,), and `logits` (N,) for pairs, against `labels` of each batch.

    It differs from its base in four things: the loss; the order of the rows, which is a function of seed and epoch;
    checkpoints, which hold the trained parameters only, since frozen backbones are large and do not change; and the
    epoch, which it tells the data set, so that random choices about a row can be made anew each epoch.

    Args:
        network: what is trained.
        order: order of the training rows.
        loss: `"mse"`, `"l1"` or `"bce"`; see `reward.training.config.TrainingConfig`.
        pair_weight: weight of the cross-entropy on rows of pairs, those whose `pair` is not negative, beside `loss`.
        kwargs: as for `transformers.Trainer`, except `model`.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        order: EpochOrder | PairOrder | MixedOrder,
        loss: str = "mse",
        pair_weight: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(model=_Scores(network), **kwargs)
        # The loss is a mean over the batch, so the base class must divide it by the number of accumulated batches.
        self.model_accepts_loss_kwargs = False
        self.loss_is_scaled_for_ga = False
        self._order, self._loss, self._pair_weight = order, loss, pair_weight
        self.add_callback(_TellEpoch([self._order, self.train_dataset]))

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        output = model(**{name: value for name, value in inputs.items() if name not in ("labels", "pair")})
        loss = self._loss_of(output, inputs["labels"], inputs.get("pair"))
        return (loss, {"loss": loss, "scores": output["scores"]}) if return_outputs else loss

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """As in the base class, which logs a loss of NaN as 0 and goes on."""
        loss: torch.Tensor = super().training_step(*args, **kwargs)
        if not torch.isfinite(loss):
            raise TrainingError(
                f"the loss is {loss.item()} at step {self.state.global_step + 1}: lower learning_rate, use precision "
                "bf16 or fp32, or look for weights that are not finite in the checkpoint or backbone it started from"
            )
        return loss

    def _loss_of(
        self, output: dict[str, torch.Tensor], labels: torch.Tensor, pair: torch.Tensor | None
    ) -> torch.Tensor:
        if self._loss == "bce":
            return binary_cross_entropy(output["logits"], labels)
        on_ratings = mean_absolute_error if self._loss == "l1" else mean_squared_error
        if pair is None:
            return on_ratings(output["scores"], labels)
        rated = pair < 0
        return on_ratings(output["scores"][rated], labels[rated]) + self._pair_weight * binary_cross_entropy(
            output["logits"][~rated], labels[~rated]
        )

    def _get_train_sampler(self, train_dataset: Any = None) -> EpochOrder | PairOrder | MixedOrder:
        return self._order

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        if self.args.should_save:
            from safetensors.torch import save_file

            folder = Path(output_dir or self.args.output_dir)
            folder.mkdir(parents=True, exist_ok=True)
            trained = {name: value.detach().cpu().contiguous() for name, value in self._trained().items()}
            save_file(trained, folder / _TRAINED_FILE, metadata={"format": "pt"})

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        self._load_trained(resume_from_checkpoint)

    def _load_best_model(self) -> None:
        self._load_trained(self.state.best_model_checkpoint)

    def restore_best(self, checkpoint: Path) -> None:
        """Puts the trainer where `train` leaves it, given the last checkpoint of a run that has stopped."""
        self.state = TrainerState.load_from_json(str(checkpoint / _STATE_FILE))
        best = self.state.best_model_checkpoint
        self._load_trained(str(checkpoint.parent / Path(best).name if best else checkpoint))

    def _trained(self) -> dict[str, nn.Parameter]:
        return {name: value for name, value in self.model.named_parameters() if value.requires_grad}

    def _load_trained(self, folder: str) -> None:
        from reward.checkpoints import load_tensors
        from reward.errors import CheckpointError

        saved, trained = load_tensors(Path(folder) / _TRAINED_FILE), self._trained()
        if saved.keys() != trained.keys() or any(saved[name].shape != trained[name].shape for name in saved):
            raise CheckpointError(f"{folder} was written by a run with other trained parameters; use the same settings")
        with torch.no_grad():
            for name, value in saved.items():
                trained[name].copy_(value)


class _Scores(nn.Module):
    """The network reduced to its scores and logits; keeps its `config`, not one of transformers', from the Trainer."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        output = self.network(**inputs)
        return {name: getattr(output, name) for name in ("scores", "logits") if hasattr(output, name)}


class _TellEpoch(TrainerCallback):
    """Sets `epoch` of the given objects when an epoch begins, also the one that a resumed run begins in."""

    def __init__(self, targets: list[Any]) -> None:
        self._targets = targets

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        for target in self._targets:
            target.epoch = int(state.epoch or 0)


def last_checkpoint(folder: str | os.PathLike[str]) -> Path | None:
    """The newest complete checkpoint below a folder, or None.

    A run that is killed while it writes a checkpoint leaves one without its last file, which is passed over.
    """
    found = [path.parent for path in Path(folder).glob(f"checkpoint-*/{_STATE_FILE}")]
    return max(found, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


def has_stopped(checkpoint: Path, patience: int) -> bool:
    """Whether the run that wrote a checkpoint took all its steps, or stopped early, before it could finish its work."""
    state = TrainerState.load_from_json(str(checkpoint / _STATE_FILE))
    stopping = state.stateful_callbacks["EarlyStoppingCallback"]
    used = (stopping[0] if isinstance(stopping, list) else stopping)["attributes"]["early_stopping_patience_counter"]
    return state.global_step >= state.max_steps or bool(used >= patience)
