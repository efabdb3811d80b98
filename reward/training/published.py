"""Published data sets to train on, read from the files of their authors: captions, pairs of captions, and ratings."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from reward.errors import DataError
from reward.json_files import read_json
from reward.metaeval.benchmarks.contrast import foil_pairs
from reward.metaeval.benchmarks.files import MissingFileError, find_file, read_table
from reward.metaeval.benchmarks.genai_bench import held_out
from reward.metaeval.benchmarks.registry import load_benchmark

if TYPE_CHECKING:
    from datasets import DatasetDict


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


def _rated(name: str, low: float, high: float, parts: dict[str, str]) -> Callable[[Path], Rows]:
    """A benchmark of rated captions, by the loader of `capreward bench`; the mean rating is mapped to [0, 1].

    Args:
        name: of the benchmark.
        low, high: ends of its scale.
        parts: {part: its name there}.
    """

    def rows(folder: Path) -> Rows:
        for part, theirs in parts.items():
            for item in load_benchmark(name, folder, part=theirs).rows.itertuples():
                ratings = next(iter(item.ratings.values()))
                score = (sum(ratings) / len(ratings) - low) / (high - low)
                cells = {"file_name": item.images[0], "cand": item.captions[0], "refs": [*item.references]}
                yield part, {**cells, "score": score}

    return rows


PUBLISHED: dict[str, Callable[[Path], Rows]] = {
    "foil": _foil,
    "textcaps": _textcaps,
    "localized-narratives": _localized_narratives,
    "pixelprose": _pixelprose,
    "polaris": _rated("polaris", 0, 1, {"train": "train", "val": "validation"}),
    "nebula": _rated("nebula", 0, 1, {"train": "train", "val": "valid"}),
    "vicr": _rated("vicr", 1, 5, {"train": "train", "val": "val"}),
    "evalmuse-40k": _rated("evalmuse-40k", 1, 5, {"train": "train", "val": "val"}),
}


def load_published(name: str, folder: Path) -> DatasetDict:
    """Reads a data set from its published files.

    Rows whose image file is not there are left out, with a warning that counts them: not every address of PixelProse
    still leads to an image.

    Args:
        name: one of `PUBLISHED`.
        folder: holds the files, and the images beside them or in a folder of them.

    Returns:
        {part: rows}: `train`, `val` and perhaps `test`, with the columns of `reward.training.data.make_judgements`
        (ratings) or `reward.training.pairs.make_table_pairs` (captions and pairs).
    """
    from datasets import Dataset, DatasetDict

    if name not in PUBLISHED:
        raise DataError(f"no data set is named {name!r}; there are: {', '.join(PUBLISHED)}")
    parts: dict[str, list[dict[str, Any]]] = {}
    absent: list[Path] = []
    try:
        rows = list(PUBLISHED[name](folder))
    except (KeyError, TypeError, AttributeError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise DataError(f"{name}: {folder} is not in the form that its authors publish: {problem}") from error
    for part, row in rows:
        image = row.pop("file_name")
        if isinstance(image, Path):
            if not image.is_file():
                absent.append(image)
                continue
            row["file_name"] = str(image.absolute())
        else:
            row["image"] = image  # encoded
        parts.setdefault(part, []).append(row)
    if absent and not parts:
        raise DataError(f"{name}: no image is there, not even {absent[0]}")
    if "train" in parts and parts["train"] == parts.get("val"):  # a file of one part, as VICR's without `subset`
        raise DataError(f"{name}: {folder} has the same rows to train on and to stop by; give the files of both parts")
    if absent:
        warnings.warn(f"{name}: {len(absent):,} rows are left out: no image {absent[0]}, ...", stacklevel=2)
    return DatasetDict({part: Dataset.from_list(rows) for part, rows in parts.items()})


def _image_folder(folder: Path, *names: str) -> Path:
    """The first of these folders that is there, else the folder itself."""
    return next((folder / name for name in names if (folder / name).is_dir()), folder)


def _part(name: str) -> str:
    return "val" if held_out(name) else "train"
