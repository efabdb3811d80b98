"""Rated captions: tables with one a row, the lists of GenAI-Bench and EvalMuse-40k, and what MMHE must hold."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reward.data.cells import read_number
from reward.data.json_files import read_json
from reward.data.samples import is_blank
from reward.errors import DataError
from reward.metaeval.benchmarks.files import find_file, read_split, read_table
from reward.metaeval.benchmarks.items import OVERALL, Entry

# LongCap-Arena has a split for each part and aspect, such as dci_val.desc; the paper's TestA is dci_val.
ASPECTS = {"desc": "descriptiveness", "rel": "relevance", "flu": "fluency"}
_ARENA_PARTS = {"TestA": "dci_val", "TestB": "dci_test"}
CRITERIA = ("correctness", "completeness", "clarity", "fluency", "conciseness")  # of MMHE


def load_split(data: str, part: str, images: Path | None, *, config: str | None = None) -> Iterator[Entry]:
    """One split of a data set in a folder or on the Hub, with one rating per row; an empty part is `test`."""
    yield from _merged({OVERALL: read_split(data, part or "test", config)})


def load_longcap_arena(data: str, part: str, images: Path | None) -> Iterator[Entry]:
    """Merges the rows of the part's three splits, one for each aspect, by image and candidate.

    Source: the VELA paper, which calls the split dci_val TestA and dci_test TestB.
    """
    splits = {short: f"{_ARENA_PARTS.get(part, part)}.{short}" for short in ASPECTS}
    yield from _merged({ASPECTS[short]: read_split(data, split) for short, split in splits.items()})


def load_vicr(data: str, part: str, images: Path | None) -> Iterator[Entry]:
    """A table with a column per rater, from 1 to 5, four or five of them per caption. There are no references."""
    for row in read_table(find_file(data, "vicr.csv")):
        if row.get("subset", part) == part:
            ratings = []
            for column, cell in row.items():
                if column == "ratings" or column.startswith("rating_"):
                    number = read_number(cell)
                    if number is not None:
                        ratings.append(number)
            name = str(row["image"]).replace("\\", "/").rpartition("/")[2]  # it may be an address
            yield {"image": name, "candidate": row["caption"], "ratings": ratings}


def _merged(splits: dict[str, Iterator[dict[str, Any]]]) -> Iterator[Entry]:
    """One entry for all rows of the same image and candidate, in the order of their first rows, by aspect.

    Images are identified by file name or, without one, by their references. Every row counts as one judgment.
    """
    entries: dict[tuple[str, str], dict[str, Any]] = {}
    images: dict[str, Any] = {}  # each held once
    for aspect, rows in splits.items():
        for row in rows:
            candidate = _first(row, "cand", "mt", "caption") or ""  # published data have empty ones
            references = _first(row, "refs", "references") or []
            image, name = _first(row, "image", "img"), _first(row, "file_name", "imgid")
            if name is None and isinstance(image, str):
                name = image
            elif name is None and references:
                name = hashlib.sha256("\n".join(filter(str.strip, references)).encode()).hexdigest()[:16]
            elif name is None:
                raise DataError(f"nothing names the image of the caption {candidate!r:.60}")
            name = str(name)
            is_encoded = isinstance(image, dict) and image.get("bytes") is not None
            images.setdefault(name, image if is_encoded else name)
            if (name, candidate) not in entries:
                entry = {"image": images[name], "image_id": name, "candidate": candidate, "references": references}
                entries[name, candidate] = {**entry, "ratings": {}}
            score = _first(row, "score", "human_score")
            if score is not None and not math.isnan(score):
                entries[name, candidate]["ratings"].setdefault(aspect, []).append(score)
    yield from entries.values()


def _first(row: dict[str, Any], *names: str) -> Any:
    """The first of these columns, which published data sets name differently; None if there is none."""
    for name in names:
        if name in row:
            return row[name]
    return None


def load_genai_bench(data: str, part: str, images: Path | None) -> Iterator[Entry]:
    """GenAI-Bench: each image with its prompt as the caption; three people rated from 1 to 5, and their mean counts.

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
    """The rated images of EvalMuse-40k; the part "val" holds one in twenty prompts, by a hash of their text.

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


def check_mmhe(items: Iterator[dict[str, Any]], part: str) -> Iterator[dict[str, Any]]:
    """In MMHE answers have their questions, and ratings from 1 to 5 are for some of the criteria, three raters each.

    The paper gives Kendall's tau for each criterion without saying which; ours is tau-c over single judgments.
    """
    for number, item in enumerate(items, start=1):
        for criterion in item.get("ratings", ()):
            if criterion not in CRITERIA:
                raise DataError(f"text {number}: the criteria are {', '.join(CRITERIA)}, got {criterion!r:.40}")
        if item["category"] in ("VQA", "VDU") and is_blank(item["question"] or ""):
            raise DataError(f"text {number}: a text of {item['category']} answers a question; add it as `question`")
        yield item
