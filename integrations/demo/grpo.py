"""GRPO on scenes with a caption reward, through TRL's own trainer, and the truth before and after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from PIL import Image
from transformers import PreTrainedModel, PrinterCallback, TrainerCallback
from transformers.trainer_callback import TrainerState
from trl import GRPOConfig, GRPOTrainer

from integrations.demo.captioner import MAX_NEW_TOKENS, PROMPT, write_captions
from integrations.demo.quality import compare_systems, judge_captions, mean_quality
from integrations.trl import ResumeWeights, last_checkpoint, make_prompt_dataset
from reward.errors import CheckpointError
from reward.metaeval import Interval, bootstrap_weights
from reward.metrics.vela import SPEC
from reward.rewards.completions import completion_text
from reward.scenes import Scene

if TYPE_CHECKING:
    from datasets import Dataset

__all__ = ["ORACLE", "GrpoPart", "Written", "decode_both_ways", "measure_change", "train_with_grpo"]

Written = dict[str, list[list[str]]]  # {system: captions of each scene}


@dataclass
class GrpoPart:
    """A GRPO run; filled in as it goes, so that an interrupted run leaves what there is.

    Args:
        steps: optimisation steps planned.
        completions: captions sampled a step.
        train_scenes, scenes: number of scenes trained on, and of other scenes judged.
        curve: {"step", "reward", "oracle_f1", "flaws", "tokens" and the aspects: number} of each step.
        means: {system: {measure: mean over scenes}}; systems are "greedy, before", "sampled, before", ..., "after".
        differences: {"system - system": {measure: paired difference}}.
        captions: {system: one caption per scene}, greedy ones.
    """

    steps: int
    completions: int
    train_scenes: int
    scenes: int
    curve: list[dict[str, float]] = field(default_factory=list)
    means: dict[str, dict[str, Interval]] = field(default_factory=dict)
    differences: dict[str, dict[str, Interval]] = field(default_factory=dict)
    captions: dict[str, list[str]] = field(default_factory=dict)


def train_with_grpo(
    model: PreTrainedModel,
    processor: Any,
    reward: Any,
    rows: Dataset,
    folder: Path,
    *,
    steps: int,
    prompts: int = 8,
    generations: int = 8,
    learning_rate: float = 1e-4,
    max_new_tokens: int = MAX_NEW_TOKENS,
    beta: float = 0.0,
    seed: int = 0,
    on_log: Callable[[dict[str, float]], None] = lambda entry: None,
    save_steps: int | None = None,
    watch: Callable[[GRPOTrainer], TrainerCallback] | None = None,
    watched: Dataset | None = None,
    watch_steps: int = 10,
) -> int:
    """Trains a captioner in place; its image tower keeps its weights.

    The oracle's F1 and flaws of the sampled captions are logged as rewards without weight.

    Args:
        model, processor: the captioner.
        reward: a reward function such as `VelaReward()`.
        rows: scenes, from `reward.scenes.make_dataset`; their column `refs` gives the reward its references.
        folder: where the trainer writes.
        steps: optimisation steps.
        prompts, generations: scenes per step, and captions per scene.
        learning_rate: at its peak, after a few steps; falls to 0.
        max_new_tokens: longest caption.
        beta: weight of the KL penalty; above 0, a copy of the captioner stays as it is.
        seed: of order and sampling.
        on_log: called after each step with the numbers of `GrpoPart.curve`.
        save_steps: write a checkpoint into the folder every so many steps, and go on at the last one that is there, as
            if the training had never stopped.
        watch: makes a callback for the trainer, such as a `RewardMonitor`.
        watched, watch_steps: other scenes for it, and after how many steps they are captioned.

    Returns:
        The step at which it went on; 0 for a training in one piece.

    Raises:
        CheckpointError: the folder holds a training of another number of steps, or of another network.
    """
    last, resumed = _resume_point(folder, steps) if save_steps is not None else (None, 0)
    for name, parameter in model.named_parameters():
        if "vision_tower" in name:
            parameter.requires_grad_(False)
    # The newer name came with a later transformers 5 than the oldest that this package takes.
    checkpointing = next(
        name for name in ("activation_checkpointing", "gradient_checkpointing") if hasattr(GRPOConfig, name)
    )
    config = GRPOConfig(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=prompts * generations,
        num_generations=generations,
        max_completion_length=max_new_tokens,
        learning_rate=learning_rate,
        warmup_steps=min(5, steps // 4),
        beta=beta,
        reward_weights=[1.0, *[0.0] * len(ORACLE)],
        seed=seed,
        use_cpu=True,
        bf16=False,
        **{checkpointing: False},  # TRL's default is True, which costs time to save memory
        logging_steps=1,
        disable_tqdm=True,
        report_to="none",
        save_strategy="no" if save_steps is None else "steps",
        save_steps=save_steps or steps,
        save_total_limit=1,
        eval_strategy="no" if watched is None else "steps",
        eval_steps=watch_steps,
        eval_on_start=watched is not None,
        num_generations_eval=1,
        per_device_eval_batch_size=prompts * generations,
    )
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=[reward, *ORACLE],
        args=config,
        train_dataset=make_prompt_dataset(rows, PROMPT, references_column="refs"),
        eval_dataset=None if watched is None else make_prompt_dataset(watched, PROMPT, references_column="refs"),
        processing_class=processor,
        callbacks=[_Curve(on_log), ResumeWeights()],
    )
    trainer.remove_callback(PrinterCallback)
    if watch is not None:
        trainer.add_callback(watch(trainer))
    trainer.train(resume_from_checkpoint=last)
    model.eval()
    return resumed


def _resume_point(folder: Path, steps: int) -> tuple[str | None, int]:
    """The last whole checkpoint, and its step."""
    checkpoint = last_checkpoint(folder)
    if checkpoint is None:
        return None, 0
    state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
    if state.max_steps != steps:
        raise CheckpointError(
            f"{str(checkpoint)!r} belongs to a training of {state.max_steps} steps, not {steps}, and the learning rate "
            "follows that number: name another folder"
        )
    return str(checkpoint), state.global_step


def decode_both_ways(
    model: PreTrainedModel,
    processor: Any,
    images: Sequence[Image.Image],
    name: str,
    *,
    samples: int = 4,
    max_new_tokens: int = MAX_NEW_TOKENS,
) -> Written:
    """{"greedy, <name>": one caption per scene, "sampled, <name>": several, at temperature 1}."""
    return {
        f"greedy, {name}": write_captions(model, processor, images, max_new_tokens=max_new_tokens),
        f"sampled, {name}": write_captions(
            model, processor, images, samples=samples, temperature=1.0, max_new_tokens=max_new_tokens
        ),
    }


def measure_change(
    part: GrpoPart,
    written: Written,
    scenes: Sequence[Scene | str],
    pairs: Sequence[tuple[str, str]] = (),
    *,
    resamples: int = 1000,
) -> None:
    """Fills in means, differences and captions of the systems that have written."""
    quality = {name: mean_quality(captions, scenes) for name, captions in written.items()}
    weights = bootstrap_weights(len(scenes), resamples=resamples)
    part.means, part.differences = compare_systems(quality, pairs, weights)
    part.captions = {name: [group[0] for group in captions] for name, captions in written.items() if "greedy" in name}


class OracleMeasure:
    """A measure of `judge_captions` as a reward function, to be logged without weight."""

    def __init__(self, measure: str, name: str) -> None:
        self.measure, self.__name__ = measure, name

    def __call__(self, prompts: Any, completions: Sequence[Any], scene: Sequence[str], **_: Any) -> list[float]:
        texts = [completion_text(completion) for completion in completions]
        return judge_captions(texts, scene)[self.measure].tolist()


ORACLE = (OracleMeasure("f1", "oracle_f1"), OracleMeasure("faults", "flaws"))


class _Curve(TrainerCallback):
    """Hands the logs of the trainer on, under short names."""

    names: ClassVar = {
        "reward": "reward",
        "rewards/oracle_f1/mean": "oracle_f1",
        "rewards/flaws/mean": "flaws",
        "completions/mean_length": "tokens",
    }

    def __init__(self, report: Callable[[dict[str, float]], None]) -> None:
        self.report = report

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        logs = logs or {}
        entry = {short: float(logs[name]) for name, short in self.names.items() if name in logs}
        for name, value in logs.items():  # a VELA logs its aspects under a name of its own
            aspect = name.rpartition("/")[2]
            if aspect in SPEC.aspects:
                entry[aspect] = float(value)
        if "reward" in entry:  # not in those of an evaluation and of the whole run
            self.report({"step": float(state.global_step), **entry})
