"""Composite: captions of images of Flickr8k, Flickr30k and COCO, rated on Mechanical Turk for correctness."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from reward.errors import DataError
from reward.metaeval.benchmarks.contrast import coco_captions
from reward.metaeval.benchmarks.flickr8k import captions_by_image, read_token_file
from reward.metaeval.benchmarks.items import OVERALL, BenchmarkSpec, RatedCaption
from reward.metaeval.benchmarks.rated_tables import rated_split
from reward.metaeval.benchmarks.records import MissingFileError, Record, text_lines

__all__ = ["SPECS"]

# A sheet has one image per row: its address (Input.<...>url), captions and their ratings; the literature uses three.
_COLUMNS = tuple((f"Input.text{number}", f"Answer.Q{number}Answer") for number in (1, 2, 3))
_SHEETS = {"8k": "flickr8k", "30k": "flickr30k", "coco": "coco"}
_CAPTIONS_OF = {"8k": "Flickr8k.token.txt", "30k": "results_20130124.token", "coco": "captions_val2014.json"}
_IMAGES = ("images", "Flicker8k_Dataset", "Flickr8k_Dataset", "flickr30k-images", "flickr30k_images", "val2014")


def _load(path: Path, part: str, images: Path | None) -> Iterator[RatedCaption]:
    """Reads 3,995 images with three captions each, every caption rated once, from 1 to 5.

    As in the literature, the first three captions of an image count, and how correct they are, not how thorough. The
    first is by people, one of the image's references; it is taken out of the references of the image. The sheets hold
    no references: these come from the captions of the three corpora where their files are in the folder.
    """
    if path.is_dir():
        sheets = {name: path / f"{name}_correctness.csv" for name in _SHEETS}
        if any(sheet.is_file() for sheet in sheets.values()):
            if missing := [sheet.name for sheet in sheets.values() if not sheet.is_file()]:
                raise MissingFileError(f"{path} lacks {' and '.join(missing)}")
            return _all_sheets(sheets, images)
    return rated_split(path, images, ("test", "en_test_composite_da2", "en_test_composite_da"), "default")


def _all_sheets(sheets: Mapping[str, Path], images: Path | None) -> Iterator[RatedCaption]:
    for name, sheet in sheets.items():
        references = _references(sheet.parent / _CAPTIONS_OF[name])
        for image, row in _read_sheet(sheet):
            rated = [(" ".join(row.text(text).split()), _rating(row, answer)) for text, answer in _COLUMNS]
            own = _words(rated[0][0])
            for caption, rating in rated:
                yield RatedCaption(
                    candidate=caption,
                    ratings={OVERALL: (rating,)},
                    image=_find_image(image, images or sheet.parent),
                    references=tuple(text for text in references.get(image, []) if _words(text) != own),
                    image_id=f"{_SHEETS[name]}/{image}",
                    category=_SHEETS[name],
                )


def _read_sheet(path: Path) -> Iterator[tuple[str, Record]]:
    """File name of an image, and its row; rows without an image, at the end, are sums."""
    try:
        reader = csv.DictReader((line for _, line in text_lines(path)), delimiter=";", restval="")
        names = reader.fieldnames or ()
        address = next((name for name in names if name.startswith("Input.") and "url" in name.lower()), None)
        if address is None or any(name not in names for pair in _COLUMNS for name in pair):
            raise DataError(
                f"{path} must have the columns Input.image_url, Input.text1 to Input.text3 and Answer.Q1Answer to "
                f"Answer.Q3Answer between semicolons; it has: {', '.join(map(str, names))[:300] or 'none'}"
            )
        for number, row in enumerate(reader, start=1):
            if image := row[address].strip():
                yield image.rpartition("/")[2], Record(row, f"{path}, row {number}", path.parent)
    except csv.Error as error:
        raise DataError(f"cannot read {path}: {error}") from error


def _rating(row: Record, name: str) -> float:
    rating = row.number(name, 1, 5, text=True)
    if not rating.is_integer():
        raise row.error(name, "a whole number from 1 to 5")
    return rating


def _references(path: Path) -> dict[str, list[str]]:
    """{file name of an image: its captions}; empty if there is no such file."""
    if not path.is_file():
        return {}
    if path.suffix == ".json":
        by_number = coco_captions(path).items()
        return {f"COCO_val2014_{image:012d}.jpg": [" ".join(text.split()) for text in own] for image, own in by_number}
    return captions_by_image(read_token_file(path))


def _words(text: str) -> list[str]:
    """For comparing captions whose case and punctuation differ between the sheets and the corpora."""
    return re.findall(r"\w+", text.lower())


def _find_image(name: str, root: Path) -> Path:
    return next((root / folder / name for folder in _IMAGES if (root / folder / name).is_file()), root / name)


SPECS = (
    BenchmarkSpec(
        name="composite",
        title="Composite",
        form=RatedCaption,
        statistic="tau-c",
        load=_load,
        files="a folder with 8k_correctness.csv, 30k_correctness.csv and coco_correctness.csv, and for references the "
        "captions of the three corpora (Flickr8k.token.txt, results_20130124.token, captions_val2014.json); or a .csv "
        "file with imgid, mt, refs and score; or the Parquet files of the Hub; or a .jsonl file with image, candidate, "
        "references and ratings per line; and the images in folders beside them named as in their archives, or all in "
        "one folder (--images, images=)",
        origin="the authors (Aditya, Yang, Baral, Fermuller, Aloimonos 2015) publish the sheets on the page of their "
        "scene description graphs",
        hub="yuwd/Composite",
        hub_files=("README.md", "*.parquet"),
    ),
)
