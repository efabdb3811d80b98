"""Scores captions of one picture with VELA: a good one, one with errors, an incomplete one, one in broken English.

python examples/score_captions.py
python examples/score_captions.py --source path/of/a/checkpoint
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence

from reward import CaptionSample, load_scorer
from reward.scenes import damage, describe, drop_facts, make_error, make_references, render, sample_scene


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default="embedded", help="checkpoint: embedded, a folder, or a Hub id")
    parser.add_argument("--seed", type=int, default=7, help="of the scene")
    options = parser.parse_args(argv)

    rng = random.Random(f"score captions {options.seed}")
    scene = sample_scene(rng)
    image, references = render(scene), make_references(scene, rng, 2)
    complete = describe(scene, rng)
    mistaken = make_error(make_error(scene, "attribute", rng) or scene, "noun", rng) or scene
    captions = {
        "true and complete": complete.text,
        "with two errors": describe(mistaken, rng).text,
        "incomplete": describe(scene, rng, facts=drop_facts(scene, 0.2, rng)).text,
        "in disorder": (damage(complete, "word_order", rng) or complete).text,
    }

    scorer = load_scorer("vela", options.source, device="cpu")
    table = scorer.score([CaptionSample(text, image=image, references=references) for text in captions.values()])
    for row, (name, text) in enumerate(captions.items()):
        print(f"\n{name}: {text}")
        print("  " + ", ".join(f"{aspect} {table.scores[row, k]:.2f}" for k, aspect in enumerate(table.aspects)))


if __name__ == "__main__":
    main()
