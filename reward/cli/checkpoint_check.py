"""What is known of a checkpoint before its weights are fetched: who scores with it, its size, and what will fail."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from reward.checkpoints.folders import (
    CARD_FILE,
    CONFIG_FILE,
    HUB_FILES,
    HUB_WEIGHTS,
    OPEN_CLIP_CONFIG,
    SENTENCE_TRANSFORMERS_CONFIG,
    WEIGHT_SUFFIXES,
    check_checkpoint,
    hub_folder,
    local_folder,
)
from reward.checkpoints.weight_files import REWARD_HEADS, read_header
from reward.data.json_files import read_json
from reward.errors import CheckpointError, ConfigError, DataError
from reward.metrics.base import MetricSpec
from reward.metrics.checkpoint_metric import metric_of_checkpoint
from reward.registry import metric_spec

# What is read of a Hub id: all of it is small.
_READ = ("*config*.json", "modules.json", "*.index.json", CARD_FILE)
_INDEX = "model.safetensors.index.json"
_DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16", "F64": "float64"}


@dataclass(frozen=True)
class CheckpointCheck:
    """What the files of a checkpoint say, without its weights.

    Args:
        metric: the metric that is to score with it; None if nobody says.
        claimed: the metric that its files are made for; None if they do not say.
        files: {path: bytes} of what is fetched, or read from a folder.
        weights: numbers in the files of weights, by their headers; None where these are no safetensors.
        dtype: of most of them.
        weight_bytes: size of these files.
        licence: that its card states.
        problems: why it cannot be loaded, as far as that is seen from here.
    """

    metric: str | None
    claimed: str | None
    files: Mapping[str, int]
    weights: int | None
    dtype: str
    weight_bytes: int
    licence: str
    problems: tuple[str, ...]


def inspect_checkpoint(text: str) -> CheckpointCheck:
    """Reads configuration, file list and headers of a checkpoint. No weights are fetched.

    Args:
        text: `"NAME=CHECKPOINT"` or `"CHECKPOINT"`, a folder or a Hub id, which may have @REVISION.

    Raises:
        ConfigError: it is neither.
        UnknownMetricError: no such metric.
        CheckpointError: there is no such folder or repository, or the Hub cannot be reached.
    """
    name, equals, source = text.partition("=")
    if not equals:
        name, source = "", text
    source = source.removeprefix("hf-hub:").removeprefix("local-dir:")
    spec = metric_spec(name) if name else None
    revision: str | None = None
    if not Path(source).exists():
        source, _, end = source.partition("@")
        revision = end or None
    is_bare_name = spec is None and "/" not in source and not Path(source).exists()
    if source in ("", "embedded") or is_bare_name or ":" in source:
        raise ConfigError(f"only a folder or a Hub id can be read, as in vlmreward=name/model, got {text!r}")

    folder = local_folder(source, model="the")
    is_hub = folder is None
    if folder is None:
        folder = hub_folder(source, "the", revision, _READ, ())
        sizes = dict(_hub_sizes(source, revision))
    else:
        sizes = {
            path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*") if path.is_file()
        }

    problems: list[str] = []
    try:
        claimed: str | None = metric_of_checkpoint(folder)
    except CheckpointError as error:
        claimed = None
        if spec is None:
            problems.append(str(error).replace(str(folder), source))
    if spec is None and claimed is not None:
        spec = metric_spec(claimed)
    paths, weight_files = _fetched(sizes, spec)
    counts: Counter[str] = Counter()  # of numbers, by type
    tensors: list[str] = []
    for path in weight_files:
        if not path.endswith(".safetensors"):
            continue
        try:
            header = _hub_header(source, path, revision) if is_hub else _header(folder / path)
        except CheckpointError:
            problems.append(f"{path} cannot be read: it is cut off, or no safetensors file")
            continue
        tensors += header
        for kind, count in header.values():
            counts[kind] += count
    main_kind = max(counts, key=counts.__getitem__, default="")

    if spec is not None:
        problems += _problems(spec, folder, source, sizes, weight_files, tensors)
    return CheckpointCheck(
        metric=None if spec is None else spec.name,
        claimed=claimed,
        files={path: sizes[path] for path in paths},
        weights=sum(counts.values()) or None,
        dtype=_DTYPES.get(main_kind, main_kind),
        weight_bytes=sum(sizes[path] for path in weight_files),
        licence=_licence(folder / CARD_FILE),
        problems=tuple(problems),
    )


def _problems(
    spec: MetricSpec,
    folder: Path,
    source: str,
    sizes: Mapping[str, int],
    weight_files: Sequence[str],
    names: Sequence[str],
) -> Iterator[str]:
    """Why the metric will not load the checkpoint.

    Args:
        folder: with its configuration.
        source: its name for messages.
        sizes: {path: bytes} of all files.
        weight_files: those of weights that the metric reads.
        names: of the tensors in these.
    """
    if spec.extra == "rerankers" and find_spec("sentence_transformers") is None:
        yield f'a package is missing: pip install "capreward[{spec.extra}]"'
    if spec.sources is not None:
        try:
            check_checkpoint(folder, metric=spec.name, kind=spec.sources)
        except CheckpointError as error:
            yield str(error).replace(str(folder), source)
    if not weight_files and spec.sources != "checkpoint":
        others = [path for path in sizes if path.endswith(WEIGHT_SUFFIXES)]
        there = ", ".join(others[:3]) or "no file of weights"
        yield f"no weights are read: there is {there}, and not model.safetensors"
    shards = _optional(folder / _INDEX).get("weight_map") or {}
    missing = sorted(set(shards.values()) - set(sizes))
    if missing:
        yield f"{_INDEX} names {missing[0]}, which is not there"
    if "adapter_config.json" in sizes and spec.sources in ("judge", "model"):
        yield "it holds adapters: merge them into their model, and save that"
    config = _optional(folder / CONFIG_FILE)
    if spec.sources in ("judge", "model"):
        yield from _problems_of_type(config)
    if spec.sources == "clip" and OPEN_CLIP_CONFIG not in sizes and any(map(_is_of_transformers, weight_files)):
        from reward.backbones.clip_transformers import check_kind

        try:
            check_kind(folder, f"CLIP {source!r}")
        except CheckpointError as error:
            yield str(error)
    architectures = config.get("architectures") or [""]
    writes = str(architectures[0]).endswith("ForConditionalGeneration")
    if spec.name == "crossencoder" and writes and SENTENCE_TRANSFORMERS_CONFIG not in sizes:
        yield "no modules.json of sentence-transformers says how it scores: give a revision that has one"
    heads = [name for name in names if name.startswith(REWARD_HEADS)]
    if spec.name == "vlmreward" and names and not heads:
        yield "no weight begins with score. or v_head.summary.: a model that answers in words is a judge"
    if spec.sources == "judge" and heads:
        yield f"it has {heads[0]}, the head of a reward model: write vlmreward={source}"


def _is_of_transformers(path: str) -> bool:
    """Whether a file has the name that transformers gives to weights."""
    return path.startswith(("model", "pytorch_model"))


def _problems_of_type(config: Mapping[str, Any]) -> Iterator[str]:
    """Why transformers will not know the model of a config.json."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    model_type = config.get("model_type")
    if model_type is not None and model_type not in CONFIG_MAPPING_NAMES and model_type != "CrossEncoder":
        code = ", and the code that it brings is not run" if config.get("auto_map") else ""
        yield f"the installed transformers does not know its type {model_type!r}{code}"


def _fetched(sizes: Mapping[str, int], spec: MetricSpec | None) -> tuple[list[str], list[str]]:
    """The paths of what a metric reads of a repository, and of the weights among these.

    Python files are left, and pickles but those of CLIPs, which are read without running them.
    """
    # Only the classes of "model" have folders below their own, and a class is not imported for nothing.
    in_subfolders = spec is not None and spec.sources == "model" and getattr(spec.scorer_class(), "subfolders", False)
    paths = []
    weights = []
    pickles = []
    for path in sizes:
        name = path.rpartition("/")[2]
        if name != path and not in_subfolders:
            continue
        if any(fnmatchcase(name, pattern) for pattern in HUB_WEIGHTS) or name == "open_clip_model.safetensors":
            weights.append(path)
        elif name.endswith(WEIGHT_SUFFIXES):
            pickles.append(path)
        elif any(fnmatchcase(name, pattern) for pattern in HUB_FILES):
            paths.append(path)
    if not weights and spec is not None and spec.sources == "clip":
        weights = pickles
    return [*paths, *weights], weights


def _hub_sizes(source: str, revision: str | None) -> Iterator[tuple[str, int]]:
    from huggingface_hub import HfApi

    for entry in HfApi().list_repo_tree(source, revision=revision, recursive=True):
        size = getattr(entry, "size", None)  # a folder has none
        if size is not None:
            yield entry.path, size


def _hub_header(source: str, path: str, revision: str | None) -> dict[str, tuple[str, int]]:
    """{tensor: (type, how many numbers)} of a file on the Hub, of which only the first bytes are fetched."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HTTPError, SafetensorsParsingError

    try:
        metadata = HfApi().parse_safetensors_file_metadata(source, path, revision=revision)
    except (SafetensorsParsingError, HTTPError, OSError) as error:
        raise CheckpointError(str(error)) from error
    return {name: (tensor.dtype, tensor.parameter_count) for name, tensor in metadata.tensors.items()}


def _header(path: Path) -> dict[str, tuple[str, int]]:
    header = read_header(path)
    return {name: (header.types[name], math.prod(shape)) for name, shape in header.shapes.items()}


def _licence(card: Path) -> str:
    """The licence that a card states."""
    from huggingface_hub import RepoCard

    try:
        return str(RepoCard.load(card, ignore_metadata_errors=True).data.get("license") or "unknown")
    except (OSError, ValueError):  # no card, or one that cannot be read
        return "unknown"


def _optional(path: Path) -> dict[str, Any]:
    try:
        content = read_json(path)
    except DataError:
        return {}
    return content if isinstance(content, dict) else {}
