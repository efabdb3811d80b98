"""Finds benchmarks by name and loads them: from a path, from the Hub, or generated."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

from reward.errors import DataError
from reward.metaeval.benchmarks.files import MissingFileError
from reward.metaeval.benchmarks.items import RATINGS, Benchmark, BenchmarkSpec, Entry
from reward.metaeval.benchmarks.jsonl import as_item, in_common_form, read_common

DRAWS = 5  # of references, in the literature on Pascal-50S


@cache
def _specs() -> dict[str, BenchmarkSpec]:
    import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own

    benchmarks = yaml.safe_load(files(__package__).joinpath("benchmarks.yaml").read_text("utf-8"))
    specs = {}
    for name, facts in benchmarks.items():
        facts["parts"] = tuple(facts.get("parts", ()))
        specs[name] = BenchmarkSpec(name, **facts)
    return specs


def _function(path: str) -> Callable[..., Iterator[Any]]:
    """The function of this folder that `module:name` names."""
    module, _, name = path.partition(":")
    function: Callable[..., Iterator[Any]] = getattr(import_module(f"{__package__}.{module}"), name)
    return function


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
    for spec in _specs().values():
        if _plain(spec.name) == _plain(name):
            return spec
    if Path(name).exists():
        raise DataError(f"no benchmark is named {name!r}; ratings of your own are read by load_ratings({name!r})")
    if _plain(name) == "caparena":
        raise DataError("CapArena's battles have a command of their own: capreward arena BATTLES.json -m METRIC")
    raise DataError(f"no benchmark is named {name!r}; there are: {', '.join(list_benchmarks())}")


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]", "", name.lower())


def load_benchmark(
    name: str,
    data: str | os.PathLike[str] | None = None,
    *,
    part: str | None = None,
    images: str | os.PathLike[str] | None = None,
    limit: int | None = None,
    reference_draws: int = DRAWS,
) -> Benchmark:
    """Loads a benchmark.

    Args:
        name: such as `"flickr8k-expert"`; see `list_benchmarks`.
        data: the file or folder that holds it, in its published form or in the common JSONL form of its items (see
            `reward.metaeval.benchmarks.jsonl.read_common`). None takes it from the Hub, if it has a data set there.
        part: name of the part to load; None takes the first of `BenchmarkSpec.parts`.
        images: folder in which relative image paths start; None is the folder of the data, or `images` in it.
        limit: loads only this many items, at least 1.
        reference_draws: how often references are drawn where the literature draws some of many (Pascal-50S: 5 of 48);
            the figures are means over the draws. 0 takes all references.

    Raises:
        DataError: no such benchmark or part, or its files are missing or malformed; the message says which files are
            needed, where they come from and under which licence.
    """
    spec = benchmark_spec(name)
    if limit is not None and limit < 1:
        raise DataError(f"limit must be at least 1, got {limit}")
    if not part:
        part = next(iter(spec.parts), "")
    elif part not in spec.parts:
        raise DataError(f"{name} has no part {part!r}; its parts: {', '.join(spec.parts) or 'none'}")
    is_made = spec.checked == "own"
    if is_made and (data or images):
        raise DataError("the scenes are made on the spot: leave out --data and --images (data=, images=)")
    if data is not None and not os.path.exists(data):
        raise DataError(f"{data} does not exist. {_describe_files(spec)}")
    if images is not None and not Path(images).is_dir():
        raise DataError(f"there is no folder {images} of images")
    path = "" if is_made else os.fspath(data or spec.hub or "")
    items: list[dict[str, Any]] = []
    try:
        for item in islice(_items(spec, path, part, None if images is None else Path(images)), limit):
            items.append(item)
    except MissingFileError as error:
        raise DataError(f"{error}. {_describe_files(spec)}") from error
    except DataError:
        raise
    except Exception as error:  # what a wrong layout, `datasets` and the Hub raise is of many kinds
        problem = f"item {len(items) + 1}: {type(error).__name__}: {error}"
        raise DataError(f"cannot read {path}, {problem}\n{_describe_files(spec)}") from error
    if not items:
        raise DataError(f"{name}: {path} holds nothing to score. {_describe_files(spec)}")
    return Benchmark.of(spec, items, part, draws=reference_draws)


def _items(spec: BenchmarkSpec, path: str, part: str, images: Path | None) -> Iterator[dict[str, Any]]:
    """Items of a file or folder, or of a data set of the Hub, as `Benchmark.of` takes them."""
    entries: Iterator[tuple[str, Entry]]
    if path and in_common_form(Path(path)):
        entries = read_common(Path(path), spec.form)
    elif spec.load and (path or spec.checked == "own"):
        entries = _published_entries(spec, path, part, images)
    elif path:
        raise MissingFileError(f"{path} is not a .jsonl file in the common form")
    else:
        raise MissingFileError(f"{spec.name}: no path")
    # Where relative image paths start.
    root = images or Path(path)
    if root.is_file():
        root = root.parent
    items = (as_item(entry, spec.form, where, root) for where, entry in entries)
    if spec.form == RATINGS:
        items = (item for item in items if item["ratings"])
    return _function(spec.refine)(items, part) if spec.refine else items


def _published_entries(spec: BenchmarkSpec, path: str, part: str, images: Path | None) -> Iterator[tuple[str, Entry]]:
    """The entries of the published files, each with its number."""
    config = {"config": spec.config} if spec.config else {}
    for number, entry in enumerate(_function(spec.load)(path, part, images, **config), start=1):
        yield f"{path or spec.name}, item {number}", entry


def _describe_files(spec: BenchmarkSpec) -> str:
    """What the user has to provide."""
    terms = f"Licence: {spec.licence}" if spec.licence else "Its licence is not known to us: ask its authors"
    return (
        f"{spec.title} needs {spec.files}. From: {spec.origin}. {terms}. Put it anywhere and give its path "
        "(--data, data=)."
    )
