"""GenAI-Bench: images that generators made of a prompt, and how well people find that they match it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from reward.metaeval.benchmarks.items import OVERALL, BenchmarkSpec, RatedCaption
from reward.metaeval.benchmarks.records import find_file, image_folder, number_in, read_entries

__all__ = ["SPECS"]

_ENDINGS = (".jpeg", ".jpg", ".png", ".webp")


def _load(path: Path, part: str, images: Path | None) -> Iterator[RatedCaption]:
    """Reads each image with its prompt as the caption; three people rated from 1 to 5, and their mean counts.

    The category of an image is its generator. There are no references. As in BEiTScore's paper, tau-c is the statistic
    of the benchmark; the pairwise accuracy of the benchmark's authors, with a threshold for ties, is not computed.
    """
    file = find_file(path, "genai_image.json")
    root = image_folder(file.parent, images)
    for number, entry in read_entries(file, noun="prompt"):
        prompt, ratings_of = entry.text("prompt"), entry.record("models")
        for generator in ratings_of.values:
            ratings = [value for value in ratings_of.of_kind(generator, list) if value is not None]
            if any(number_in(value, 1, 5) is None for value in ratings):
                raise ratings_of.error(generator, "a list of ratings from 1 to 5")
            if ratings:
                paths = [root / generator / f"{number}{ending}" for ending in _ENDINGS]
                yield RatedCaption(
                    candidate=prompt,
                    ratings={OVERALL: tuple(map(float, ratings))},
                    image=next((path for path in paths if path.is_file()), paths[0]),
                    image_id=f"{generator}/{number}",
                    category=generator,
                )


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
        "ratings per line",
        origin="the authors (Li, Lin, Pathak, Li and others 2024), on the Hub as BaiqiL/GenAI-Bench-1600 and "
        "zhiqiulin/GenAI-Bench-527, with the images of a generator in an archive each",
        licence="Apache-2.0, says the card of BaiqiL/GenAI-Bench",
    ),
)
