"""Best-of-N with a caption metric against greedy decoding and choosing with the oracle, on held-out scenes.

    python examples/best_of_n.py --output runs/best_of_n
    python examples/best_of_n.py --reward both --scenes 400 --n 4 --output runs/best_of_4

Writes best_of_n.md and best_of_n.json, which also holds all candidates with their rewards.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from integrations.demo.captioner import MAX_NEW_TOKENS
from integrations.demo.quality import measure_choice, write_systems
from integrations.demo.run import SEED
from integrations.trl import load_policy
from reward import BeitScoreReward, MetricReward, VelaReward
from reward.scenes import make_dataset


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--reward", choices=("vela", "beitscore", "both"), default="vela", help="what chooses; default: vela"
    )
    parser.add_argument("--vela", default="embedded", help="checkpoint of VELA")
    parser.add_argument("--beitscore", default="embedded", help="checkpoint of BEiTScore")
    parser.add_argument("--captioner", default="embedded", help="checkpoint of the captioner")
    parser.add_argument("--scenes", type=int, default=200, help="held-out scenes; default: %(default)s")
    parser.add_argument("--n", type=int, default=16, help="candidates per scene; default: %(default)s")
    parser.add_argument(
        "--without-references", action="store_true", help="VELA sees only the picture, as BEiTScore does"
    )
    parser.add_argument("--seed", type=int, default=SEED, help="of the scenes; default: %(default)s")
    parser.add_argument("--max-new-tokens", type=int, default=MAX_NEW_TOKENS, help="default: %(default)s")
    parser.add_argument("--output", type=Path, required=True, help="folder for best_of_n.md and best_of_n.json")
    options = parser.parse_args(argv)

    rewards: dict[str, MetricReward] = {}
    if options.reward != "beitscore":
        rewards["VELA"] = VelaReward(options.vela, device="cpu")
    if options.reward != "vela":
        rewards["BEiTScore"] = BeitScoreReward(options.beitscore, device="cpu")
    rows = make_dataset(options.scenes, options.seed)
    model, processor = load_policy(options.captioner)
    part = measure_choice(
        model,
        processor,
        list(rows["image"]),
        None if options.without_references else list(rows["refs"]),
        list(rows["scene"]),
        rewards,
        n=options.n,
        max_new_tokens=options.max_new_tokens,
    )
    notes = [f"Captions of {part['scenes']} held-out scenes (seed {options.seed})."]
    for name, share in part["gap_closed"].items():
        notes.append(f"{name} goes {share:.0%} of the way from greedy to the oracle's choice in F1.")
    write_systems(options.output, "best_of_n", part, notes)


if __name__ == "__main__":
    main()
