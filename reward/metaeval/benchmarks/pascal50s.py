"""Pascal-50S: which of two captions people find closer to what others wrote of the image."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reward.json_files import read_json
from reward.metaeval.benchmarks.files import find_file
from reward.metaeval.benchmarks.items import Entry

# The categories: two correct captions by people (HC); one by people of this image and one of another (HI); one by
# people and one by a machine (HM); two by machines (MM).
DRAWN = 5  # references of a pair, in the protocol of the literature
ALL = "all references"
DRAWS = tuple(f"draw {number}" for number in range(1, 6))


def load(data: str, part: str, images: Path | None) -> Iterator[Entry]:
    """Reads `{category: list of {image, captions, label, references}}`."""
    for category, pairs in read_json(find_file(data, "pascal_50s.json")).items():
        yield from ({**pair, "category": category} for pair in pairs)


def draw_references(items: Iterator[dict[str, Any]], part: str) -> Iterator[dict[str, Any]]:
    """Draws 5 references of each pair, unless the part is "all references" or the pair has no more.

    The literature scores with 5 of the 48 references drawn at random, and gives the mean over 5 draws. Each part
    `"draw 1"` to `"draw 5"` is one such draw, by a generator that is seeded with the draw and the pair's place.
    """
    for place, pair in enumerate(items):
        if part != ALL and len(pair["references"]) > DRAWN:
            generator = random.Random(f"capreward pascal-50s {part} {place} references")
            pair["references"] = tuple(generator.sample(pair["references"], DRAWN))
        yield pair
