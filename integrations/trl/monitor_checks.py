"""What a monitor cannot watch, said before the training begins."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from transformers import ProcessorMixin

from reward.errors import ConfigError
from reward.metaeval.audit.parting import FEWEST

__all__ = ["Measure", "check_measures", "check_policy", "check_rows", "check_trainer", "measure_name"]

logger = logging.getLogger(__name__)

Measure = Callable[..., Sequence[float | None]]


def check_trainer(trainer: Any) -> None:
    """Refuses trainers without reward functions, and policies that see no images."""
    if not hasattr(trainer, "reward_funcs") or not hasattr(trainer, "reward_weights"):
        raise ConfigError(f"the monitor needs a GRPOTrainer or an RLOOTrainer, got {type(trainer).__name__}")
    if not isinstance(trainer.processing_class, ProcessorMixin):
        raise ConfigError(
            "the policy must see images, but the trainer's processing_class is no processor: "
            f"{type(trainer.processing_class).__name__}"
        )
    for reward in trainer.reward_funcs:
        if isinstance(reward, torch.nn.Module):
            raise ConfigError(
                f"the reward {type(reward).__name__} is a model that TRL calls by itself: the monitor takes functions"
            )


def check_rows(rows: Any, trainer: Any) -> None:
    """Refuses held-out rows that are none, lack images or messages, or are those that are trained on."""
    columns = getattr(rows, "column_names", None)
    if not isinstance(columns, list) or not hasattr(rows, "__len__"):
        raise ConfigError(
            f"held_out must be a datasets.Dataset, got {type(rows).__name__}: choose a split, or "
            "Dataset.from_list(list(stream.take(50)))"
        )
    if not len(rows):
        raise ConfigError("held_out has no rows: the monitor needs at least 10 images, better 50")
    columns = list(rows[0])  # a transform gives others than the table has, a format fewer
    if not {"image", "images"} & set(columns):
        raise ConfigError(
            f"held_out has no column 'image' or 'images', only {', '.join(columns)}: use make_prompt_dataset"
        )
    if "prompt" not in columns or isinstance(rows[0]["prompt"], str):
        raise ConfigError("held_out needs a column 'prompt' with messages: use make_prompt_dataset")
    if rows is trainer.train_dataset:
        raise ConfigError("held_out is the trainer's train_dataset: pass images that are not trained on")
    if len(rows) < FEWEST:
        logger.warning(
            "held_out has %d images, and the rule needs %d: figures are logged, but nothing will be called parted",
            len(rows),
            FEWEST,
        )


def check_measures(second: Measure, also: Sequence[Measure], rewards: Mapping[str, tuple[Any, float]]) -> None:
    """Refuses measures of one name, and a second measure that is optimised, by itself or as a part of a reward.

    Another metric on the same checkpoint is warned of.
    """
    names = [measure_name(measure) for measure in (second, *also)]
    if len(set(names)) < len(names):
        raise ConfigError(f"two measures have the same name: {', '.join(names)}. Set __name__ (or name=) of one")
    for name, (reward, _) in rewards.items():
        if any(_same(part, second) for part in parts_of(reward)):
            raise ConfigError(
                f"the second measure {names[0]!r} is the optimised reward {name!r}, or a part of it: give "
                "another metric, an oracle or a judge"
            )
        source = str(getattr(second, "source", "embedded"))  # of which each metric has its own
        if source != "embedded" and any(str(getattr(part, "source", None)) == source for part in parts_of(reward)):
            logger.warning(
                "the second measure %r reads the same checkpoint as the reward %r, %r: what deceives one may "
                "deceive both. A metric of another model shows more",
                *(names[0], name, source),
            )


def parts_of(reward: Any) -> list[Any]:
    """A reward and what it is made of, such as the parts of a `WeightedReward`."""
    inner = [*getattr(reward, "parts", ()), *([reward.reward] if hasattr(reward, "reward") else [])]
    return [reward, *(part for each in inner for part in parts_of(each))]


def _same(reward: Any, measure: Any) -> bool:
    if reward is measure or measure_name(reward) == measure_name(measure):
        return True
    if not all(hasattr(each, "spec") and hasattr(each, "source") for each in (reward, measure)):
        return False
    facts = [(each.spec.name, str(each.source), list(each.weights)) for each in (reward, measure)]
    return bool(facts[0] == facts[1])


def check_policy(trainer: Any) -> None:
    """Refuses a policy that is split among the processes."""
    plugin = getattr(trainer.accelerator.state, "deepspeed_plugin", None)
    if getattr(trainer, "is_fsdp_enabled", False) or getattr(plugin, "zero_stage", 0) == 3:
        raise ConfigError(
            "the policy is split among the processes (FSDP or DeepSpeed stage 3), and the monitor needs it whole: use "
            "DDP or DeepSpeed stage 2, or judge saved checkpoints with capreward score"
        )


def measure_name(measure: Any) -> str:
    """The name under which a measure is logged: that of a partial which has none is its function's."""
    inner = measure
    while hasattr(inner, "func") and not hasattr(inner, "__name__"):  # functools.partial
        inner = inner.func
    return str(getattr(inner, "__name__", None) or type(inner).__name__)
