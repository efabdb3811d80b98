"""Opens data files, patterns of files, folders, data sets of the Hub and data set objects: a reader of rows each."""

from __future__ import annotations

import base64
import glob
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from reward.data.cells import missing_to_none, parse_list
from reward.data.column_names import column_names
from reward.errors import CapRewardError, DataError, InvalidSampleError, first_line
from reward.scoring.arrow_sources import ParquetSource
from reward.scoring.sources import DerivedSource, Shards, Source

# {ending: module.function of this folder that opens a path}; a module is imported when a file of its kind is read.
KINDS = {
    ".jsonl": "forms.open_json_lines",
    ".ndjson": "forms.open_json_lines",
    ".jsonlines": "forms.open_json_lines",
    ".json": "forms.open_json",
    ".csv": "row_sources.TextTable",
    ".tsv": "row_sources.TextTable",
    ".txt": "forms.open_text",
    ".parquet": "arrow_sources.open_parquet",
    ".arrow": "arrow_sources.open_arrow",
    ".tar": "tar_source.TarSource",
    ".tgz": "tar_source.TarSource",
}
_BINARY = (".parquet", ".arrow", ".tgz")
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_OF_SPLIT = re.compile(r"(^|[-._ 0-9])(train|test|valid|val|dev|eval)")  # file names of which `datasets` makes splits
_SPLITS = {"valid": "validation", "val": "validation", "dev": "validation", "eval": "test"}
_HUB_NAME = re.compile(
    r"(https://huggingface\.co/datasets/)?(?P<name>[\w.-]+/[\w.-]+)(:(?P<subset>[\w.-]+))?(@(?P<revision>[\w./-]+))?/?"
)
_MESSAGES = ("messages", "conversations", "conversation", "completion")  # columns of chats
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # two letters or more: C:/ is a drive


def kind_of(path: Path) -> str | None:
    """The ending in `KINDS`, perhaps before `.gz`, of a name; None if there is none."""
    name = path.name.lower()
    is_packed = name.endswith(".gz")
    for ending in KINDS:
        if name.removesuffix(".gz").endswith(ending) and not (is_packed and ending in _BINARY):
            return ending
    return None


def is_pattern(path: str | os.PathLike[str]) -> bool:
    """Whether a path may mean several files.

    Example:
        >>> is_pattern("shard-*.tar"), is_pattern("shard-{000..002}.tar"), is_pattern("shard.tar")
        (True, True, False)
    """
    text = os.fsdecode(path)
    return glob.has_magic(text) or _BRACES.search(text) is not None


def expand_braces(text: str) -> list[str]:
    """The texts that a shell makes of one with braces.

    Example:
        >>> expand_braces("{08..10}.{tar,json}")
        ['08.tar', '08.json', '09.tar', '09.json', '10.tar', '10.json']
    """
    braces = _BRACES.search(text)
    if braces is None:
        return [text]
    numbers = _RANGE.fullmatch(braces[1])
    choices = braces[1].split(",")
    if numbers is not None:
        first, last = numbers.groups()
        choices = [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
    texts = []
    for choice in choices:
        texts += expand_braces(text[: braces.start()] + choice + text[braces.end() :])
    return texts


def files_of_pattern(pattern: str | os.PathLike[str]) -> list[Path]:
    """The files that a pattern with `*`, `?`, `[...]`, `{000..002}` or `{a,b}` means, in the order of their names.

    Raises:
        DataError: a file that braces name is not there, or no file has such a name.
    """
    # Braces name files, each of which must be there; a star takes what there is.
    paths: dict[str, None] = {}
    for text in expand_braces(os.fsdecode(pattern)):
        matches = [text]
        if not os.path.exists(text):  # a name may have brackets of its own
            matches = sorted(glob.glob(text))
        if not matches:
            raise DataError(f"there is no file {text}")
        paths |= dict.fromkeys(matches)
    return [Path(path) for path in paths]


def input_files(path: Path) -> list[Path]:
    """The files that a path of data names: itself, those of a pattern, or none for a name of the Hub."""
    if path.exists():
        return [path]
    if is_pattern(path):
        return files_of_pattern(path)
    return []


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


def refuse_address_of_data(data: str | os.PathLike[str]) -> None:
    """Refuses data in an object store or on the web, and shows how Ray scores them (DataError)."""
    if is_remote_path(data):
        raise DataError(
            f"{written(data)} is an address; nothing is fetched from there. Copy the files to this disk, or score them "
            'by Ray Data: ray.data.read_parquet("s3://...").map_batches(BatchScorer("vela"), batch_format="pyarrow")'
            '.write_parquet("s3://...")'
        )


def open_source(data: Any, *, split: str | None = None, annotations: str | os.PathLike[str] | None = None) -> Source:
    """Opens a data file, files of a pattern, a data set folder, a data set of the Hub, or a data set object.

    Args:
        data: path of a file of a kind in `KINDS` (text perhaps with `.gz`); a pattern of
            files of one kind, such as `shard-{000..002}.tar` or `part-*.parquet`, which are one table; a folder, see
            `_open_folder`; the name of a data set on the Hub, `owner/name`, perhaps with a subset and a revision
            (`owner/name:subset@revision`); or a `datasets.Dataset` or `DatasetDict`. What this function gave is given
            back.
        split: of a data set with several.
        annotations: a file with the names of the images, their references, or both; see `with_annotations`.

    Raises:
        DataError: missing, empty, unreadable or of another kind, or the split must be named.
    """
    reader = data if isinstance(data, Source) else _open(data, split)
    if annotations is not None:
        from reward.scoring.annotations import with_annotations

        reader = with_annotations(reader, open_source(annotations))
    return _with_columns_inside(reader)


def _with_columns_inside(reader: Source) -> Source:
    """The data with the columns that stand in others: a caption and an image in messages, COCO's `image_id`."""
    columns = {*reader.columns}
    has_caption = not columns.isdisjoint((*column_names("candidate"), *column_names("candidates")))
    has_image = not columns.isdisjoint(column_names("image"))
    messages = next((name for name in _MESSAGES if name in columns), None)
    make: Callable[[Mapping[str, Any]], dict[str, Any]]
    if messages is not None and not has_caption:
        form, column, make = "captions in messages", messages, partial(_of_chat, messages)
        adds = ["caption", "image"]
        if has_image:
            adds.remove("image")
    elif "image_id" in columns and not has_image:
        form, column, make = "COCO's image_id", "image_id", _image_of_id
        adds = ["image"]
    else:
        return reader
    return DerivedSource(reader, form, adds, [column], make)


def _of_chat(column: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """The last turn of the assistant, and the first image, in the messages of OpenAI, TRL or LLaVA."""
    from reward.data.chats import completion_text, prompt_images

    cells: dict[str, Any] = {}
    messages = None
    # What cannot be read is missing, and the row will say so.
    with suppress(InvalidSampleError):
        messages = parse_list(missing_to_none(row.get(column)))
        cells["caption"] = completion_text(messages) or None
    with suppress(InvalidSampleError):
        image = next(iter(prompt_images(messages)), None)
        if isinstance(image, bytes):  # a column of paths and pictures is one of text
            image = f"data:;base64,{base64.b64encode(image).decode()}"
        cells["image"] = image
    return cells


def _image_of_id(row: Mapping[str, Any]) -> dict[str, Any]:
    image_id = missing_to_none(row.get("image_id"))
    if image_id is None:
        return {}
    return {"image": str(image_id)}


def _open(data: Any, split: str | None) -> Source:
    if "datasets" in sys.modules:
        import datasets

        if isinstance(data, (datasets.Dataset, datasets.DatasetDict)):
            return _of_splits(data, split, name="the data set", folder=Path())
    if not isinstance(data, (str, os.PathLike)):
        raise DataError(f"data must be a path, a datasets.Dataset or a DatasetDict, got {type(data).__name__}")
    path = Path(data)
    hub = _HUB_NAME.fullmatch(written(data))
    if not hub:  # the Hub's own address is a name there
        refuse_address_of_data(data)
    if path.is_dir():
        return _open_folder(path, split)
    # A path such as photos/captions.jsonl has the form of a name on the Hub, too: its ending tells.
    if hub and not path.exists() and kind_of(path) is None:
        return _load(hub["name"], split, Path(), subset=hub["subset"], revision=hub["revision"])
    if split is not None:
        raise DataError(f"{path} is one table, which has no split {split!r}; leave out --split (split=)")
    if not path.exists() and is_pattern(path):
        return _open_files(files_of_pattern(path), path.name)
    return _open_file(path)


def _open_file(path: Path) -> Source:
    if not path.exists():
        raise DataError(f"there is no file {path}")
    kind = kind_of(path)
    if kind is None or not path.is_file():
        raise DataError(
            f"{path} is not of a kind that can be read: {', '.join(KINDS)} (text also with .gz), a folder of a data "
            "set, or the name of one on the Hub"
        )
    module, _, opener = KINDS[kind].partition(".")
    try:
        reader: Source = getattr(import_module(f"reward.scoring.{module}"), opener)(path)
        return reader
    except CapRewardError:
        raise
    except (OSError, ValueError) as error:  # ValueError: also pyarrow's
        raise DataError(f"{path} cannot be read: {error}") from error


def _open_files(paths: Sequence[Path], name: str) -> Source:
    """Files of one kind, such as the shards of a data set, as one table."""
    if len(paths) == 1:
        return _open_file(paths[0])
    kinds = {str(kind_of(path)): path for path in paths}
    if len(kinds) > 1:
        raise DataError(
            f"{name} means files of several kinds, {' and '.join(kinds)}: name those of one kind, as in "
            f"'{paths[0].parent}/*{next(iter(kinds))}'"
        )
    folder = Path(os.path.commonpath([path.parent for path in paths]))
    if ".parquet" in kinds:
        return ParquetSource(paths, name=name, folder=folder)
    return Shards([_open_file(path) for path in paths], name=name, folder=folder)


def _open_folder(path: Path, split: str | None) -> Source:
    """A folder as a data set.

    It is read as what `save_to_disk` wrote; by the files of a split, such as `train.jsonl`; by its file `metadata` or
    `captions`; by its data files of one kind, as one table; as pictures with a text each beside them; else by
    `load_dataset`.
    """
    from reward.scoring.forms import open_pictures

    if (path / "dataset_dict.json").is_file() or (path / "state.json").is_file():
        import datasets

        try:
            saved = datasets.load_from_disk(str(path))
        except Exception as error:  # `datasets` raises errors of pyarrow, fsspec and json, and of damaged files any
            raise DataError(f"{path} cannot be read as a data set: {_in_short(error)}") from error
        return _of_splits(saved, split, name=path.name, folder=path)
    splits = files_of_splits(path)
    if splits:
        return _open_files(splits[_chosen(splits, split, path.name)], path.name)
    files = _data_files(path)
    # Beside pictures, one file of these names has their captions; beside `captions`, `metadata` has none.
    captions = [file for file in files if file.name.startswith("captions.")]
    tables = captions or [file for file in files if file.name.startswith("metadata.")]
    if not tables:
        # Beside pictures, a text holds a caption; beside shards, a JSON document holds statistics.
        no_tables = {".txt", ".arrow"}
        if any(kind_of(file) in (".tar", ".tgz", ".parquet") for file in files):
            no_tables.add(".json")
        tables = [file for file in files if kind_of(file) not in no_tables]
    if split is None:
        if tables:
            return _open_files(tables, path.name)
        pictures = open_pictures(path)
        if pictures is not None:
            return pictures
    return _load(str(path.absolute()), split, path)  # `datasets` makes nothing of "."


def files_of_splits(folder: Path) -> dict[str, list[Path]]:
    """{split: its files} of a folder whose data files are all named after splits, as `train.jsonl` is; else nothing.

    By itself `datasets` takes the files of which there are most, so pictures beside the data, and reads them alone.
    """
    splits: dict[str, list[Path]] = {}
    for file in _data_files(folder):
        splits.setdefault(_split_of(file), []).append(file)
    if "" in splits:  # a file that is of no split
        return {}
    return splits


def _split_of(file: Path) -> str:
    """The split that the name of a file says, as `datasets` reads it; empty for none."""
    word = _OF_SPLIT.search(file.name)
    if word is None or kind_of(file) == ".txt":
        return ""
    return _SPLITS.get(word[2], word[2])


def _data_files(folder: Path) -> list[Path]:
    """The files of a folder that may be data: no notes of a Mac (`._1.jpg`), and no outputs beside their data."""
    files: list[Path] = []
    outputs: list[Path] = []
    for file in sorted(folder.iterdir()):
        is_summary = file.name.endswith(".summary.json")
        if kind_of(file) is None or file.name.startswith(".") or is_summary or not file.is_file():
            continue
        if file.with_name(file.name + ".summary.json").exists():
            outputs.append(file)
        else:
            files.append(file)
    return files or outputs


def _load(
    name: str, split: str | None, folder: Path, *, subset: str | None = None, revision: str | None = None
) -> Source:
    """A data set of the Hub, or in a folder, by `datasets.load_dataset`; only the split that is asked for is loaded."""
    import datasets

    try:
        splits = datasets.get_dataset_split_names(name, subset, revision=revision)
        one_split = _chosen(dict.fromkeys(splits), split, name)
        loaded = datasets.load_dataset(name, subset, split=one_split, revision=revision)
    except DataError:
        raise
    except Exception as error:  # `datasets` raises errors of the network, pyarrow, fsspec, yaml and its own
        problem = f"there is no file {name}, and no data set of that name can be loaded from the Hub"
        if os.path.isdir(name):
            problem = f"{name} is no folder of a data set"
        raise DataError(f"{problem}: {_in_short(error)}") from error
    return _of_splits(loaded, None, name=name, folder=folder)


def _of_splits(data: Any, split: str | None, *, name: str, folder: Path) -> Source:
    from reward.scoring.arrow_sources import dataset_source

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
