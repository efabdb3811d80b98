"""Tables with an image, a caption and a rating per row: LongCap-Arena, Polaris, Nebula, Flickr8k, Composite, VICR."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from reward.errors import DataError
from reward.image_files import image_file
from reward.metaeval.benchmarks.items import OVERALL, BenchmarkSpec, RatedCaption
from reward.metaeval.benchmarks.records import (
    MissingFileError,
    Record,
    Split,
    find_file,
    find_splits,
    image_folder,
    read_table,
)
from reward.samples import ImageLike

__all__ = ["SPECS"]

# The names that published data sets give their columns.
_IMAGE = ("image", "img")  # an encoded image, or its file name
_NAME = ("file_name", "imgid")
_CANDIDATE = ("cand", "mt", "caption")
_REFERENCES = ("refs", "references")
_SCORE = ("score", "human_score")  # one judgment; null or NaN was not given
_TEXTS = (*_NAME, *_CANDIDATE, *_REFERENCES, *_SCORE)

# LongCap-Arena has a split for each part and aspect, such as dci_val.desc; the paper's TestA is dci_val.
ASPECTS = {"desc": "descriptiveness", "rel": "relevance", "flu": "fluency"}
_ARENA_PARTS = {"TestA": "dci_val", "TestB": "dci_test"}


def _load_split(path: Path, part: str, images: Path | None, *, config: str = "") -> Iterator[RatedCaption]:
    """One split of a data set on disk, with one rating per row.

    Args:
        path: a folder as for `find_splits`.
        part: name of the split; empty is `test`.
        images: folder of images that are not in the data; None is the folder `images` beside it, or its own.
        config: as for `find_splits`.

    Raises:
        MissingFileError: no such split.
        DataError: a column is missing, or a value is of the wrong type; the message names row and column.
    """
    splits, name = find_splits(path, config), part or "test"
    if name not in splits:
        raise MissingFileError(f"{path} holds no split {name}, only {', '.join(sorted(splits)[:12]) or 'no tables'}")
    return _merged({OVERALL: splits[name]}, images)


def _load_longcap_arena(path: Path, part: str, images: Path | None) -> Iterator[RatedCaption]:
    """Merges the rows of the part's three splits, one for each aspect, by image and candidate.

    Source: the VELA paper, which calls the split dci_val TestA and dci_test TestB.
    """
    splits = find_splits(path)
    names = {aspect: f"{_ARENA_PARTS.get(part, part)}.{short}" for short, aspect in ASPECTS.items()}
    chosen = {aspect: splits[name] for aspect, name in names.items() if name in splits}
    if not chosen:
        known = ", ".join(sorted(splits)[:15]) or "no splits"
        raise MissingFileError(f"{path} holds none of the splits {', '.join(names.values())}, but {known}")
    return _merged(chosen, images)


def _load_vicr(path: Path, part: str, images: Path | None) -> Iterator[RatedCaption]:
    """A table with a column per rater, from 1 to 5, four or five of them per caption. There are no references."""
    for row in read_table(find_file(path, "vicr.csv")):
        address, raters = str(row.take("image")[1]), [row.take("ratings")[0]]
        raters += [name for name in row.values if name.startswith("rating_")]
        if row.values.get("subset", part) != part:
            continue
        name = address.replace("\\", "/").rpartition("/")[2]
        if not name:
            raise row.error("image", "the address or name of a file")
        given = [rater for rater in raters if str(row.values[rater] or "").strip()]
        if ratings := tuple(row.number(rater, 1, 5, text=True) for rater in given):
            folder = image_folder(row.folder, images, *(() if images else ("images",)))
            yield RatedCaption(row.text("caption"), {OVERALL: ratings}, image=folder / name, image_id=name)


def _merged(splits: Mapping[str, Split], images: Path | None) -> Iterator[RatedCaption]:
    """One rated caption for all rows of the same image and candidate, in the order of their first rows, by aspect.

    Images are identified by file name or, without one, by their references. A caption without scores is left out. Every
    row counts as one judgment.
    """
    ratings: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(dict)
    rows_of: dict[str, set[tuple[str, str]]] = {}
    for aspect, split in splits.items():
        rows_of[aspect] = set()
        for row in split.records(_key_columns(split)):
            key = _key(row)
            rows_of[aspect].add(key)
            score = _score(row)
            if not math.isnan(score):
                ratings[key].setdefault(aspect, []).append(score)
    done: set[tuple[str, str]] = set()
    shown: dict[str, ImageLike | None] = {}
    for aspect, split in splits.items():
        if rows_of[aspect] <= done:  # its captions and images were read with another aspect
            continue
        for row in split.records():
            key = _key(row)
            if key in done:
                continue
            done.add(key)
            if key not in ratings:
                continue
            if key[0] not in shown:
                shown[key[0]] = _image(row, images)
            yield RatedCaption(
                candidate=key[1],
                ratings={name: tuple(values) for name, values in ratings[key].items()},
                image=shown[key[0]],
                references=_references(row),
                image_id=key[0],
            )


def _key_columns(split: Split) -> tuple[str, ...]:
    """The columns that identify images and candidates, without the images themselves where possible: they are large."""
    first = next(split.records(), None)
    if first is None or not isinstance(first.first(*_IMAGE)[1], dict):
        return (*_TEXTS, *_IMAGE)
    named = first.first(*_NAME)[1] is not None
    return _TEXTS if named or _references(first) else (*_TEXTS, *_IMAGE)


def _key(row: Record) -> tuple[str, str]:
    """Name of the image, and candidate; published data have empty candidates, which no metric can score."""
    name, candidate = row.take(*_CANDIDATE)
    if candidate is not None and not isinstance(candidate, str):
        raise row.error(name, "text")
    return _image_name(row), candidate or ""


def _image_name(row: Record) -> str:
    name, value = row.first(*_NAME)
    column, image = row.first(*_IMAGE)
    if value is None and isinstance(image, str):
        name, value = column, image
    if value is None and (references := "\n".join(_references(row))):
        return hashlib.sha256(references.encode(errors="surrogatepass")).hexdigest()[:16]
    if value is None and isinstance(image, dict):
        name, value = column, image.get("path")
    if value is None:
        raise DataError(f"{row.where} has nothing that names its image: no {', '.join(_NAME)} and no references")
    if isinstance(value, bool) or not isinstance(value, (str, int)) or not str(value).strip():
        raise row.error(name, "the name of an image")
    return str(value)


def _score(row: Record) -> float:
    name, value = row.take(*_SCORE)
    return math.nan if value is None or value != value else row.number(name)


def _references(row: Record) -> tuple[str, ...]:
    name, value = row.take(*_REFERENCES)
    return () if value is None else row.texts(name)


def _image(row: Record, images: Path | None) -> ImageLike | None:
    _, value = row.first(*_IMAGE)
    if isinstance(value, dict):
        if value.get("bytes") is not None:
            return value
        value = value.get("path")
    if value is None:
        value = row.first(*_NAME)[1]
    root = image_folder(row.folder, images, *(() if images else ("images",)))
    return None if value is None else Path(image_file(root / str(value)))


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
        form=RatedCaption,
        statistic="tau-c",
        judgments="mean",  # as in the paper's appendix B
        load=_load_longcap_arena,
        files="a folder with the Parquet files of the splits <part>.<aspect> (parts dci_val = TestA, dci_test = "
        "TestB, val, test, train; aspects desc, rel, flu), with the columns file_name, image, refs, cand and score; or "
        "a .jsonl file with image, candidate, references and ratings {aspect: list} per line",
        origin="the authors of VELA (Matsuda, Wada, Hirano, Otsuki, Sugiura 2025), on the Hub",
        licence="BSD 3-Clause Clear, say its paper and its card; its images are of SA-1B, which has its own terms",
        hub="Ka2ukiMatsuda/LongCap-Arena",
        hub_files=("README.md", "{split}.*", "*/{split}.*"),
        parts=("TestA", "TestB", "val", "test", "train"),
        splits=_ARENA_PARTS,
    ),
    BenchmarkSpec(
        name="polaris",
        title="Polaris",
        form=RatedCaption,
        statistic="tau-c",
        load=_load_split,
        files=f"the Parquet files of the Hub, with the columns refs, cand, img and human_score; {_COMMON}",
        origin="the authors of Polos (Wada, Kaneda, Saito, Sugiura 2024), on the Hub",
        licence="BSD 3-Clause Clear, says the script of its authors; the card on the Hub says bsd",
        hub="yuwd/Polaris",
        hub_files=("README.md", "data/{split}-*"),
        parts=("test", "validation", "train"),
    ),
    BenchmarkSpec(  # with the scores as they were published; later corrections by others are not applied
        name="nebula",
        title="Nebula",
        form=RatedCaption,
        statistic="tau-c",
        load=_load_split,
        files=f"the Parquet files of the Hub, with the columns file_name, image, refs, mt and human_score; {_COMMON}",
        origin="the authors of DENEB (Matsuda, Wada, Sugiura 2024), on the Hub",
        hub="Ka2ukiMatsuda/Nebula",
        hub_files=("README.md", "data/{split}-*"),
        parts=("test", "valid", "train"),
    ),
    BenchmarkSpec(
        name="flickr8k-expert",
        title="Flickr8k-Expert",
        form=RatedCaption,
        statistic="tau-c",
        load=partial(_load_split, config="expert"),
        files=f"the Parquet files of the Hub (configuration expert), with a row for each rating; {_FLICKR8K}",
        **_OF_FLICKR8K,
        hub_files=("README.md", "*expert*"),
    ),
    BenchmarkSpec(
        name="flickr8k-cf",
        title="Flickr8k-CF",
        form=RatedCaption,
        statistic="tau-b",
        load=partial(_load_split, config="crowdflower"),
        judgments="mean",
        files=f"the Parquet files of the Hub (configuration crowdflower); {_FLICKR8K}",
        **_OF_FLICKR8K,
        hub_files=("README.md", "*crowdflower*"),
    ),
    BenchmarkSpec(
        name="composite",
        title="Composite",
        form=RatedCaption,
        statistic="tau-c",
        load=partial(_load_split, config="default"),
        files=f"the Parquet files of the Hub; {_COMMON}; and the images in a folder images beside them (or --images, "
        "images=), where the files do not hold them",
        origin="the authors (Aditya, Yang, Baral, Fermuller, Aloimonos 2015); on the Hub from the authors of Polos",
        hub="yuwd/Composite",
        hub_files=("README.md", "*.parquet"),
    ),
    BenchmarkSpec(
        name="vicr",
        title="VICR",
        form=RatedCaption,
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
