"""Finds benchmarks by name and loads them: from a path, from the Hub, or made on the spot."""

from __future__ import annotations

import importlib
import os
from itertools import islice
from pathlib import Path
from typing import Any

from reward.errors import DataError
from reward.metaeval.benchmarks.forms import Benchmark, BenchmarkSpec

__all__ = ["benchmark_spec", "list_benchmarks", "load_benchmark"]

# Modules of this package with a tuple SPECS.
_MODULES = ("scenes", "flickr8k")


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

    Raises:
        DataError: no such benchmark; the message lists those there are.
    """
    try:
        return _specs()[name]
    except KeyError:
        raise DataError(f"no benchmark is named {name!r}; there are: {', '.join(list_benchmarks())}") from None


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
        data: the file or folder that holds it; None takes it from the Hub where it is known to be there.
        part: which part of it; None takes the first of `BenchmarkSpec.parts`.
        images: folder in which relative image paths start; None is the folder of the data.
        limit: only the first so many items.

    Raises:
        DataError: no such benchmark or part, or its files are not there or not as they should be; the message says
            which files are needed, where they come from and under which licence.
    """
    spec = benchmark_spec(name)
    if part is None:
        part = spec.parts[0] if spec.parts else ""
    elif part not in spec.parts:
        raise DataError(f"{name} has no part {part!r}; its parts: {', '.join(spec.parts) or 'none'}")
    path = None if data is None else Path(data)
    if path is None and spec.checked != "own":
        path = _from_hub(spec)
    if path is not None and not path.exists():
        raise DataError(f"{path} does not exist. {_needs(spec)}")
    module, _, function = spec.loader.partition(":")
    load: Any = getattr(importlib.import_module(module), function)
    items = tuple(islice(load(path, part, None if images is None else Path(images)), limit))
    if not items:
        raise DataError(f"{name}: {path} holds nothing to score. {_needs(spec)}")
    return Benchmark(spec, items, part)


def _needs(spec: BenchmarkSpec) -> str:
    """What a user has to put where."""
    terms = f"Licence: {spec.licence}" if spec.licence else "Its licence is not known to us: ask its authors"
    return f"{spec.title} needs {spec.files}. From: {spec.origin}. {terms}."


def _from_hub(spec: BenchmarkSpec) -> Path:
    """Folder of the data set's files, downloaded or from the cache."""
    if spec.hub is None:
        raise DataError(f"{spec.name} needs a path to its files (--data, data=). {_needs(spec)}")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(spec.hub, repo_type="dataset"))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise DataError(
            f"cannot load {spec.hub!r} from the Hub: {type(error).__name__}: {error}\n"
            f"With its files on disk, give their path (--data, data=). {_needs(spec)}"
        ) from error
