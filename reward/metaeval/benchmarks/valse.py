"""VALSE: captions beside foils that get one linguistic phenomenon wrong, such as existence, number or who does what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from reward.errors import DataError
from reward.metaeval.benchmarks.files import find_file, take
from reward.metaeval.benchmarks.forms import BenchmarkSpec, CaptionPair
from reward.metaeval.benchmarks.jsonl import is_jsonl, read_pairs
from reward.metrics.caparena.files import read_json

__all__ = ["CATEGORIES", "SPECS", "load_valse"]

COREFERENCE = ("coreference-standard", "coreference-hard")
CATEGORIES = (
    *("existence", "plurals", "counting-hard", "counting-small-quant", "counting-adversarial", "relations"),
    *("action-replacement", "actant-swap", *COREFERENCE, "foil-it"),
)
ALL, WITHOUT = "all", "without coreference"
VALID = 2  # of three annotators, how many must have taken the caption, and not the foil, for what describes the image

SPECS = (
    BenchmarkSpec(
        name="valse",
        title="VALSE",
        form=CaptionPair,
        loader="reward.metaeval.benchmarks.valse:load_valse",
        statistic="accuracy",
        ties="wrong",
        files=f"a folder with the files {', '.join(f'{name}.json' for name in CATEGORIES)} (also in data/), one of "
        "these files, or a .jsonl file with category, image, captions and label a line; and a folder of the images "
        "(--images, images=), together or in one folder for each value of the field dataset",
        origin="the repository Heidelberg-NLP/VALSE, data/ (Parcalabescu and others 2022); images from the data sets "
        "that the files name: Visual7W, COCO, SWiG and VisDial",
        licence="none stated in its readme; a copy on the Hub, Mayfull/valse_vlms, says MIT",
        parts=(ALL, WITHOUT),
    ),
)


def load_valse(path: Path, part: str, images: Path | None) -> Iterator[CaptionPair]:
    """Reads the files, or one of them; the caption comes before its foil, and the category is the file's name.

    Only valid foils are read: those of whose pairs two annotators of three chose the caption, as the authors ask. The
    part `"without coreference"` leaves out the two files whose texts do not read like captions, as BEiTScore's paper
    does.

    Raises:
        DataError: files that are missing or not as they should be.
    """
    left_out = COREFERENCE if part == WITHOUT else ()
    if is_jsonl(path):
        yield from (pair for pair in read_pairs(path, images) if pair.category not in left_out)
        return
    if path.is_file() and path.stem not in CATEGORIES:
        raise DataError(f"{path} is no file of VALSE; they are: {', '.join(f'{name}.json' for name in CATEGORIES)}")
    names, folder = ((path.stem,), path.parent) if path.is_file() else (CATEGORIES, path)
    files = {name: find_file(path, f"{name}.json", f"data/{name}.json") for name in names if name not in left_out}
    folder = images or folder
    for category, file in files.items():
        entries = read_json(file)
        if not isinstance(entries, dict):
            raise DataError(f"{file} must hold an object {{name: pair}}, got {type(entries).__name__}")
        for name, entry in entries.items():
            where = f"{file}, {name}"
            if take(take(entry, "mturk", dict, where), "caption", int, f"{where}, mturk") < VALID:
                continue
            dataset, image = take(entry, "dataset", str, where), take(entry, "image_file", str, where)
            own = folder / dataset
            yield CaptionPair(
                captions=(take(entry, "caption", str, where), take(entry, "foil", str, where)),
                label=0,
                image=(own if dataset and own.is_dir() else folder) / image,
                image_id=f"{dataset}/{image}",
                category=category,
            )
