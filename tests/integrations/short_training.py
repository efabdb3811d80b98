"""Two steps of a real trainer of TRL with a tiny policy that sees images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from PIL import Image as PILImage
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

from integrations.trl import load_policy, make_prompt_dataset
from tests.toys.toy_captioners import NO_IMAGE_TOKEN, llava

BOTH_TRAINERS = [(GRPOTrainer, GRPOConfig), (RLOOTrainer, RLOOConfig)]
COLOURS = [PILImage.new("RGB", (32, 32), colour) for colour in ("red", "green", "blue", "white")]


class Stop(Exception):
    """Ends a training."""


class StopAfter(TrainerCallback):
    """Ends it after a step, as a kill does."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.step:
            raise Stop


def with_images(images: list[PILImage.Image]) -> Any:
    """Prompts for images, without references."""
    return make_prompt_dataset(Dataset.from_dict({"image": images}), "Describe it")


def policy_in(folder: Path) -> tuple[Any, Any]:
    """A tiny LLaVA from a folder, from which trainers also load the reference of their KL term."""
    for part in llava():
        part.save_pretrained(folder)
    return load_policy(folder)


def make_trainer(
    policy: tuple[Any, Any],
    rewards: list[Any],
    data: Any,
    folder: Path,
    trainer_class: type[Any] = GRPOTrainer,
    config_class: type[Any] = GRPOConfig,
    *,
    callbacks: Sequence[Any] = (),
    peft_config: Any = None,
    evaluated: Any = None,
    **options: Any,
) -> Any:
    """A trainer of two steps on the CPU, which saves nothing."""
    model, processor = policy
    defaults = {"max_steps": 2, "learning_rate": 1e-3, "save_strategy": "no", "max_completion_length": 6}
    sizes = {"per_device_train_batch_size": 4, "num_generations": 2, "generation_kwargs": NO_IMAGE_TOKEN}
    quiet = {"gradient_checkpointing": False, "report_to": "none", "disable_tqdm": True, "logging_steps": 1}
    arguments = {**defaults, **sizes, **quiet, **options}
    return trainer_class(
        model=model,
        reward_funcs=rewards,
        args=config_class(output_dir=str(folder), use_cpu=True, bf16=False, **arguments),
        train_dataset=data,
        eval_dataset=evaluated,
        processing_class=processor,
        peft_config=peft_config,
        callbacks=list(callbacks),
    )


def train(rewards: list[Any], data: Any, folder: Path, *classes: type[Any], **options: Any) -> list[dict[str, Any]]:
    """Gives the log of each of the two steps, after a check that the policy has changed."""
    trainer = make_trainer(llava(), rewards, data, folder, *classes, **options)
    before = [value.clone() for value in trainer.model.parameters()]
    trainer.train()
    logs = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert len(logs) == 2
    assert any(not torch.equal(old, new) for old, new in zip(before, trainer.model.parameters(), strict=True))
    return logs
