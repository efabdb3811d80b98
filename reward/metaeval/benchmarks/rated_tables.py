"""Tables with an image, a caption and a rating per row: LongCap-Arena, Polaris, Nebula, Flickr8k, Composite, VICR."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from reward.errors import DataError
from reward.metaeval.benchmarks.files import find_file, read_split, read_table
from reward.metaeval.benchmarks.items import OVERALL, RATINGS, BenchmarkSpec, Entry

# LongCap-Arena has a split for each part and aspect, such as dci_val.desc; the paper's TestA is dci_val.
ASPECTS = {"desc": "descriptiveness", "rel": "relevance", "flu": "fluency"}
_ARENA_PARTS = {"TestA": "dci_val", "TestB": "dci_test"}


def _load_split(data: str, part: str, images: Path | None, *, config: str | None = None) -> Iterator[Entry]:
    """One split of a data set in a folder or on the Hub, with one rating per row; an empty part is `test`."""
    yield from _merged({OVERALL: read_split(data, part or "test", config)})


def _load_longcap_arena(data: str, part: str, images: Path | None) -> Iterator[Entry]:
    """Merges the rows of the part's three splits, one for each aspect, by image and candidate.

    Source: the VELA paper, which calls the split dci_val TestA and dci_test TestB.
    """
    splits = {short: f"{_ARENA_PARTS.get(part, part)}.{short}" for short in ASPECTS}
    yield from _merged({ASPECTS[short]: read_split(data, split) for short, split in splits.items()})


def _load_vicr(data: str, part: str, images: Path | None) -> Iterator[Entry]:
    """A table with a column per rater, from 1 to 5, four or five of them per caption. There are no references."""
    for row in read_table(find_file(data, "vicr.csv")):
        if row.get("subset", part) == part:
            cells = [row["ratings"], *(cell for name, cell in row.items() if name.startswith("rating_"))]
            ratings = [float(cell) for cell in cells if str(cell or "").strip()]
            name = str(row["image"]).replace("\\", "/").rpartition("/")[2]  # it may be an address
            yield {"image": name, "candidate": row["caption"], "ratings": ratings}


def _merged(splits: dict[str, Iterator[dict[str, Any]]]) -> Iterator[Entry]:
    """One entry for all rows of the same image and candidate, in the order of their first rows, by aspect.

    Images are identified by file name or, without one, by their references. Every row counts as one judgment.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    images: dict[str, Any] = {}  # each held once
    for aspect, rows in splits.items():
        for row in rows:
            references = _first(row, "refs", "references") or []
            image, name = _first(row, "image", "img"), _first(row, "file_name", "imgid")
            if name is None and isinstance(image, str):
                name = image
            elif name is None and references:
                name = hashlib.sha256("\n".join(filter(str.strip, references)).encode()).hexdigest()[:16]
            elif name is None:
                raise DataError(f"nothing names the image of the caption {_first(row, 'cand', 'mt', 'caption')!r:.60}")
            is_encoded = isinstance(image, dict) and image.get("bytes") is not None
            shown = images.setdefault(str(name), image if is_encoded else str(name))
            candidate = _first(row, "cand", "mt", "caption") or ""  # published data have empty ones
            entry = {"image": shown, "image_id": str(name), "candidate": candidate, "references": references}
            entry = found.setdefault((str(name), candidate), {**entry, "ratings": {}})
            score = _first(row, "score", "human_score")
            if score is not None and not math.isnan(score):
                entry["ratings"].setdefault(aspect, []).append(score)
    yield from found.values()


def _first(row: dict[str, Any], *names: str) -> Any:
    """The first of these columns, which published data sets name differently; None if there is none."""
    return next((row[name] for name in names if name in row), None)


_COMMON = "or a .jsonl file with image, candidate, references and ratings per line"
_FLICKR8K = f"{_COMMON}; and the images in a folder images beside them (or --images, images=)"
_OF_FLICKR8K: dict[str, Any] = {
    "origin": "Hodosh, Young and Hockenmaier 2013, who send images on request; on the Hub from the authors of Polos",
    "licence": "none stated in its readme, which asks for a citation; the images belong to who put them on Flickr",
    "hub": "yuwd/Flickr8k-HumanEval",
}
SPECS = (
    BenchmarkSpec(
        name="longcap-arena",
        title="LongCap-Arena",
        form=RATINGS,
        statistic="tau-c",
        judgments="mean",  # as in the paper's appendix B
        load=_load_longcap_arena,
        files="a folder with the Parquet files of the splits <part>.<aspect> (parts dci_val = TestA, dci_test = "
        "TestB, val, test, train; aspects desc, rel, flu), with the columns file_name, image, refs, cand and score; or "
        "a .jsonl file with image, candidate, references and ratings {aspect: list} per line",
        origin="the authors of VELA (Matsuda, Wada, Hirano, Otsuki, Sugiura 2025), on the Hub",
        licence="BSD 3-Clause Clear, say its paper and its card; its images are of SA-1B, which has its own terms",
        hub="Ka2ukiMatsuda/LongCap-Arena",
        parts=("TestA", "TestB", "val", "test", "train"),
    ),
    BenchmarkSpec(
        name="polaris",
        title="Polaris",
        form=RATINGS,
        statistic="tau-c",
        load=_load_split,
        files=f"the Parquet files of the Hub, with the columns refs, cand, img and human_score; {_COMMON}",
        origin="the authors of Polos (Wada, Kaneda, Saito, Sugiura 2024), on the Hub",
        licence="BSD 3-Clause Clear, says the script of its authors; the card on the Hub says bsd",
        hub="yuwd/Polaris",
        parts=("test", "validation", "train"),
    ),
    BenchmarkSpec(  # with the scores as they were published; later corrections by others are not applied
        name="nebula",
        title="Nebula",
        form=RATINGS,
        statistic="tau-c",
        load=_load_split,
        files=f"the Parquet files of the Hub, with the columns file_name, image, refs, mt and human_score; {_COMMON}",
        origin="the authors of DENEB (Matsuda, Wada, Sugiura 2024), on the Hub",
        hub="Ka2ukiMatsuda/Nebula",
        parts=("test", "valid", "train"),
    ),
    BenchmarkSpec(
        name="flickr8k-expert",
        title="Flickr8k-Expert",
        form=RATINGS,
        statistic="tau-c",
        load=partial(_load_split, config="expert"),
        files=f"the Parquet files of the Hub (configuration expert), with a row for each rating; {_FLICKR8K}",
        **_OF_FLICKR8K,
    ),
    BenchmarkSpec(
        name="flickr8k-cf",
        title="Flickr8k-CF",
        form=RATINGS,
        statistic="tau-b",
        load=partial(_load_split, config="crowdflower"),
        judgments="mean",
        files=f"the Parquet files of the Hub (configuration crowdflower); {_FLICKR8K}",
        **_OF_FLICKR8K,
    ),
    BenchmarkSpec(
        name="composite",
        title="Composite",
        form=RATINGS,
        statistic="tau-c",
        load=partial(_load_split, config="default"),
        files=f"the Parquet files of the Hub; {_COMMON}; and the images in a folder images beside them (or --images, "
        "images=), where the files do not hold them",
        origin="the authors (Aditya, Yang, Baral, Fermuller, Aloimonos 2015); on the Hub from the authors of Polos",
        hub="yuwd/Composite",
    ),
    BenchmarkSpec(
        name="vicr",
        title="VICR",
        form=RATINGS,
        statistic="tau-c",
        load=_load_vicr,
        files="vicr.csv with the columns image (its address or file name), caption, subset (train, val or test; a file "
        "without it is one part), ratings and rating_2, rating_3 ... (one rater each, empty where there are fewer); or "
        "a .jsonl file with image, candidate, references and ratings per line; and a folder with the images of COCO "
        "val2014 and Flickr8k (images beside it, or --images, images=)",
        origin="the authors (Narins, Scott, Gautam, Kulkarni and others, NeurIPS Datasets and Benchmarks 2023); the "
        "layout of these columns is that of a sample in hil-se/comparative_image_caption, data/VICR_Sample250.csv",
        parts=("test", "val", "train"),
    ),
)
