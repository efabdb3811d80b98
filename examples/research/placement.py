"""Where to put the reward: memory of a card and seconds of a GRPO step, on paper, for each place of VELA.

    python -m examples.research.placement
    python -m examples.research.placement --gpu a100 --prompts 16 --caption-tokens 400 --adapters
    python -m examples.research.placement --try offload

The work and memory of VELA are counted at paper size (docs/results/sizes_scoring.csv). The policy's are computed from
the sizes of Qwen2.5-VL. `--utilisation` and `--decoding` are assumptions, so read the shares rather than the seconds.
VELA's work is that of captions of 140 words, whatever the options say. With `--try PLACE` the embedded captioner is
trained for two steps on the CPU of this machine, with the reward in that place, in the folder runs/placement.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

SIZES = Path(__file__).resolve().parents[2] / "docs" / "results" / "sizes_scoring.csv"
GIB = 2**30
# Memory in GiB, dense bfloat16 FLOP/s and bytes/s, from the makers' data sheets.
GPUS = {"h100": (80, 989e12, 3.35e12), "a100": (80, 312e12, 2.04e12), "l40s": (48, 362e12, 0.864e12)}
PCIE = 25e9  # bytes/s that a card reads from or writes to the CPU's memory, of 32e9 on paper
BYTES_OF_FULL_TUNING = 2 + 2 + 12  # weights, gradients, and AdamW's two moments and weights in float32
PLACES = ("in process", "another card", "offload", "service")


@dataclass(frozen=True)
class Policy:
    """Sizes of a policy: parameters, layers, width, key and value width of all heads, vocabulary."""

    parameters: float
    layers: int
    width: int
    cache_width: int
    vocabulary: int = 151_936


# From the configuration files on the Hub; parameters include the vision tower.
POLICIES = {"3B": Policy(3.75e9, 36, 2048, 256), "7B": Policy(8.29e9, 28, 3584, 512, 152_064)}


def _positive(kind: type, most: float = 1e9) -> Callable[[str], Any]:
    def number(text: str) -> Any:
        value = kind(text)
        if not 0 < value <= most:
            raise argparse.ArgumentTypeError(f"must be above 0 and at most {most:g}, got {text}")
        return value

    return number


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", choices=GPUS, default="h100", help="default: %(default)s")
    parser.add_argument(
        "--prompts", type=_positive(int), default=8, help="images of a step on each card; default: %(default)s"
    )
    parser.add_argument(
        "--prompt-tokens", type=_positive(int), default=450, help="with the image's; default: %(default)s"
    )
    parser.add_argument("--caption-tokens", type=_positive(int), default=180, help="default: %(default)s")
    parser.add_argument("--adapters", action="store_true", help="train LoRA adapters instead of all weights")
    parser.add_argument(
        "--utilisation", type=_positive(float, 1), default=0.4, help="share of the peak FLOP/s; default: %(default)s"
    )
    parser.add_argument(
        "--decoding", type=_positive(float, 1), default=0.5, help="share of the memory's rate; default: %(default)s"
    )
    parser.add_argument(
        "--try", dest="place", choices=[place for place in PLACES if place != "another card"], help="see above"
    )
    parser.add_argument(
        "--service-cards", type=_positive(int), default=1, help="cards of the service; default: %(default)s"
    )
    parser.add_argument("--service", metavar="URL", help="of `capreward serve`, for --try service")
    options = parser.parse_args(argv)
    if (options.place == "service") != (options.service is not None):
        parser.error("--try service and --service URL go together: start one by `capreward serve --metric vela`")
    return options


def read_vela(generations: int = 8) -> dict[str, float]:
    """FLOPs of a group, bytes of the weights, and bytes that scoring takes at its peak."""
    with SIZES.open(newline="") as file:
        row = next(row for row in csv.DictReader(file) if row["metric"] == "vela" and row["G"] == str(generations))
    return {
        "work": 1e12 * float(row["TFLOP shared"]),
        "weights": GIB * float(row["GiB weights"]),
        "peak": GIB * float(row["GiB peak"]),
    }


def step(policy: Policy, cards: int, place: str, options: argparse.Namespace) -> list[str]:
    """GiB on a card, and seconds, the reward's share and captions a second of a step with `--prompts` groups a card."""
    memory, peak, bandwidth = GPUS[options.gpu]
    rate, vela = options.utilisation * peak, read_vela()
    training_cards = cards - 1 if place == "another card" else cards
    if training_cards == 0:
        return []
    rows = 8 * options.prompts
    tokens = options.prompt_tokens + options.caption_tokens

    trained = policy.parameters * (2 if options.adapters else BYTES_OF_FULL_TUNING / training_cards)
    gathered = 0 if options.adapters else 4 * policy.parameters / policy.layers  # ZeRO-3 gathers a layer and the next
    cache = 2 * 2 * policy.layers * policy.cache_width * tokens * rows
    # One row at a time: checkpoints of the layers, a layer's own states, and logits with their gradient in float32.
    states = 2 * policy.layers * policy.width * tokens + 40 * policy.width * tokens
    states += 8 * policy.vocabulary * options.caption_tokens
    weights_to_generate = 0 if options.adapters else 2 * policy.parameters  # gathered whole to generate
    phases = {
        "generate": trained + weights_to_generate + cache,
        "train": trained + gathered + states,
        "reward": trained + (vela["peak"] if place in ("in process", "offload") else 0),
    }
    if place == "in process":
        phases["generate"] += vela["weights"]
        phases["train"] += vela["weights"]

    generating = options.caption_tokens * (2 * policy.parameters + cache / 2) / (options.decoding * bandwidth)
    # Forward and backward pass, the pass that gradient checkpointing repeats, and the old log-probabilities.
    training = (6 + 2 + 2) * policy.parameters * tokens * rows / rate
    scoring_cards = {"another card": 1, "service": options.service_cards}.get(place, training_cards)
    rewarding = options.prompts * training_cards / scoring_cards * vela["work"] / rate
    if place == "offload":
        rewarding += 2 * vela["weights"] / PCIE
    seconds = generating + training + rewarding
    most = max(phases.values()) / GIB
    return [
        f"{most:.0f}{'' if most < memory else ' !'}",
        *(f"{seconds:.1f}", f"{rewarding / seconds:.0%}", f"{training_cards * rows / seconds:.0f}"),
    ]


def show(options: argparse.Namespace) -> None:
    """Prints the table."""
    grid = Table("policy", "cards", "VELA", "GiB a card", "s a step", "reward", "captions/s")
    for size, policy in POLICIES.items():
        for cards in (1, 8):
            for place in PLACES:
                figures = step(policy, cards, place, options)
                if figures:
                    grid.add_row(size, f"{cards} {options.gpu}", place, *figures)
    Console().print(grid)
    print(
        f"!: more than the card's {GPUS[options.gpu][0]} GiB. s a step: seconds of a step; reward: its share of them."
    )


def run_here(options: argparse.Namespace) -> None:
    """Two steps of GRPO with the embedded captioner and VELA, on this machine."""
    from trl import GRPOConfig, GRPOTrainer

    from integrations.trl import load_policy, make_prompt_dataset
    from reward.scenes import make_dataset

    policy, processor = load_policy("embedded")
    config = GRPOConfig(
        output_dir="runs/placement",
        max_steps=2,
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=20,
        use_cpu=True,
        bf16=False,
        report_to="none",
        save_strategy="no",
        logging_steps=1,
    )
    data = make_prompt_dataset(make_dataset(16, seed=1), "Describe the picture.", references_column="refs")
    GRPOTrainer(
        model=policy,
        reward_funcs=[make_reward(options)],
        args=config,
        train_dataset=data,
        processing_class=processor,
    ).train()


def make_reward(options: argparse.Namespace) -> Any:
    """The reward in the place asked for."""
    from reward import RemoteReward, VelaReward

    if options.place == "service":
        return RemoteReward(options.service, metric="vela")
    return VelaReward(device="cpu", offload=options.place == "offload")


def main(argv: Sequence[str] | None = None) -> None:
    options = parse(argv)
    if options.place:
        run_here(options)
    else:
        show(options)


if __name__ == "__main__":
    main()
