"""Reranks captions that exist already, such as the outputs of several captioners, by VELA.

python examples/rerank_candidates.py
python examples/rerank_candidates.py --weights desc=1,rel=2,flu=1
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence

from integrations.hf_generate import rerank
from reward import VelaReward
from reward.scenes import Oracle, make_candidate, make_references, render, sample_scene


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default="embedded", help="VELA checkpoint: embedded, a folder, or a Hub id")
    parser.add_argument("--weights", default="desc=1,rel=1,flu=1", help="what the reward weighs; default: %(default)s")
    parser.add_argument("--candidates", type=int, default=6)
    parser.add_argument("--seed", type=int, default=7, help="of the scene and its candidates")
    options = parser.parse_args(argv)

    rng = random.Random(f"rerank candidates {options.seed}")
    scene = sample_scene(rng)
    image, references = render(scene), make_references(scene, rng, 1)
    candidates = [make_candidate(scene, rng).caption.text for _ in range(options.candidates)]

    weights = {aspect: float(weight) for aspect, weight in (part.split("=") for part in options.weights.split(","))}
    reward = VelaReward(options.source, weights, device="cpu")
    oracle = Oracle()
    for place, index in enumerate(rerank(candidates, image=image, references=references, reward=reward), start=1):
        verdict = oracle.score(candidates[index], scene)
        print(f"{place}. (truth: F1 {verdict.f1:.2f}, {verdict.faults} language faults) {candidates[index]}")


if __name__ == "__main__":
    main()
