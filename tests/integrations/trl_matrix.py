"""What runs with TRL: every trainer that takes reward functions, each form of data and use, one and two processes.

    python -m tests.integrations.trl_matrix
    python -m tests.integrations.trl_matrix --trainers grpo online_dpo --uses chat "one image column" --processes 2

Each cell trains a tiny captioner for two steps with the embedded VELA. It says "runs" only if every caption had a
reward, the policy changed, the reward's network was there once in each process and not in the saved checkpoint, and one
process gives the same rewards to the same captions afterwards. Other cells say what went wrong, or why the trainer
cannot be used so. "Runs" in brackets: captions had rewards, but TRL did not change the policy.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import resource
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
from reward import CaptionSample, VelaReward
from reward.images import load_image
from tests.toy_captioners import NO_IMAGE_TOKEN, llava
from tests.toy_judges import pictures

TOLERANCE = 1e-5
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


def _pixels(image: Any) -> str:
    return hashlib.sha256(load_image(image).tobytes()).hexdigest()


class Recorder:
    """A reward that keeps what it rated: {"image": hash of the pixels, "references", "caption", "reward"}."""

    def __init__(self, reward: Any) -> None:
        self.reward, self.rows = reward, []
        self.__name__ = reward.__name__

    def __call__(self, prompts: Any, completions: Any, **columns: Any) -> list[float | None]:
        rewards: list[float | None] = self.reward(prompts=prompts, completions=completions, **columns)
        images = columns.get("image") or columns.get("images") or columns.get("picture")
        if images is None:
            images = [prompt[0]["content"][0]["image"] for prompt in prompts]
        references = columns.get("references") or columns["refs"]
        for image, refs, completion, value in zip(images, references, completions, rewards, strict=True):
            caption = completion if isinstance(completion, str) else completion[0]["content"]
            key = _pixels(image[0] if isinstance(image, list) else image)
            self.rows.append({"image": key, "references": list(refs or []), "caption": caption, "reward": value})
        return rewards


def train(trainer: str, use: str, folder: Path) -> None:
    """Trains in this process, which may be one of several, and writes what it saw to `folder`."""
    module, trainer_class, config_class, needed = TRAINERS[trainer]
    rank = int(os.environ.get("RANK", 0))
    reward = VelaReward(device="cpu", image_column="picture" if use.startswith("plain") else None)
    recorder = Recorder(reward)
    arguments: dict[str, Any] = {**needed, **MORE.get(use, {})}
    rewards: list[Any] = [recorder]
    if use == "two objectives":
        rewards = [Recorder(part) for part in reward.aspects()]
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
    made.save_model(str(folder / "saved"))
    from reward.metrics.vela.model import VelaModel

    networks = sum(isinstance(each, VelaModel) for each in gc.get_objects())
    facts = {
        "rows": [row for each in rewards for row in each.rows] if len(rewards) == 1 else [],
        "calls": len(recorder.rows) if len(rewards) == 1 else [len(each.rows) for each in rewards],
        "missing": sum(row["reward"] is None for each in rewards for row in each.rows),
        "changed": changed,
        "networks": networks,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    (folder / f"{rank}.json").write_text(json.dumps(facts))


def _save_policy(folder: Path) -> None:
    """A tiny LLaVA in a folder, from which trainers also load the reference of their KL term."""
    model, processor = llava()
    model.generation_config.suppress_tokens = NO_IMAGE_TOKEN["suppress_tokens"]
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


def check(folder: Path, processes: int) -> str:
    """What a cell says, from what its processes wrote."""
    facts = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(processes)]
    if any(not fact["calls"] for fact in facts):
        return "the reward was not called"
    if any(fact["missing"] for fact in facts):
        return f"{sum(fact['missing'] for fact in facts)} captions had no reward"
    if any(fact["networks"] != 1 for fact in facts):
        return f"networks of the reward in each process: {[fact['networks'] for fact in facts]}"
    if any("vela" in path.name or path.stat().st_size > 20e6 for path in (folder / "saved").rglob("*")):
        return "the reward was saved with the policy"
    images = {_pixels(image): image for image in _rows()["picture"]}
    rows = [row for fact in facts for row in fact["rows"] if row["caption"].strip()]
    if rows:
        samples = [CaptionSample(row["caption"], images[row["image"]], row["references"]) for row in rows]
        again = VelaReward(device="cpu").rewards(samples)
        if max(abs(row["reward"] - value) for row, value in zip(rows, again, strict=True)) > TOLERANCE:
            return "one process gives other rewards to the same captions"
    memory = "/".join(str(fact["megabytes"]) for fact in facts)
    return f"runs, {memory} MB" if all(fact["changed"] for fact in facts) else f"(runs), {memory} MB"


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
