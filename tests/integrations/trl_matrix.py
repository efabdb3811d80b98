"""What runs with TRL: every trainer that takes reward functions, each form of data and use, one and two processes.

    python -m tests.integrations.trl_matrix
    python -m tests.integrations.trl_matrix --trainers grpo online_dpo --uses chat "column images" --processes 2

Each cell trains a tiny captioner for two steps with the embedded VELA. It says "runs" only if every caption had a
reward and the policy changed. Other cells say what went wrong. "Runs" in brackets: captions had rewards, but TRL did
not change the policy.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import trl
from datasets import Dataset, Features, Image, List, Value

from integrations.trl import load_policy, make_prompt_dataset
from reward import VelaReward
from tests.toys.toy_captioners import NO_IMAGE_TOKEN, llava
from tests.toys.toy_judges import pictures

# {name: (module, trainer, configuration, what it needs besides)}
GROUPS = {"num_generations": 2, "max_completion_length": 6}
TRAINERS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "grpo": ("trl", "GRPOTrainer", "GRPOConfig", GROUPS),
    "rloo": ("trl", "RLOOTrainer", "RLOOConfig", GROUPS),
    "gmpo": ("trl.experimental.gmpo", "GMPOTrainer", "GMPOConfig", GROUPS),
    "sdpo": ("trl.experimental.sdpo", "SDPOTrainer", "SDPOConfig", GROUPS),
    "online_dpo": (
        "trl.experimental.online_dpo",
        "OnlineDPOTrainer",
        "OnlineDPOConfig",
        {"max_length": 64, "max_new_tokens": 6},
    ),
}
QUESTION = "Describe it"


def rows() -> Dataset:
    features = Features({"picture": Image(), "refs": List(Value("string"))})
    references = [["A red star."], ["Green.", "It is green."], [], None]
    return Dataset.from_dict({"picture": pictures(4), "refs": references}, features)


def chat() -> Dataset:
    return make_prompt_dataset(rows(), QUESTION, image_column="picture", references_column="refs")


def several_images() -> Dataset:
    listed = chat().map(lambda row: {"images": [row["image"]]}, remove_columns="image")
    return listed.cast_column("images", List(Image()))


def in_prompt() -> Dataset:
    """The image stands in the prompt alone, which Arrow tables cannot hold, so a transform puts it there."""

    def prompts(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        text = {"type": "text", "text": QUESTION}
        chats = [[{"role": "user", "content": [{"type": "image", "image": image}, text]}] for image in batch["picture"]]
        return {"prompt": chats, "references": batch["refs"]}

    return rows().with_transform(prompts)


USES: dict[str, Callable[[], Any]] = {
    "plain prompt": lambda: rows().add_column("prompt", [f"USER: {QUESTION} ASSISTANT:"] * 4),
    "chat": chat,
    "column images": several_images,
    "image in the prompt only": in_prompt,
    "stream": lambda: chat().to_iterable_dataset(),
    "two objectives": chat,
    "evaluation": chat,
    "LoRA": chat,
}


class Counted:
    """A reward that counts the captions, and those without a reward."""

    def __init__(self, reward: Any) -> None:
        self.reward, self.captions, self.missing, self.__name__ = reward, 0, 0, reward.__name__

    def __call__(self, **call: Any) -> list[float | None]:
        rewards: list[float | None] = self.reward(**call)
        self.captions += len(rewards)
        self.missing += rewards.count(None)
        return rewards


def train(trainer: str, use: str, folder: Path) -> None:
    """Trains in this process, which may be one of several, and writes what it saw to `folder`."""
    module, trainer_class, config_class, needed = TRAINERS[trainer]
    reward = VelaReward(device="cpu", image_column="picture" if use == "plain prompt" else None)
    rewards = [Counted(part) for part in (reward.aspects() if use == "two objectives" else [reward])]
    arguments: dict[str, Any] = {"max_steps": 2, "learning_rate": 1e-2, "use_cpu": True, "bf16": False, **needed}
    arguments |= {"per_device_train_batch_size": 4, "per_device_eval_batch_size": 4, "gradient_checkpointing": False}
    arguments |= {"report_to": "none", "save_strategy": "no"}
    options: dict[str, Any] = {}
    if use == "two objectives":
        arguments |= {"multi_objective_aggregation": "normalize_then_sum", "reward_weights": [2.0, 1.0, 1.0]}
    if use == "evaluation":
        arguments |= {"eval_strategy": "steps", "eval_steps": 1}
        options["eval_dataset"] = chat()
    if use == "LoRA":
        from peft import LoraConfig

        options["peft_config"] = LoraConfig(r=2, target_modules=r".*language_model.*q_proj", task_type="CAUSAL_LM")
    model, processor = load_policy(folder / "policy")
    config = getattr(import_module(module), config_class)(str(folder / "out"), **arguments)
    made = getattr(import_module(module), trainer_class)(
        model=model, reward_funcs=rewards, args=config, train_dataset=USES[use](), processing_class=processor, **options
    )
    before = {name: value.detach().clone() for name, value in made.model.named_parameters()}
    made.train()
    facts = {
        "captions": min(each.captions for each in rewards),
        "missing": sum(each.missing for each in rewards),
        "changed": any(not torch.equal(value, before[name]) for name, value in made.model.named_parameters()),
    }
    (folder / f"{os.environ.get('RANK', 0)}.json").write_text(json.dumps(facts))


def run_cell(trainer: str, use: str, processes: int) -> str:
    """Runs a cell in processes of its own; gives what it says."""
    several = ["torch.distributed.run", "--standalone", "--nproc_per_node", str(processes), "-m"] * (processes > 1)
    command = [sys.executable, "-m", *several, "tests.integrations.trl_matrix", "--cell", trainer, use]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "1", "PYTHONWARNINGS": "ignore"}
    with tempfile.TemporaryDirectory() as folder:
        model, processor = llava()
        model.generation_config.suppress_tokens = NO_IMAGE_TOKEN["suppress_tokens"]
        for part in (model, processor):  # from there, trainers also load the reference of their KL term
            part.save_pretrained(Path(folder) / "policy")
        done = subprocess.run([*command, folder], env=environment, capture_output=True, text=True, timeout=300)
        facts = [json.loads(file.read_text()) for file in Path(folder).glob("[0-9].json")]
    if done.returncode or len(facts) != processes:
        lines = [line.strip() for line in done.stderr.splitlines() if "Error" in line and "ChildFailed" not in line]
        return f"fails: {lines[-1] if lines else done.stderr[-200:]}"
    if not all(fact["captions"] for fact in facts):
        return "the reward was not called"
    if missing := sum(fact["missing"] for fact in facts):
        return f"{missing} captions had no reward"
    return "runs" if all(fact["changed"] for fact in facts) else "(runs)"


def main(argv: Sequence[str] | None = None) -> None:
    """Prints the matrix, a line a use."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainers", nargs="+", choices=TRAINERS, default=list(TRAINERS))
    parser.add_argument("--uses", nargs="+", choices=USES, default=list(USES))
    parser.add_argument("--processes", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--cell", nargs=3, metavar=("TRAINER", "USE", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.cell:
        train(options.cell[0], options.cell[1], Path(options.cell[2]))
        return
    print(f"TRL {trl.__version__}, torch {torch.__version__}\n\n| use | processes | {' | '.join(options.trainers)} |")
    print("|---" * (2 + len(options.trainers)) + "|")
    for use in options.uses:
        for processes in options.processes:
            cells = [run_cell(trainer, use, processes) for trainer in options.trainers]
            print(f"| {use} | {processes} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
