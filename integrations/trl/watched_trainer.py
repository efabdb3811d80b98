"""What a monitor asks of a trainer, and the names of figures where it evaluates several data sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import TrainerCallback

from reward.errors import ConfigError
from reward.rewards.rating import function_name


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


def check_trainer(trainer: Any, second: Callable[..., Any]) -> None:
    """Refuses what cannot be watched, and a second measure that is optimised, by itself or as a part of a reward."""
    if not hasattr(trainer, "reward_funcs") or not hasattr(trainer, "reward_weights"):
        raise ConfigError(f"the monitor needs a GRPOTrainer or an RLOOTrainer, got {type(trainer).__name__}")
    if trainer.args.eval_strategy == "no" or not trainer.args.eval_on_start:
        raise ConfigError(
            "the monitor watches evaluations: give the trainer an eval_dataset, and its arguments "
            'eval_strategy="steps", eval_steps, eval_on_start=True and num_generations_eval=1'
        )
    if trainer.eval_dataset is trainer.train_dataset:
        raise ConfigError("eval_dataset is the train_dataset: pass images that are not trained on")
    _check_best_metric(trainer)
    second_name = function_name(second)
    for reward, name in zip(trainer.reward_funcs, trainer.reward_func_names, strict=True):
        if isinstance(reward, torch.nn.Module):
            raise ConfigError(f"the reward {name} is a model that TRL calls by itself: the monitor takes functions")
        if second_name == name or any(_is_same(part, second) for part in _parts_of(reward)):
            raise ConfigError(
                f"the second measure {second_name!r} is the optimised reward {name!r}, or a part of it: give another "
                "metric, an oracle or a judge"
            )


def _check_best_metric(trainer: Any) -> None:
    """Refuses a `metric_for_best_model` that names none of several data sets, which would end a training half way."""
    sets, metric = trainer.eval_dataset, trainer.args.metric_for_best_model
    if not isinstance(sets, dict) or metric is None:
        return
    metric = metric.removeprefix("eval_")
    if not any(metric.startswith(f"{name}_") for name in sets):
        names = " or ".join(repr(f"eval_{name}_{metric}") for name in sets)
        raise ConfigError(f"metric_for_best_model='eval_{metric}' names none of the evaluation sets: write {names}")


def _parts_of(reward: Any) -> list[Any]:
    """A reward and what it is made of, such as the parts of a `CombinedReward`."""
    parts = [reward]
    for part in getattr(reward, "parts", ()):
        parts += _parts_of(part)
    if hasattr(reward, "reward"):
        parts += _parts_of(reward.reward)
    return parts


def _is_same(reward: Any, second: Any) -> bool:
    """Whether two measures are one function, or one metric with the same checkpoint and weights."""
    if getattr(reward, "spec", reward) != getattr(second, "spec", second):
        return False
    if str(getattr(reward, "source", "")) != str(getattr(second, "source", "")):
        return False
    return list(getattr(reward, "weights", ())) == list(getattr(second, "weights", ()))
