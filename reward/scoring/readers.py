"""Opens data files, folders, data sets of the Hub and data set objects as sources of rows."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reward.errors import CapRewardError, DataError, first_line
from reward.scoring.annotations import with_annotations
from reward.scoring.arrow_sources import ParquetSource
from reward.scoring.file_kinds import KINDS, kind_of, open_pictures
from reward.scoring.forms import with_forms
from reward.scoring.sources import Source
from reward.scoring.transformed_source import dataset_source, files_of_splits

_OF_SPLIT = re.compile(r"(^|[-._ 0-9])(train|test|valid|val|dev|eval)")  # file names of which `datasets` makes splits
_HUB_NAME = re.compile(
    r"(https://huggingface\.co/datasets/)?(?P<name>[\w.-]+/[\w.-]+)(:(?P<subset>[\w.-]+))?(@(?P<revision>[\w./-]+))?/?"
)
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # two letters or more: C:/ is a drive


def is_remote_path(path: str | os.PathLike[str]) -> bool:
    """Whether a path is an address such as `https://...` or `s3://...`; `Path` leaves one slash of the two.

    Example:
        >>> is_remote_path("s3://bucket/x.jsonl"), is_remote_path("photos/x.jsonl")
        (True, False)
    """
    return _ADDRESS.match(os.fsdecode(path)) is not None


def written(address: str | os.PathLike[str]) -> str:
    """An address as it was written, also where `Path` left one slash of the two.

    Example:
        >>> written(Path("s3://bucket/x.jsonl"))
        's3://bucket/x.jsonl'
    """
    if isinstance(address, str):
        return address
    scheme, _, rest = os.fsdecode(address).partition(":/")
    return f"{scheme}:{'///' if scheme == 'file' else '//'}{rest.lstrip('/')}"


def open_source(data: Any, *, split: str | None = None, annotations: str | os.PathLike[str] | None = None) -> Source:
    """Opens a data file, a data set folder, a data set of the Hub, or a data set object.

    Args:
        data: path of a file of a kind in `reward.scoring.file_kinds.KINDS` (text perhaps with `.gz`), in any of the
            forms of `reward.scoring.forms`; of a folder that `save_to_disk` wrote, that holds Parquet files (the parts
            of one table), one data file, perhaps beside images, or images with a text file each, or that
            `datasets.load_dataset` reads; the name of a data set on the Hub, `owner/name`, perhaps with a subset and a
            revision (`owner/name:subset@revision`); or a `datasets.Dataset` or `DatasetDict`. What this function gave
            is given back.
        split: of a data set with several.
        annotations: a file with the names of the images, their references, or both; see `with_annotations`.

    Raises:
        DataError: missing, empty, unreadable or of another kind, or the split must be named.
    """
    source = data if isinstance(data, Source) else _open(data, split)
    if annotations is not None:
        source = with_annotations(source, open_source(annotations))
    return with_forms(source)


def _open(data: Any, split: str | None) -> Source:
    if "datasets" in sys.modules:
        import datasets

        if isinstance(data, (datasets.Dataset, datasets.DatasetDict)):
            return _of_splits(data, split, name="the data set", folder=Path())
    if not isinstance(data, (str, os.PathLike)):
        raise DataError(f"data must be a path, a datasets.Dataset or a DatasetDict, got {type(data).__name__}")
    path, hub = Path(data), _HUB_NAME.fullmatch(written(data))
    if is_remote_path(path) and not hub:
        raise DataError(
            f"{written(data)} is an address; nothing is fetched from there. Copy it to this disk: only `capreward "
            "score --engine ray` (score_files) reads addresses, with --workers 0 also without a cluster"
        )
    if path.is_dir():
        return _open_folder(path, split)
    kind = kind_of(path)
    if hub and not path.exists() and kind is None:
        return _load(hub["name"], split, Path(), subset=hub["subset"], revision=hub["revision"])
    if not path.exists():
        raise DataError(f"there is no file {path}")
    if kind is None or not path.is_file():
        sheet = "; save the sheet as CSV UTF-8" if path.suffix.lower() in (".xlsx", ".xls", ".ods") else ""
        raise DataError(
            f"{path} is not of a kind that can be read: {', '.join(KINDS)} (text also with .gz), a folder of a data "
            f"set, or the name of one on the Hub{sheet}"
        )
    if split is not None:
        raise DataError(f"{path} is one table, which has no split {split!r}; leave out --split (split=)")
    try:
        return KINDS[kind](path)
    except CapRewardError:
        raise
    except (OSError, ValueError) as error:  # ValueError: also pyarrow's
        raise DataError(f"{path} cannot be read: {error}") from error


def _open_folder(path: Path, split: str | None) -> Source:
    if (path / "dataset_dict.json").is_file() or (path / "state.json").is_file():
        import datasets

        try:
            saved = datasets.load_from_disk(str(path))
        except Exception as error:  # `datasets` raises errors of pyarrow, fsspec and json, and of damaged files any
            raise DataError(f"{path} cannot be read as a data set: {_in_short(error)}") from error
        return _of_splits(saved, split, name=path.name, folder=path)
    parts_or_texts = (".parquet", ".arrow", ".txt", ".tar", ".tgz")  # of one table, and captions beside pictures
    files = [each for each in path.iterdir() if kind_of(each) not in (None, *parts_or_texts)]
    files = [each for each in files if each.name.startswith("metadata.")] or files  # as `datasets` calls it
    if split is None and len(files) == 1:
        return _open(files[0], None)
    if split is None and not files and (pictures := open_pictures(path)):
        return pictures
    parts = [part.name for part in path.glob("*.parquet")]
    if parts and split is None and not any(map(_OF_SPLIT.search, parts)):
        return ParquetSource.of(path)
    return _load(str(path.absolute()), split, path)  # `datasets` makes nothing of "."


def _load(
    name: str, split: str | None, folder: Path, *, subset: str | None = None, revision: str | None = None
) -> Source:
    """A data set of the Hub, or in a folder, by `datasets.load_dataset`; only the split that is asked for is loaded."""
    import datasets

    files = files_of_splits(folder) if os.path.isdir(name) else None
    try:
        splits = datasets.get_dataset_split_names(name, subset, data_files=files, revision=revision)
        chosen = _chosen(dict.fromkeys(splits), split, name)
        loaded = datasets.load_dataset(name, subset, data_files=files, split=chosen, revision=revision)
    except DataError:
        raise
    except Exception as error:  # `datasets` raises errors of the network, pyarrow, fsspec, yaml and its own
        what = (
            f"{name} is no folder of a data set"
            if os.path.isdir(name)
            else f"there is no file {name}, and no data set of that name can be loaded from the Hub"
        )
        raise DataError(f"{what}: {_in_short(error)}") from error
    if loaded.column_names == ["image"] and os.path.isdir(name):
        raise DataError(
            f"{folder} holds pictures and no captions: put captions.csv with a line `image,caption` and a row for "
            "each beside them, or have them captioned: capreward caption --help"
        )
    return dataset_source(loaded, name=name, folder=folder)


def _of_splits(data: Any, split: str | None, *, name: str, folder: Path) -> Source:
    if isinstance(data, Mapping):
        data = data[_chosen(data, split, name)]
    elif split is not None:
        raise DataError(f"{name} is one table, which has no split {split!r}; leave out --split (split=)")
    return dataset_source(data, name=name, folder=folder)


def _chosen(splits: Mapping[str, Any], split: str | None, name: str) -> str:
    """The split that is asked for, or the only one."""
    if split is None and len(splits) == 1:
        return str(next(iter(splits)))
    if split not in splits:
        problem = "has several splits" if split is None else f"has no split {split!r}"
        raise DataError(f"{name} {problem}; choose one with --split (split=): {', '.join(map(str, splits))}")
    return str(split)


def _in_short(error: Exception) -> str:
    return f"{type(error).__name__}: {first_line(error):.300}"
