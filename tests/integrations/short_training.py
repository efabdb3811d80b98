"""Two steps of a real trainer of TRL with a tiny policy that sees images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, Features, Image
from PIL import Image as PILImage
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

from integrations.trl import make_prompt_dataset
from tests.toy_captioners import NO_IMAGE_TOKEN, llava

__all__ = ["BOTH_TRAINERS", "COLOURS", "noise_images", "train", "with_images"]

BOTH_TRAINERS = [(GRPOTrainer, GRPOConfig), (RLOOTrainer, RLOOConfig)]
COLOURS = [PILImage.new("RGB", (32, 32), colour) for colour in ("red", "green", "blue", "white")]


def noise_images() -> list[PILImage.Image]:
    return [PILImage.effect_noise((32, 32), 50 + 40 * index).convert("RGB") for index in range(4)]


def with_images(images: list[PILImage.Image]) -> Any:
    """Prompts for images, without references."""
    rows = Dataset.from_dict({"image": images}, Features({"image": Image()}))
    return make_prompt_dataset(rows, "Describe it")


def train(
    rewards: list[Any],
    data: Any,
    folder: Path,
    trainer_class: type[Any] = GRPOTrainer,
    config_class: type[Any] = GRPOConfig,
    **options: Any,
) -> list[dict[str, Any]]:
    """Gives the log of each of the two steps, after a check that the policy has changed."""
    arguments = {"per_device_train_batch_size": 4, "num_generations": 2, "max_completion_length": 6} | options
    config = config_class(
        output_dir=str(folder),
        max_steps=2,
        logging_steps=1,
        learning_rate=1e-3,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        generation_kwargs=NO_IMAGE_TOKEN,
        report_to="none",
        save_strategy="no",
        **arguments,
    )
    model, processor = llava()
    before = [value.clone() for value in model.parameters()]
    trainer = trainer_class(
        model=model, reward_funcs=rewards, args=config, train_dataset=data, processing_class=processor
    )
    trainer.train()
    logs = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert len(logs) == 2
    assert any(not torch.equal(old, new) for old, new in zip(before, trainer.model.parameters(), strict=True))
    return logs
