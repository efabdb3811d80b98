"""What runs with TRL: every trainer that takes reward functions, each form of data and use, one and two processes.

    python -m tests.integrations.trl_matrix
    python -m tests.integrations.trl_matrix --trainers grpo online_dpo --uses chat "one image column" --processes 2

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
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, Features, Image, List, Value
from rich.console import Console
from rich.table import Table
from transformers import AutoModelForImageTextToText, AutoProcessor

from integrations.trl import make_prompt_dataset
from reward import VelaReward
from tests.toys.toy_captioners import NO_IMAGE_TOKEN, llava
from tests.toys.toy_judges import pictures

# {name: (module, trainer, configuration, what it needs besides)}
TRAINERS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "grpo": ("trl", "GRPOTrainer", "GRPOConfig", {"num_generations": 2}),
    "rloo": ("trl", "RLOOTrainer", "RLOOConfig", {"num_generations": 2}),
    "gmpo": ("trl.experimental.gmpo", "GMPOTrainer", "GMPOConfig", {"num_generations": 2}),
    "sdpo": ("trl.experimental.sdpo", "SDPOTrainer", "SDPOConfig", {"num_generations": 2}),
    "online_dpo": ("trl.experimental.online_dpo", "OnlineDPOTrainer", "OnlineDPOConfig", {"max_length": 64}),
}
QUESTION = "Describe it"
MORE = {
    "LoRA": {},
    "two objectives": {"multi_objective_aggregation": "normalize_then_sum"},
    "accumulation": {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 2},
    "two iterations": {"num_iterations": 2},
    "evaluation": {"eval_strategy": "steps", "eval_steps": 1},
    "resume": {"save_strategy": "steps", "save_steps": 1},
}


def _rows() -> Dataset:
    features = Features({"picture": Image(), "refs": List(Value("string"))})
    references = [["A red star."], ["Green.", "It is green."], [], None]
    return Dataset.from_dict({"picture": pictures(4), "refs": references}, features)


def _plain() -> Dataset:
    return _rows().add_column("prompt", [f"USER: {QUESTION} ASSISTANT:"] * 4)


def _chat() -> Dataset:
    return make_prompt_dataset(_rows(), QUESTION, image_column="picture", references_column="refs")


def _in_prompt() -> Dataset:
    """The image stands in the prompt alone, which Arrow tables cannot hold, so a transform puts it there."""

    def prompts(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        text = {"type": "text", "text": QUESTION}
        rows = [[{"role": "user", "content": [{"type": "image", "image": image}, text]}] for image in batch["picture"]]
        return {"prompt": rows, "references": batch["refs"]}

    return _rows().with_transform(prompts)


USES: dict[str, Callable[[], Any]] = {
    "plain prompt, image for the reward": _plain,
    "chat, column image": _chat,
    "chat, column images": lambda: (
        _chat().map(lambda row: {"images": [row["image"]]}, remove_columns="image").cast_column("images", List(Image()))
    ),
    "image in the prompt only": _in_prompt,
    "stream": lambda: _chat().to_iterable_dataset(),
    **dict.fromkeys(MORE, _chat),
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
    rank = int(os.environ.get("RANK", 0))
    reward = VelaReward(device="cpu", image_column="picture" if use.startswith("plain") else None)
    arguments: dict[str, Any] = {**needed, **MORE.get(use, {})}
    rewards = [Counted(reward)]
    if use == "two objectives":
        rewards = [Counted(part) for part in reward.aspects()]
        arguments["reward_weights"] = [2.0, 1.0, 1.0]
    if trainer == "online_dpo":
        arguments["max_new_tokens"] = 6
    else:
        arguments["max_completion_length"] = 6
    config = getattr(import_module(module), config_class)(
        output_dir=str(folder / "out"),
        max_steps=2,
        per_device_eval_batch_size=4,
        learning_rate=1e-2,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        logging_steps=1,
        **{"save_strategy": "no", "per_device_train_batch_size": 4, **arguments},
    )
    policy = folder / "policy"
    model, processor = AutoModelForImageTextToText.from_pretrained(policy), AutoProcessor.from_pretrained(policy)
    options: dict[str, Any] = {"eval_dataset": USES[use]()} if use == "evaluation" else {}
    if use == "LoRA":
        from peft import LoraConfig

        options["peft_config"] = LoraConfig(r=2, target_modules=r".*language_model.*q_proj", task_type="CAUSAL_LM")
    data = USES[use]()
    made = getattr(import_module(module), trainer_class)(
        model=model, reward_funcs=rewards, args=config, train_dataset=data, processing_class=processor, **options
    )
    before = {name: value.detach().clone() for name, value in made.model.named_parameters()}
    made.train()
    changed = any(not torch.equal(value, before[name]) for name, value in made.model.named_parameters())
    if use == "resume":
        made.train(resume_from_checkpoint=str(folder / "out" / "checkpoint-1"))
    facts = {"captions": [each.captions for each in rewards], "missing": sum(each.missing for each in rewards)}
    (folder / f"{rank}.json").write_text(json.dumps({**facts, "changed": changed}))


def _save_policy(folder: Path) -> None:
    """A tiny LLaVA in a folder, from which trainers also load the reference of their KL term."""
    model, processor = llava()
    model.generation_config.suppress_tokens = NO_IMAGE_TOKEN["suppress_tokens"]
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


def check(folder: Path, processes: int) -> str:
    """What a cell says, from what its processes wrote."""
    facts = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(processes)]
    if not all(min(fact["captions"]) for fact in facts):
        return "the reward was not called"
    if missing := sum(fact["missing"] for fact in facts):
        return f"{missing} captions had no reward"
    return "runs" if all(fact["changed"] for fact in facts) else "(runs)"


def run_cell(trainer: str, use: str, processes: int) -> str:
    """Runs a cell in processes of its own."""
    command = [sys.executable, "-m"]
    if processes > 1:
        command += ["torch.distributed.run", "--standalone", "--nproc_per_node", str(processes), "-m"]
    command += ["tests.integrations.trl_matrix", "--cell", trainer, use]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "1", "PYTHONWARNINGS": "ignore"}
    with tempfile.TemporaryDirectory() as folder:
        _save_policy(Path(folder) / "policy")
        done = subprocess.run(
            [*command, folder], env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        if done.returncode == 0:
            return check(Path(folder), processes)
    lines = [line.strip() for line in done.stderr.splitlines() if "Error" in line and "ChildFailed" not in line]
    return f"fails: {lines[-1] if lines else done.stderr[-200:]}"


def main(argv: Sequence[str] | None = None) -> None:
    """Prints the matrix."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainers", nargs="+", choices=TRAINERS, default=list(TRAINERS))
    parser.add_argument("--uses", nargs="+", choices=USES, default=list(USES))
    parser.add_argument("--processes", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--cell", nargs=3, metavar=("TRAINER", "USE", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.cell:
        warnings.simplefilter("ignore")
        train(options.cell[0], options.cell[1], Path(options.cell[2]))
        return
    import trl

    console = Console(width=200)
    table = Table("use", "processes", *options.trainers, title=f"TRL {trl.__version__}, torch {torch.__version__}")
    for use in options.uses:
        for processes in options.processes:
            cells = [run_cell(trainer, use, processes) for trainer in options.trainers]
            table.add_row(use, str(processes), *cells)
            print(use, processes, cells, file=sys.stderr, flush=True)
    console.print(table)


if __name__ == "__main__":
    main()
