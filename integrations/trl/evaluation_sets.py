"""Several data sets of one evaluation: names of their figures in logs, and in `metric_for_best_model`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import TrainerCallback

from reward.errors import ConfigError


class NamesOfSets(TrainerCallback):
    """Gives the figures of each of several data sets names of their own: `eval_near_reward` in place of `eval_reward`.

    Trainer does so with its own figures; those of TRL would have one name, and the last set's would hide the others'.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **_: Any) -> None:
        for name in self.names:
            if f"eval_{name}_runtime" not in logs:
                continue
            prefix = f"eval_{name}_"
            # The one goes to the callbacks that report, the other into checkpoints.
            for figures in (logs, state.log_history[-1]):
                for key in list(figures):
                    if key.startswith("eval_") and not key.startswith(prefix):
                        figures[prefix + key.removeprefix("eval_")] = figures.pop(key)


def check_best_metric(trainer: Any) -> None:
    """Refuses a `metric_for_best_model` that names none of several data sets, which would end a training half way."""
    sets, metric = trainer.eval_dataset, trainer.args.metric_for_best_model
    if not isinstance(sets, dict) or metric is None:
        return
    metric = metric.removeprefix("eval_")
    if not any(metric.startswith(f"{name}_") for name in sets):
        names = " or ".join(repr(f"eval_{name}_{metric}") for name in sets)
        raise ConfigError(f"metric_for_best_model='eval_{metric}' names none of the evaluation sets: write {names}")
