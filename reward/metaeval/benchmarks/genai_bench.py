"""GenAI-Bench and EvalMuse-40k: images that generators made of a prompt, and how well people find that they match."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from reward.metaeval.benchmarks.items import OVERALL, BenchmarkSpec, RatedCaption
from reward.metaeval.benchmarks.records import find_file, image_folder, number_in, read_entries, read_list

__all__ = ["SPECS", "held_out"]

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


def _load_evalmuse(path: Path, part: str, images: Path | None) -> Iterator[RatedCaption]:
    """Reads the rated images of EvalMuse-40k; the part "val" holds one in twenty prompts, by a hash of their text.

    The authors' own test set has no ratings, and they name no part to stop by.
    """
    file = find_file(path, "train_list.json")
    root = image_folder(file.parent, images, *(() if images else ("images",)))
    for entry in read_list(file):
        prompt, image = entry.text("prompt"), entry.text("img_path")
        ratings = entry.of_kind("total_score", list)
        if any(number_in(value, 1, 5) is None for value in ratings):
            raise entry.error("total_score", "a list of ratings from 1 to 5")
        if ratings and held_out(prompt) == (part == "val"):
            yield RatedCaption(
                candidate=prompt,
                ratings={OVERALL: tuple(map(float, ratings))},
                image=root / image,
                image_id=image,
                category=image.partition("/")[0],
            )


def held_out(name: str, share: float = 0.05) -> bool:
    """Whether a hash of the name puts it into the share that is held out of a data set without a validation part."""
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) < share * 2**32


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
    BenchmarkSpec(
        name="evalmuse-40k",
        title="EvalMuse-40k",
        form=RatedCaption,
        statistic="tau-c",
        load=_load_evalmuse,
        judgments="mean",
        files="train_list.json (a list of objects with prompt, img_path and total_score, ratings from 1 to 5), "
        "with the images beside it or in the folder images; or a .jsonl file with image, candidate and ratings per "
        "line",
        origin="the authors (Han, Fan, Fu and others 2024), on the Hub as DY-Evalab/EvalMuse, with the images in an "
        "archive of several parts",
        licence="BSD 3-Clause, says its card",
        parts=("val", "train"),
    ),
)
