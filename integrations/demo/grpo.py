"""GRPO on scenes with a caption reward, through TRL's own trainer, with the truth beside the reward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image
from transformers import PreTrainedModel, PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from integrations.demo.captioner import MAX_NEW_TOKENS, PROMPT, write_captions
from integrations.demo.quality import judge_captions
from integrations.trl import make_prompt_dataset
from reward.data.chats import completion_text
from reward.metrics.vela import SPEC

if TYPE_CHECKING:
    from datasets import Dataset

Written = dict[str, list[list[str]]]  # {system: captions of each scene}
_SHORT = {
    "reward": "reward",
    "rewards/oracle_f1/mean": "oracle_f1",
    "rewards/flaws/mean": "flaws",
    "completions/mean_length": "tokens",
}


def make_trainer(
    model: PreTrainedModel,
    processor: Any,
    reward: Any,
    rows: Dataset,
    folder: Path,
    *,
    prompts: int = 8,
    generations: int = 8,
    max_new_tokens: int = MAX_NEW_TOKENS,
    on_log: Callable[[dict[str, float]], None] = lambda entry: None,
    evaluated: Dataset | None = None,
    **options: Any,
) -> GRPOTrainer:
    """A trainer that trains a captioner in place, but for its image tower, on the CPU and in silence.

    The oracle's F1 and flaws of the sampled captions are logged as rewards without weight.

    Args:
        model, processor: the captioner.
        reward: a reward function such as `VelaReward()`.
        rows: scenes, from `reward.scenes.make_dataset`; their column `refs` gives the reward its references.
        folder: where the trainer writes.
        prompts, generations: scenes per step, and captions per scene.
        max_new_tokens: longest caption.
        on_log: called after each step with "step", "reward", "oracle_f1", "flaws", "tokens" and the aspects.
        evaluated: other scenes, for evaluations that the options ask for.
        options: further arguments of `GRPOConfig`, such as `max_steps`.
    """
    model.requires_grad_(True).model.vision_tower.requires_grad_(False)
    # The newer name came with a later transformers 5 than the oldest that this package takes.
    names = ("activation_checkpointing", "gradient_checkpointing")
    options[next(name for name in names if hasattr(GRPOConfig, name))] = False  # costs time to save memory
    options = {
        "learning_rate": 1e-4,
        "warmup_steps": min(5, options["max_steps"] // 4),
        "save_strategy": "no",
        **options,
    }
    config = GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=prompts * generations,
        per_device_eval_batch_size=prompts * generations,
        num_generations=generations,
        max_completion_length=max_new_tokens,
        reward_weights=[1.0, 0.0, 0.0],
        use_cpu=True,
        bf16=False,
        logging_steps=1,
        disable_tqdm=True,
        report_to="none",
        **options,
    )
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=[reward, oracle_f1, flaws],
        args=config,
        train_dataset=make_prompt_dataset(rows, PROMPT, references_column="refs"),
        eval_dataset=None if evaluated is None else make_prompt_dataset(evaluated, PROMPT, references_column="refs"),
        processing_class=processor,
        callbacks=[_Curve(on_log)],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def decode_both_ways(
    model: PreTrainedModel, processor: Any, images: Sequence[Image.Image], name: str, *, samples: int = 4, **sizes: Any
) -> Written:
    """{"greedy, <name>": one caption per scene, "sampled, <name>": several, at temperature 1}."""
    return {
        f"greedy, {name}": write_captions(model, processor, images, greedy=True, **sizes),
        f"sampled, {name}": write_captions(model, processor, images, samples=samples, **sizes),
    }


def oracle_f1(completions: Sequence[Any], scene: Sequence[str], **_: Any) -> list[float]:
    """The oracle's F1 of sampled captions, as a reward function."""
    values: list[float] = judge_captions(list(map(completion_text, completions)), scene)["f1"].tolist()
    return values


def flaws(completions: Sequence[Any], scene: Sequence[str], **_: Any) -> list[float]:
    """The oracle's count of flaws of language in sampled captions, as a reward function."""
    values: list[float] = judge_captions(list(map(completion_text, completions)), scene)["faults"].tolist()
    return values


class _Curve(TrainerCallback):
    """Hands the logs of the trainer on, under short names."""

    def __init__(self, report: Callable[[dict[str, float]], None]) -> None:
        self.report = report

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        entry = {"step": float(state.global_step)}
        for name, value in (logs or {}).items():
            last = name.rpartition("/")[2]
            if name in _SHORT:
                entry[_SHORT[name]] = float(value)
            elif last in SPEC.aspects:  # VELA logs its aspects under names of its own
                entry[last] = float(value)
        if "reward" in entry:  # not in those of an evaluation and of the whole run
            self.report(entry)
