"""Finds benchmarks by name and loads them: from a path, from the Hub, or generated."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from reward.errors import DataError
from reward.metaeval.benchmarks.items import Benchmark, BenchmarkSpec, Item
from reward.metaeval.benchmarks.jsonl import in_common_form, read_common
from reward.metaeval.benchmarks.records import MissingFileError

__all__ = ["benchmark_spec", "list_benchmarks", "load_benchmark"]

# Modules of this package with a tuple SPECS.
_MODULES = (
    *("scenes", "rated_tables", "mmhe", "genai_bench", "pascal50s", "contrast", "winoground", "longcapvlcp"),
    "jsonl",
)


def _specs() -> dict[str, BenchmarkSpec]:
    modules = [importlib.import_module(f"reward.metaeval.benchmarks.{name}") for name in _MODULES]
    return {spec.name: spec for module in modules for spec in module.SPECS}


def list_benchmarks() -> list[str]:
    """Names of the benchmarks that can be read.

    Example:
        >>> "flickr8k-expert" in list_benchmarks()
        True
    """
    return sorted(_specs())


def benchmark_spec(name: str) -> BenchmarkSpec:
    """Facts of a benchmark.

    Args:
        name: as `list_benchmarks` gives it; case, dashes and underscores do not matter.

    Raises:
        DataError: no such benchmark; the message lists the known ones.

    Example:
        >>> benchmark_spec("Pascal50S").name
        'pascal-50s'
    """
    known = {_plain(spec.name): spec for spec in _specs().values()}
    if _plain(name) not in known:
        if Path(name).exists():
            raise DataError(f"no benchmark is named {name!r}; ratings of your own are read by load_ratings({name!r})")
        if _plain(name) == "caparena":
            raise DataError("CapArena's battles have a command of their own: capreward arena BATTLES.json -m METRIC")
        raise DataError(f"no benchmark is named {name!r}; there are: {', '.join(list_benchmarks())}")
    return known[_plain(name)]


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]", "", name.lower())


def load_benchmark(
    name: str,
    data: str | os.PathLike[str] | None = None,
    *,
    part: str | None = None,
    images: str | os.PathLike[str] | None = None,
    limit: int | None = None,
) -> Benchmark:
    """Loads a benchmark.

    Args:
        name: such as `"flickr8k-expert"`; see `list_benchmarks`.
        data: the file or folder that holds it, in its published form or in the common JSONL form of its items (see
            `reward.metaeval.benchmarks.jsonl.read_common`). None downloads it from the Hub, if it has a data set there.
        part: name of the part to load; None takes the first of `BenchmarkSpec.parts`.
        images: folder in which relative image paths start; None is the folder of the data.
        limit: loads only this many items, at least 1.

    Raises:
        DataError: no such benchmark or part, or its files are missing or malformed; the message says which files are
            needed, where they come from and under which licence.
    """
    spec = benchmark_spec(name)
    if limit is not None and limit < 1:
        raise DataError(f"limit must be at least 1, got {limit}")
    if part is None:
        part = spec.parts[0] if spec.parts else ""
    elif part not in spec.parts:
        raise DataError(f"{name} has no part {part!r}; its parts: {', '.join(spec.parts) or 'none'}")
    path = None if data is None else Path(data)
    if path is None and spec.checked != "own":
        path = _from_hub(spec, part)
    if path is not None and not path.exists():
        raise DataError(f"{path} does not exist. {_needs(spec)}")
    if images is not None and not Path(images).is_dir():
        raise DataError(f"there is no folder {images} of images")
    try:
        items = tuple(islice(_read(spec, path, part, None if images is None else Path(images)), limit))
    except MissingFileError as error:
        raise DataError(f"{error}. {_needs(spec)}") from error
    if not items:
        raise DataError(f"{name}: {path} holds nothing to score. {_needs(spec)}")
    return Benchmark(spec, items, part)


def _read(spec: BenchmarkSpec, path: Path | None, part: str, images: Path | None) -> Iterator[Item]:
    if path is not None and spec.checked != "own" and in_common_form(path):
        items = read_common(path, spec.form, images)
    elif spec.load is not None:
        items = spec.load(path, part, images)
    else:
        raise MissingFileError(f"{path} is not a .jsonl file in the common form")
    return items if spec.refine is None else spec.refine(items, path, part)


def _needs(spec: BenchmarkSpec) -> str:
    """What the user has to provide."""
    terms = f"Licence: {spec.licence}" if spec.licence else "Its licence is not known to us: ask its authors"
    where = "Put it anywhere and give its path (--data, data=)"
    return f"{spec.title} needs {spec.files}. From: {spec.origin}. {terms}. {where}."


def _from_hub(spec: BenchmarkSpec, part: str) -> Path:
    """Folder with the files of a part, downloaded or cached."""
    if spec.hub is None:
        raise DataError(f"{spec.name} needs a path to its files. {_needs(spec)}")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    split = spec.splits.get(part, part)
    patterns = [pattern.format(split=split) for pattern in spec.hub_files]
    try:
        path = Path(snapshot_download(spec.hub, repo_type="dataset", allow_patterns=patterns))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise DataError(
            f"cannot load {spec.hub!r} from the Hub: {type(error).__name__}: {error}\n{_needs(spec)}"
        ) from error
    if not path.is_dir():
        raise DataError(f"{spec.hub!r} on the Hub has no files {', '.join(patterns)}. {_needs(spec)}")
    return path
