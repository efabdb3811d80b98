"""Pascal-50S: which of two captions people find closer to what others wrote of the image."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from reward.errors import DataError
from reward.metaeval.benchmarks.items import BenchmarkSpec, Item, PreferencePair
from reward.metaeval.benchmarks.jsonl import read_pair
from reward.metaeval.benchmarks.records import find_file, read_object

__all__ = ["SPECS"]

# Two correct captions by people; one by people of this image and one of another; one by people and one by a machine;
# two by machines. In the order of the numbers 1 to 4 of the published files.
CATEGORIES = ("HC", "HI", "HM", "MM")
DRAWN = 5  # references of a pair, in the protocol of the literature
ALL = "all references"
DRAWS = tuple(f"draw {number}" for number in range(1, 6))


def _load(path: Path, part: str, images: Path | None) -> Iterator[PreferencePair]:
    """Reads `{category: list of {image, captions, label, references}}`."""
    data = read_object(find_file(path, "pascal_50s.json"))
    for category in data.values:
        for entry in data.records(category, f"{category}, pair"):
            yield replace(read_pair(entry, images), category=category)


def _draw_references(items: Iterator[Item], path: Path | None, part: str) -> Iterator[Item]:
    """Draws 5 references of each pair, unless the part is "all references" or the pair has no more.

    The literature scores with 5 of the 48 references drawn at random, and gives the mean over 5 draws. Each part
    `"draw 1"` to `"draw 5"` is one such draw, by a generator that is seeded with the draw and the pair's place.
    """
    for place, pair in enumerate(items):
        if pair.category not in CATEGORIES:
            raise DataError(f"{path}: category must be {', '.join(CATEGORIES)}, got {pair.category!r:.60}")
        if isinstance(pair, PreferencePair) and part != ALL and len(pair.references) > DRAWN:
            generator = random.Random(f"capreward pascal-50s {part} {place} references")
            drawn = tuple(generator.sample(pair.references, DRAWN))
            pair = replace(pair, references=drawn)
        yield pair


SPECS = (
    BenchmarkSpec(
        name="pascal-50s",
        title="Pascal-50S",
        form=PreferencePair,
        statistic="accuracy",
        load=_load,
        refine=_draw_references,
        ties="wrong",
        files="pascal_50s.json, {category: list of {image, captions, label, references}}, or a folder that holds it; "
        "or a .jsonl file with category, image, captions, label and references per line; and a folder of the images "
        "of the PASCAL VOC challenge (--images, images=)",
        origin="the repository of FLEUR (Yebin46/FLEUR, annotations/), from the consensus study of CIDEr (Vedantam, "
        "Zitnick, Parikh 2015)",
        parts=(*DRAWS, ALL),
    ),
)
