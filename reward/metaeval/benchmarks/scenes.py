"""The synthetic scenes as benchmarks: captions rated by simulated raters, and pairs with a single error."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from reward.metaeval.benchmarks.items import Entry

SEEDS = {"seed 7": 7, "seed 2026": 2026}  # 7 is the demo's; 2026 was kept for final figures
SIZE = 500
EACH = 100  # pairs of each category, each of a scene of its own
NAMES = {"desc": "descriptiveness", "rel": "relevance", "flu": "fluency"}


def load_rated(data: str, part: str, images: Path | None) -> Iterator[Entry]:
    """500 scenes with one caption each, rated by three raters from 1 to 5 on three aspects."""
    from reward.scenes import make_rated_sample, render

    for index in range(SIZE):
        sample = make_rated_sample(random.Random(f"capreward scenes {SEEDS[part]} {index}"))  # as `make_dataset` does
        raters = sample.candidate.ratings.raters
        yield {
            "image": render(sample.scene),
            "image_id": str(index),
            "candidate": sample.candidate.caption.text,
            "references": tuple(sample.references),
            "ratings": {NAMES[aspect]: values for aspect, values in raters.items()},
        }


def load_pairs(data: str, part: str, images: Path | None) -> Iterator[Entry]:
    """100 pairs of each kind of error. A CLIP reads the short captions whole; long ones differ only after its end."""
    from reward.scenes import CATEGORIES, make_pair_dataset

    for category in CATEGORIES:
        rows = make_pair_dataset(EACH, SEEDS["seed 7"], long=part == "long", categories=[category])
        for index, row in enumerate(rows):
            captions = (row["correct"], row["incorrect"])
            shared = {"image": row["image"], "image_id": f"{category} {index}", "category": category}
            yield {**shared, "captions": captions, "label": 0}
