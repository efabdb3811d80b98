"""GenAI-Bench: images that generators made of a prompt, and how well people find that they match it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reward.errors import DataError
from reward.metaeval.benchmarks.files import find_file, read_entries, take
from reward.metaeval.benchmarks.items import OVERALL, BenchmarkSpec, RatedCaption
from reward.metaeval.benchmarks.tables import image_folder

__all__ = ["SPECS"]

_SUFFIXES = (".jpeg", ".jpg", ".png", ".webp")


def _load(path: Path, part: str, images: Path | None) -> Iterator[RatedCaption]:
    """Reads each image with its prompt as the caption; three people rated from 1 to 5, and their mean counts.

    The category of an image is its generator. There are no references. As in BEiTScore's paper, tau-c is the statistic
    of the benchmark; the pairwise accuracy of the benchmark's authors, with a threshold for ties, is not computed.
    """
    file = find_file(path, "genai_image.json")
    root = image_folder(file.parent, images)
    for number, where, entry in read_entries(file, noun="prompt"):
        prompt = take(entry, "prompt", str, where)
        generators: dict[str, Any] = take(entry, "models", dict, where)
        for generator in generators:
            given: list[Any] = take(generators, generator, list, where)
            ratings = [value for value in given if value is not None]
            if any(isinstance(value, bool) or not isinstance(value, (int, float)) for value in ratings) or any(
                not 1 <= value <= 5 for value in ratings
            ):
                raise DataError(f"{where}: {generator} must have ratings from 1 to 5, got {given!r:.60}")
            if ratings:
                yield RatedCaption(
                    candidate=prompt,
                    ratings={OVERALL: tuple(map(float, ratings))},
                    image=_find_image(root / generator, number),
                    image_id=f"{generator}/{number}",
                    category=generator,
                )


def _find_image(folder: Path, number: str) -> Path:
    paths = [folder / f"{number}{suffix}" for suffix in _SUFFIXES]
    return next((path for path in paths if path.is_file()), paths[0])


SPECS = (
    BenchmarkSpec(
        name="genai-bench",
        title="GenAI-Bench",
        form=RatedCaption,
        statistic="tau-c",
        load=_load,
        judgments="mean",
        files="a folder with genai_image.json, {prompt id: {prompt, models: {generator: ratings}}}, and a folder for "
        "each generator with the images <prompt id>.jpeg; or a .jsonl file with image, candidate (the prompt) and "
        "ratings a line",
        origin="the authors (Li, Lin, Pathak, Li and others 2024), on the Hub as BaiqiL/GenAI-Bench-1600 and "
        "zhiqiulin/GenAI-Bench-527, with the images of a generator in an archive each",
        licence="Apache-2.0, says the card of BaiqiL/GenAI-Bench",
    ),
)
