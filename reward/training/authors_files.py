"""Published data sets to train on, read from the files of their authors.

A data set is an entry of `authors_files.yaml`. The code is for what tables cannot say: images whose names are made of
several columns and may be missing, foils that stand apart from their captions, and ratings of benchmarks.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own

from reward.data.json_files import read_json
from reward.errors import DataError
from reward.metaeval.benchmarks.catalogue import load_benchmark
from reward.metaeval.benchmarks.contrast import foil_pairs
from reward.metaeval.benchmarks.files import find_file, read_table
from reward.metaeval.benchmarks.rated_tables import held_out

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict


@dataclass(frozen=True)
class CaptionFiles:
    """Where a data set has its captions and images; `authors_files.yaml` says what the fields mean."""

    files: list[str]
    caption: list[str]
    images: list[str]
    rows: str = ""
    beginning: str = ""
    held_out: str = ""


@dataclass(frozen=True)
class RatingScale:
    """The ends of the scale of a benchmark's ratings, and its names of the parts `train` and `val`."""

    lowest: float
    highest: float
    train: str
    val: str


_TABLES = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
CAPTIONS = {name: CaptionFiles(**facts) for name, facts in _TABLES["captions"].items()}
RATED = {name: RatingScale(**facts) for name, facts in _TABLES["ratings"].items()}


def load_caption_files(name: str, folder: Path) -> DatasetDict:
    """Reads captions, or pairs of captions, from published files.

    Rows whose image file is not there are left out, with a warning that counts them: not every address of PixelProse
    still leads to an image.

    Args:
        name: one of `CAPTIONS`.
        folder: holds the files, and the images beside them or in a folder of them.

    Returns:
        {part: rows}: `train`, `val` and perhaps `test`, with the columns of `caption_pairs.make_table_pairs`.
    """
    from datasets import Dataset, DatasetDict

    parts: dict[str, list[dict[str, Any]]] = {}
    missing: list[Path] = []
    try:
        for part, row in _caption_rows(CAPTIONS[name], folder):
            image = row["file_name"]
            if image.is_file():
                parts.setdefault(part, []).append({**row, "file_name": str(image.absolute())})
            else:
                missing.append(image)
    except (KeyError, TypeError, AttributeError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise DataError(f"{name}: {folder} is not in the form that its authors publish: {problem}") from error
    _warn_of_missing(name, missing, parts)
    return DatasetDict({part: Dataset.from_list(rows) for part, rows in parts.items()})


def _caption_rows(layout: CaptionFiles, folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(part, row) of each caption; `file_name` is the path of its image, which may be missing."""
    for pattern in layout.files:
        for file in sorted(folder.glob(pattern)) or [find_file(folder, pattern)]:
            # The part is in the name of the file, unless the authors have no part to stop by.
            part = "test"
            for name in ("train", "val"):
                if f"_{name}" in file.name:
                    part = name
                    break
            for entry in _entries(file, layout.rows):
                columns = [column for column in layout.caption if column in entry]
                caption = entry[columns[0] if columns else layout.caption[0]]
                if not isinstance(caption, str):  # null where nothing was written
                    continue
                if layout.beginning:
                    caption = caption.removeprefix(layout.beginning).strip()
                row = {"file_name": _image_of(entry, file, folder, layout), "caption": caption}
                if layout.rows == "foils":
                    row |= {"incorrect": entry["foil"], "category": "foil"}
                if layout.held_out:
                    part = "val" if held_out(str(entry[layout.held_out])) else "train"
                yield part, row


def _entries(file: Path, rows: str) -> Iterable[Mapping[str, Any]]:
    """The rows of a file: foils with their captions, those below a key of a JSON file, or those of a table."""
    if rows == "foils":
        names = ("file_name", "caption", "foil")
        return (dict(zip(names, pair[1:], strict=True)) for pair in foil_pairs(file))
    return read_json(file)[rows] if rows else read_table(file)


def _image_of(entry: Mapping[str, Any], file: Path, folder: Path, layout: CaptionFiles) -> Path:
    """The first path of the image of a row that is there, else the last one."""
    image = folder
    for pattern in layout.images:
        image = folder / pattern.format_map({**entry, "file": file.stem})
        if image.is_file():
            break
    return image


def load_rated_captions(name: str, data: str | None) -> dict[str, tuple[Dataset, list[Any]]]:
    """Reads rated captions by the benchmark's reader; a caption's mean rating is mapped to [0, 1].

    Args:
        name: one of `RATED`.
        data: as for `load_benchmark`.

    Returns:
        {part: (columns cand, refs and score, images)}. Rows whose image file is not there are left out, with a warning.
    """
    from datasets import Dataset

    scale = RATED[name]
    parts: dict[str, tuple[list[dict[str, Any]], list[Any]]] = {}
    missing: list[Path] = []
    for part, published_part in (("train", scale.train), ("val", scale.val)):
        for item in load_benchmark(name, data, part=published_part).rows.itertuples():
            [image] = item.images
            [ratings] = item.ratings.values()
            if isinstance(image, Path) and not image.is_file():
                missing.append(image)
                continue
            score = (sum(ratings) / len(ratings) - scale.lowest) / (scale.highest - scale.lowest)
            rows, images = parts.setdefault(part, ([], []))
            rows.append({"cand": item.captions[0], "refs": [*item.references], "score": score})
            images.append(image)
    _warn_of_missing(name, missing, parts)
    if parts.get("train") == parts.get("val"):  # a file of one part, as VICR's without `subset`
        raise DataError(f"{name}: {data} has the same rows to train on and to stop by; give the files of both parts")
    return {part: (Dataset.from_list(rows), images) for part, (rows, images) in parts.items()}


def _warn_of_missing(name: str, missing: list[Path], parts: Mapping[str, Any]) -> None:
    if missing and not parts:
        raise DataError(f"{name}: no image is there, not even {missing[0]}")
    if missing:
        warnings.warn(f"{name}: {len(missing):,} rows are left out: no image {missing[0]}, ...", stacklevel=3)
