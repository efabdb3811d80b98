"""Two steps of a real trainer of TRL with a tiny policy that sees images."""

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

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.step:
            raise Stop


def with_images(images):
    """Prompts for images, without references."""
    return make_prompt_dataset(Dataset.from_dict({"image": images}), "Describe it")


def policy_in(folder):
    """A tiny LLaVA from a folder, from which trainers also load the reference of their KL term."""
    for part in llava():
        part.save_pretrained(folder)
    return load_policy(folder)


def make_trainer(
    policy,
    rewards,
    data,
    folder,
    trainer_class=GRPOTrainer,
    config_class=GRPOConfig,
    *,
    callbacks=(),
    peft_config=None,
    evaluated=None,
    **options,
):
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


def train(rewards, data, folder, *classes, **options):
    """Gives the log of each of the two steps, after a check that the policy has changed."""
    trainer = make_trainer(llava(), rewards, data, folder, *classes, **options)
    before = [value.clone() for value in trainer.model.parameters()]
    trainer.train()
    logs = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert len(logs) == 2
    assert any(not torch.equal(old, new) for old, new in zip(before, trainer.model.parameters(), strict=True))
    return logs
