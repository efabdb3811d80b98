"""Published data sets to train on, read from the files of their authors: captions, pairs of captions, and ratings."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from reward.data.json_files import read_json
from reward.errors import DataError
from reward.metaeval.benchmarks.contrast import foil_pairs
from reward.metaeval.benchmarks.files import MissingFileError, find_file, read_table
from reward.metaeval.benchmarks.genai_bench import held_out
from reward.metaeval.benchmarks.registry import load_benchmark

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict


# (part, row) of a data set; a row's `file_name` is the path of its image.
Rows: TypeAlias = Iterator[tuple[str, dict[str, Any]]]
_PREAMBLE = "This image displays:"  # with which the model that wrote PixelProse was told to begin


def _foil(folder: Path) -> Rows:
    """FOIL-COCO: its training file, with one image in twenty held out: its test file is a benchmark."""
    images = _image_folder(folder, "train2014")
    for _, name, correct, foil in foil_pairs(find_file(folder, "foilv1.0_train_2017.json")):
        row = {"file_name": images / name, "caption": correct, "incorrect": foil, "category": "foil"}
        yield _part(name), row


def _textcaps(folder: Path) -> Rows:
    """TextCaps: its training and validation file, whose images have one folder."""
    images = _image_folder(folder, "train_images", "train_val_images", "images")
    for part in ("train", "val"):
        for entry in read_json(find_file(folder, f"TextCaps_0.1_{part}.json"))["data"]:
            yield part, {"file_name": images / f"{entry['image_id']}.jpg", "caption": entry["caption_str"]}


def _localized_narratives(folder: Path) -> Rows:
    """Localized Narratives: any of its files; an image of COCO is named by twelve digits, others by their id."""
    files = sorted(folder.glob("*localized_narratives*.jsonl"))
    if not files:
        raise MissingFileError(f"{folder} holds no *localized_narratives*.jsonl")
    for file in files:
        part = next((part for part in ("train", "val") if f"_{part}" in file.name), "test")
        for entry in read_table(file):
            data_set, number = entry["dataset_id"], str(entry["image_id"])
            name = number.zfill(12) if data_set.startswith("mscoco") else number
            images = _image_folder(folder, data_set, "images")
            yield part, {"file_name": images / f"{name}.jpg", "caption": entry["caption"]}


def _pixelprose(folder: Path) -> Rows:
    """PixelProse as img2dataset downloads it: 00000.parquet beside the folder 00000 of images; one in twenty held out.

    img2dataset calls the column that is given as the caption, `vlm_caption`, `caption`.
    """
    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise MissingFileError(f"{folder} holds no .parquet files")
    for file in files:
        images = _image_folder(folder, file.stem, "images")
        for entry in read_table(file):
            text, key = entry["vlm_caption" if "vlm_caption" in entry else "caption"], str(entry["key"])
            if isinstance(text, str):
                yield _part(key), {"file_name": images / f"{key}.jpg", "caption": text.removeprefix(_PREAMBLE).strip()}


CAPTIONS: dict[str, Callable[[Path], Rows]] = {
    "foil": _foil,
    "textcaps": _textcaps,
    "localized-narratives": _localized_narratives,
    "pixelprose": _pixelprose,
}


def load_captions(name: str, folder: Path) -> DatasetDict:
    """Reads captions, or pairs of captions, from published files.

    Rows whose image file is not there are left out, with a warning that counts them: not every address of PixelProse
    still leads to an image.

    Args:
        name: one of `CAPTIONS`.
        folder: holds the files, and the images beside them or in a folder of them.

    Returns:
        {part: rows}: `train`, `val` and perhaps `test`, with the columns of `reward.training.pairs.make_table_pairs`.
    """
    from datasets import Dataset, DatasetDict

    parts: dict[str, list[dict[str, Any]]] = {}
    absent: list[Path] = []
    try:
        for part, row in CAPTIONS[name](folder):
            image = row["file_name"]
            if image.is_file():
                parts.setdefault(part, []).append({**row, "file_name": str(image.absolute())})
            else:
                absent.append(image)
    except (KeyError, TypeError, AttributeError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise DataError(f"{name}: {folder} is not in the form that its authors publish: {problem}") from error
    _tell_absent(name, absent, found=bool(parts))
    return DatasetDict({part: Dataset.from_list(rows) for part, rows in parts.items()})


# {benchmark with parts to train on: ends of its scale, its names of `train` and `val`}
RATED: dict[str, tuple[float, float, tuple[str, str]]] = {
    "polaris": (0, 1, ("train", "validation")),
    "nebula": (0, 1, ("train", "valid")),
    "vicr": (1, 5, ("train", "val")),
    "evalmuse-40k": (1, 5, ("train", "val")),
}


def load_rated(name: str, data: str | None) -> dict[str, tuple[Dataset, list[Any]]]:
    """Reads rated captions by the benchmark's reader; a caption's mean rating is mapped to [0, 1].

    Args:
        name: one of `RATED`.
        data: as for `load_benchmark`.

    Returns:
        {part: (columns cand, refs and score, images)}. Rows whose image file is not there are left out, with a warning.
    """
    from datasets import Dataset

    low, high, names = RATED[name]
    parts: dict[str, tuple[list[dict[str, Any]], list[Any]]] = {}
    absent: list[Path] = []
    for part, theirs in zip(("train", "val"), names, strict=True):
        for item in load_benchmark(name, data, part=theirs).rows.itertuples():
            (image,), (ratings,) = item.images, item.ratings.values()
            if isinstance(image, Path) and not image.is_file():
                absent.append(image)
                continue
            rows, images = parts.setdefault(part, ([], []))
            score = (sum(ratings) / len(ratings) - low) / (high - low)
            rows.append({"cand": item.captions[0], "refs": [*item.references], "score": score})
            images.append(image)
    _tell_absent(name, absent, found=bool(parts))
    if parts.get("train") == parts.get("val"):  # a file of one part, as VICR's without `subset`
        raise DataError(f"{name}: {data} has the same rows to train on and to stop by; give the files of both parts")
    return {part: (Dataset.from_list(rows), images) for part, (rows, images) in parts.items()}


def _tell_absent(name: str, absent: list[Path], *, found: bool) -> None:
    if absent and not found:
        raise DataError(f"{name}: no image is there, not even {absent[0]}")
    if absent:
        warnings.warn(f"{name}: {len(absent):,} rows are left out: no image {absent[0]}, ...", stacklevel=3)


def _image_folder(folder: Path, *names: str) -> Path:
    """The first of these folders that is there, else the folder itself."""
    return next((folder / name for name in names if (folder / name).is_dir()), folder)


def _part(name: str) -> str:
    return "val" if held_out(name) else "train"
