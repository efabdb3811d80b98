"""The splits of a data set to train on: a folder, a data set of the Hub, published files, or the synthetic scenes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reward.data.column_names import column_names
from reward.data.samples import one_image
from reward.errors import DataError
from reward.metaeval.benchmarks.catalogue import benchmark_spec
from reward.scoring.readers import files_of_splits
from reward.training.authors_files import CAPTIONS, RATED, load_caption_files, load_rated_captions

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

    from reward.training.config import TrainingConfig

TRAIN, VALIDATION = "train", "val"  # parts to train on and to stop by
_ARENA = "longcap-arena"  # read by `datasets`, not as a benchmark: its images are larger than memory


@dataclass(frozen=True)
class Split:
    """One split.

    Args:
        name: in messages.
        rows: its columns.
        images: the image of each row, encoded or as a path, read when it is asked for.
    """

    name: str
    rows: Dataset
    images: Sequence[Any]

    def check(self, columns: Mapping[str, str]) -> None:
        """Refuses a split without rows, columns {name: what messages call it} or images, which would stop it later."""
        names = self.rows.column_names
        missing = [words for column, words in columns.items() if column not in names]
        if not len(self.images):
            missing.append("image (or file_name)")
        if not len(self.rows):
            raise DataError(f"split {self.name!r} is empty")
        if missing:
            raise DataError(f"split {self.name!r} lacks the columns {', '.join(missing)}; it has {', '.join(names)}")
        if isinstance(self.images, _Images):
            self.images.check_files(self.name)


class _Images(Sequence[Any]):
    """The images of a split of `datasets`, left encoded: `reward.data.images` decodes them in the worker."""

    def __init__(self, rows: Dataset, root: Path | None) -> None:
        from datasets import Image

        names = dict.fromkeys(("image", *column_names("image")))
        self.columns = [name for name in names if name in rows.column_names]
        self._rows, self._root = rows.select_columns(self.columns), root
        for name in self.columns:
            if isinstance(rows.features[name], Image):
                self._rows = self._rows.cast_column(name, Image(decode=False))

    def __len__(self) -> int:
        return len(self._rows) if self.columns else 0

    def __getitem__(self, row: Any) -> Any:  # an index, not a slice
        images = (image for image in self._rows[row].values() if image is not None)
        return self._absolute(next(images, None))

    def check_files(self, name: str) -> None:
        """Refuses a path without a file, on which the training would stop hours later."""
        column = self.columns[0]
        if self._root is None or "string" not in getattr(self._rows.features[column], "dtype", ""):
            return
        for row, image in enumerate(self._rows[column]):
            if image is None:
                continue
            path = self._absolute(image)
            if not path.is_file():
                raise DataError(f"split {name!r}, row {row}: {column} names {image!r}, and there is no {path}")

    def _absolute(self, image: Any) -> Any:
        image = one_image(image)
        if isinstance(image, str) and self._root is not None:
            return self._root / image
        return image


def load_splits(data: str | os.PathLike[str], config: TrainingConfig) -> dict[str, Split]:
    """Loads the splits of a data set, {name: split}.

    Args:
        data: `"scenes"` (made on the spot), a folder written by `save_to_disk` or readable by
            `datasets.load_dataset`, a Hub id, or the name of a published data set, `NAME` or `NAME=PATH`, see
            `authors_files.yaml`. A split `validation` or `valid` is the part `val` if there is no such split.
        config: numbers and seed of the scenes.
    """
    if data == "scenes":
        from reward.scenes import make_dataset

        splits = {}
        for number, (part, size) in enumerate(scene_parts(config).items()):
            splits[part] = make_dataset(size, config.scenes_seed + number)
        return as_splits(splits, None)
    name, _, path = str(data).partition("=")
    if name in RATED and (path or not Path(name).exists()):
        return {
            part: Split(part, rows, images) for part, (rows, images) in load_rated_captions(name, path or None).items()
        }
    if path and name in CAPTIONS:
        return as_splits(load_caption_files(name, Path(path)), None)
    if path and name == _ARENA:  # a copy of what the Hub has
        data = path
        if not Path(path).is_dir():
            raise DataError(f"{name}: {path!r} is not a folder. {_way_out(name)}")
    folder = Path(data)
    splits = _load(folder, str(data))
    for alias in ("validation", "valid"):  # `datasets` calls the split of val.jsonl so
        if VALIDATION not in splits and alias in splits:
            splits[VALIDATION] = splits.pop(alias)
    return as_splits(splits, folder if folder.is_dir() else None)


def as_splits(splits: Mapping[str, Dataset], root: Path | None) -> dict[str, Split]:
    """The splits, whose relative image paths start in `root`."""
    by_name = {}
    for name, rows in splits.items():
        images = _Images(rows, root)
        columns = [column for column in rows.column_names if column not in images.columns]
        by_name[name] = Split(name, rows.select_columns(columns), images)
    return by_name


def _load(folder: Path, data: str) -> DatasetDict:
    from datasets import DatasetDict, load_dataset, load_from_disk

    if folder.is_file():
        raise DataError(
            f"{data} is one file; training needs a data set with a part to train on and one to stop by: a folder of "
            "save_to_disk, or one with files such as train.jsonl and val.jsonl"
        )
    if data.startswith((".", "~", "/")) and not folder.exists():
        raise DataError(f"the data set folder {data!r} does not exist")
    try:
        if (folder / "dataset_dict.json").exists() or (folder / "state.json").exists():
            loaded = load_from_disk(data)
        else:
            address = data
            files: dict[str, list[str]] = {}
            if folder.is_dir():
                # Named here: `datasets` would take the pictures beside the files for the data.
                # The library takes relative paths as below the folder.
                for split, paths in files_of_splits(folder.absolute()).items():
                    files[split] = list(map(str, paths))
            else:
                address = hub_id(data) or data
            loaded = load_dataset(address, data_files=files or None)
    except Exception as error:  # `datasets` raises errors of httpx, pyarrow, fsspec, yaml and its own
        problem = f"{type(error).__name__}: {error}"
        if isinstance(error, StopIteration):
            problem = "a file in it is empty"
        raise DataError(f"cannot load the data set {data!r}: {problem}\n{_way_out(data)}") from error
    if not isinstance(loaded, DatasetDict):
        raise DataError(f"{data} is one table; training needs a DatasetDict: a part to train on and one to stop by")
    return loaded


def hub_id(name: str) -> str | None:
    """The data set of the Hub that a short name stands for."""
    return benchmark_spec(name).hub if name in (_ARENA, *RATED) else None


def part_error(sets: Mapping[str, Mapping[str, Any]], part: str, expected: str) -> DataError:
    """The error for data sets of which none has a part that is needed."""
    names: list[str] = []
    for splits in sets.values():
        names += splits
    subject = f"data sets {', '.join(sets)} have no"
    if len(sets) == 1:
        subject = f"data set {next(iter(sets))!r} has no"
    return DataError(f"the {subject} part {part!r}: expected {expected}; there are {', '.join(names) or 'no splits'}")


def _way_out(data: str) -> str:
    """What to give instead of a data set that cannot be loaded."""
    hub = hub_id(data)
    if hub:
        copy = f"hf download {hub} --repo-type dataset --local-dir FOLDER"
        return f"Without a network here, run `{copy}` where there is one, bring FOLDER and give {data}=FOLDER."
    names = ", ".join([_ARENA, *RATED, *CAPTIONS])
    return f"Give 'scenes', a folder, a Hub id (with a network or a filled cache), or NAME=PATH with one of {names}."


def scene_parts(config: TrainingConfig) -> dict[str, int]:
    """{part: number of rows} of the synthetic scenes; `train`, `val` and, unless it is empty, `test`."""
    sizes = {"train": config.scenes_train, "val": config.scenes_val, "test": config.scenes_test}
    return {part: size for part, size in sizes.items() if size}
