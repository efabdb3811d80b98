"""GenAI-Bench and EvalMuse-40k: images that generators made of a prompt, and how well people find that they match."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from pathlib import Path

from reward.data.json_files import read_json
from reward.metaeval.benchmarks.files import find_file
from reward.metaeval.benchmarks.items import Entry


def load(data: str, part: str, images: Path | None) -> Iterator[Entry]:
    """Reads each image with its prompt as the caption; three people rated from 1 to 5, and their mean counts.

    The category of an image is its generator. There are no references. As in BEiTScore's paper, tau-c is the statistic
    of the benchmark; the pairwise accuracy of the benchmark's authors, with a threshold for ties, is not computed.
    """
    odd = set()
    for number, entry in read_json(find_file(data, "genai_image.json")).items():
        for generator, ratings in entry["models"].items():
            odd |= {rating for rating in ratings if rating is not None and not 1 <= rating <= 5}
            image = f"{generator}/{number}"  # with whatever ending is there
            shared = {"image": image, "candidate": entry["prompt"], "category": generator}
            yield {**shared, "ratings": [rating for rating in ratings if rating is not None]}
    if odd:  # the published file has two typing errors, 33 and 41
        message = f"ratings outside 1 to 5 count as they are, as in the authors' code: {sorted(odd)}"
        warnings.warn(f"genai-bench: {message}", stacklevel=2)


def load_evalmuse(data: str, part: str, images: Path | None) -> Iterator[Entry]:
    """Reads the rated images of EvalMuse-40k; the part "val" holds one in twenty prompts, by a hash of their text.

    The authors' own test set has no ratings, and they name no part to stop by.
    """
    for entry in read_json(find_file(data, "train_list.json")):
        if held_out(entry["prompt"]) == (part == "val"):
            image = entry["img_path"]
            shared = {"image": image, "candidate": entry["prompt"], "category": image.partition("/")[0]}
            yield {**shared, "ratings": entry["total_score"]}


def held_out(name: str, share: float = 0.05) -> bool:
    """Whether a hash of the name puts it into the share that is held out of a data set without a validation part."""
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) < share * 2**32
