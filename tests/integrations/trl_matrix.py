"""What runs with TRL: every trainer that takes reward functions, with each form of data.

    python -m tests.integrations.trl_matrix

Each cell trains a tiny captioner for two steps with the embedded VELA. It says "runs" only if every caption had a
reward and the policy changed. "Runs" in brackets: captions had rewards, but TRL did not change the policy.
"""

import tempfile
from importlib import import_module
from pathlib import Path

import torch
import trl
from datasets import Dataset, Image, List
from transformers import PrinterCallback

from integrations.trl import make_prompt_dataset
from reward import VelaReward
from tests.integrations.short_training import policy_in
from tests.toys.toy_captioners import NO_IMAGE_TOKEN
from tests.toys.toy_judges import pictures

EXPERIMENTAL = {"GMPO": "gmpo", "SDPO": "sdpo", "OnlineDPO": "online_dpo"}
TRAINERS = ("GRPO", "RLOO", *EXPERIMENTAL)
QUESTION = "Describe it"


def rows():
    references = [["A red star."], ["Green.", "It is green."], [], None]
    return Dataset.from_dict({"picture": pictures(4), "refs": references})


def chat():
    return make_prompt_dataset(rows(), QUESTION, image_column="picture", references_column="refs")


def several_images():
    listed = chat().map(lambda row: {"images": [row["image"]]}, remove_columns="image")
    return listed.cast_column("images", List(Image()))


def in_prompt():
    """The image stands in the prompt alone, which Arrow tables cannot hold, so a transform puts it there."""

    def prompts(batch):
        text = {"type": "text", "text": QUESTION}
        chats = [[{"role": "user", "content": [{"type": "image", "image": image}, text]}] for image in batch["picture"]]
        return {"prompt": chats, "references": batch["refs"]}

    return rows().with_transform(prompts)


USES = {
    "plain prompt": lambda: rows().add_column("prompt", [f"USER: {QUESTION} ASSISTANT:"] * 4),
    "chat": chat,
    "column images": several_images,
    "image in the prompt only": in_prompt,
    "stream": lambda: chat().to_iterable_dataset(),
    "two objectives": chat,
    "evaluation": chat,
}


def cell(name, use, folder):
    """Trains with a trainer and a use; says what became of it."""
    given = []

    def kept(part):
        def function(**call):
            given.append(part(**call))
            return given[-1]

        function.__name__ = part.__name__
        return function

    reward = VelaReward(device="cpu", image_column="picture" if use == "plain prompt" else None)
    arguments = {"max_steps": 2, "learning_rate": 1e-2, "use_cpu": True, "bf16": False}
    arguments |= {"per_device_train_batch_size": 4, "per_device_eval_batch_size": 4, "gradient_checkpointing": False}
    arguments |= {"report_to": "none", "save_strategy": "no", "disable_tqdm": True}
    online = {"max_length": 64, "max_new_tokens": 6}
    arguments |= online if name == "OnlineDPO" else {"num_generations": 2, "max_completion_length": 6}
    if use == "two objectives":
        arguments |= {"multi_objective_aggregation": "normalize_then_sum", "reward_weights": [2.0, 1.0, 1.0]}
    if use == "evaluation":
        arguments |= {"eval_strategy": "steps", "eval_steps": 1}
    model, processor = policy_in(folder / "policy")
    model.generation_config.suppress_tokens = NO_IMAGE_TOKEN["suppress_tokens"]
    module = import_module(f"trl.experimental.{EXPERIMENTAL[name]}" if name in EXPERIMENTAL else "trl")
    trainer = getattr(module, f"{name}Trainer")(
        model=model,
        reward_funcs=[kept(part) for part in (reward.aspects() if use == "two objectives" else [reward])],
        args=getattr(module, f"{name}Config")(str(folder / "out"), **arguments),
        train_dataset=USES[use](),
        eval_dataset=chat() if use == "evaluation" else None,
        processing_class=processor,
    )
    trainer.remove_callback(PrinterCallback)
    before = [value.detach().clone() for value in model.parameters()]
    trainer.train()
    if not given:
        return "the reward was not called"
    if missing := sum(rewards.count(None) for rewards in given):
        return f"{missing} captions had no reward"
    changed = any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    return "runs" if changed else "(runs)"


def main():
    """Prints the matrix."""
    print(f"TRL {trl.__version__}, torch {torch.__version__}\n\n| use | {' | '.join(TRAINERS)} |")
    print("|---" * (1 + len(TRAINERS)) + "|")
    for use in USES:
        cells = []
        for name in TRAINERS:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    cells.append(cell(name, use, Path(folder)))
                except Exception as error:  # of whatever kind: it is what the matrix shows
                    cells.append(f"fails: {type(error).__name__}: {error!s:.100}")
        print(f"| {use} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
