"""Tables with an image, a caption and a rating per row: LongCap-Arena, Polaris, Nebula, Flickr8k, Composite, VICR."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reward.data.cells import read_number
from reward.errors import DataError
from reward.metaeval.benchmarks.files import find_file, read_split, read_table
from reward.metaeval.benchmarks.items import OVERALL, Entry

# LongCap-Arena has a split for each part and aspect, such as dci_val.desc; the paper's TestA is dci_val.
ASPECTS = {"desc": "descriptiveness", "rel": "relevance", "flu": "fluency"}
_ARENA_PARTS = {"TestA": "dci_val", "TestB": "dci_test"}


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
