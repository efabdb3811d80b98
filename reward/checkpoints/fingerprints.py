"""What a score belongs to: fingerprints of files, of the images of rows, of checkpoints, weights and code."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import reward
from reward.checkpoints.code import fingerprint_code
from reward.checkpoints.store import Store
from reward.data.image_files import file_stamp
from reward.errors import OutputError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from reward.metrics.base import MetricSpec

_KEPT_FROM = 16 * 2**20  # bytes; smaller files are hashed as fast as their hashes are looked up
_WORDS = 2**18  # of 8 bytes; what is added up of a tensor at a time
_SETTLED = 2.0  # seconds; a file that changed this lately may change again within one tick of the disk's clock
_BLOB = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")  # what the Hub's cache calls the content of a file
_DATA = {".json", ".safetensors", ".spm", ".model", ".txt", ".jinja", ".bin", ".pt", ".pth"}  # no cards, no logs
_WEIGHT_FIELDS = ("backbone", "source", "clip", "model")  # fields of a config.json that may name weights on the Hub


def hash_file(path: Path) -> str:
    """SHA-256 of a file, all of which is read."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def fingerprint_file(path: Path) -> str:
    """Names the content of a file, all of it: a copy has the same name, and an edit anywhere gives another.

    A file of the Hub's cache is called as its blob is. Any other is hashed; the hash of a large one is kept by path and
    `file_stamp` in `capreward/kept.sqlite` of `XDG_CACHE_HOME`, else of `~/.cache`, if that can be written.
    """
    real = Path(os.path.realpath(path))
    if real.parent.name == "blobs" and _BLOB.fullmatch(real.name):
        return real.name
    facts = real.stat()
    if facts.st_size < _KEPT_FROM:
        return hash_file(real)
    folder = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "capreward")
    if folder.startswith("~"):  # nobody's home
        return hash_file(real)
    key = f"{os.fspath(real)!r} {file_stamp(facts)}"
    with closing(Store(os.path.join(folder, "kept.sqlite"), survives_power_cut=False)) as hashes:
        with suppress(OutputError):
            content = hashes.get("hashes", key)
            if content is not None:
                return content.decode()
        digest = hash_file(real)
        if time.time() - max(facts.st_mtime, facts.st_ctime) > _SETTLED:
            with suppress(OutputError):
                hashes.put("hashes", {key: digest.encode()})
    return digest


def split_sources(checkpoint: str | os.PathLike[str]) -> list[str]:
    """The checkpoints and endpoints in a text, separated by commas; a path that is there is one.

    Example:
        >>> split_sources("name/one,http://localhost:8000/v1#two")
        ['name/one', 'http://localhost:8000/v1#two']
    """
    text = os.fspath(checkpoint)
    if os.path.exists(text):
        return [text]
    return [part.strip() for part in text.split(",") if part.strip()]


def fingerprint_checkpoint(checkpoint: Any, revision: str | None = None) -> str:
    """Names the weights that a scorer's `source` stands for now.

    A file counts by its content; a folder by its data files and what its config.json names. A Hub id counts by the
    commit that its revision stands for, or was last downloaded if the Hub cannot be reached, and by what the
    config.json names. Any other name, such as `"embedded"`, is its own fingerprint.
    """
    parts = []
    for text in split_sources(str(checkpoint)):
        path = Path(text.removeprefix("local-dir:"))
        if path.exists():
            parts.append(_fingerprint_path(path) or text)
            parts.extend(_weights_in_config(_read_config(path)))
            continue
        commit = hub_commit(text, revision)
        if commit is not None:
            parts.append(f"{text}@{commit}")
            parts.extend(_weights_in_config(_hub_config(text, commit)))
        else:
            parts.append(f"{text}@{revision}" if revision else text)
    return ";".join(parts)


def _fingerprint_path(path: Path) -> str:
    """Names and contents of a file, or of the data files of a folder."""
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix.lower() in _DATA and file.is_file())
    return ",".join(f"{file.name}:{fingerprint_file(file)[:16]}" for file in files)


def _read_config(folder: Path) -> Any:
    try:
        return json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # without a readable one, loading the checkpoint gives the error
        return None


def _hub_config(repo: str, commit: str) -> Any:
    """The config.json of a commit, which loading it needs anyway."""
    from huggingface_hub import hf_hub_download

    try:
        file = hf_hub_download(repo.removeprefix("hf-hub:"), "config.json", revision=commit)
    except (OSError, ValueError):  # every error of the client is one of these
        return None
    return _read_config(Path(file).parent)


def _weights_in_config(config: Any, field: str = "", revision: str | None = None) -> Iterator[str]:
    """What a config.json names: files and folders of this disk anywhere in it, models on the Hub in some fields."""
    if isinstance(config, dict):
        for name, value in config.items():
            yield from _weights_in_config(value, name, config.get("revision"))
    elif isinstance(config, list):
        for value in config:
            yield from _weights_in_config(value, field, revision)
    elif isinstance(config, str):
        path = config.removeprefix("local-dir:")
        if os.path.exists(path):  # Path.exists raises for a text that is too long for a name, such as a prompt
            yield _fingerprint_path(Path(path))
        elif field in _WEIGHT_FIELDS:
            commit = hub_commit(config, revision)
            if commit is not None:
                yield f"{config}@{commit}"


def hub_commit(checkpoint: str, revision: str | None) -> str | None:
    """Commit of a Hub id; None for what is not on the Hub."""
    repo_id = checkpoint.removeprefix("hf-hub:")
    if repo_id.count("/") != 1 or ":" in repo_id or Path(repo_id).exists() or repo_id.startswith((".", "~", "/")):
        return None
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HFValidationError, HTTPError
    from huggingface_hub.file_download import repo_folder_name

    try:
        commit: str | None = HfApi().model_info(repo_id, revision=revision, timeout=10).sha
        return commit
    except HFValidationError:
        return None
    except (HTTPError, OSError):  # no network, or no such repository: loading it says so
        refs = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repo_id, repo_type="model") / "refs"
        file = refs / (revision or constants.DEFAULT_REVISION)
        return file.read_text(encoding="utf-8").strip() if file.is_file() else None


def fingerprint_network(network: nn.Module, *facts: Any) -> str:
    """Hash of what a network computes with: name, type, shape and all values of each tensor, on every device alike.

    Args:
        network: with its adapters.
        facts: whatever else its outputs depend on, such as a configuration; hashed as text.

    Returns:
        64 hexadecimal digits.

    Example:
        >>> from torch import nn
        >>> network = nn.Linear(2, 2)
        >>> before = fingerprint_network(network)
        >>> nn.init.ones_(network.bias).tolist(), fingerprint_network(network) == before
        ([1.0, 1.0], False)
    """
    digest = hashlib.sha256(json.dumps(facts, default=str, sort_keys=True).encode())
    for name, tensor in network.state_dict().items():
        digest.update(f"{name} {tensor_sums(tensor)}".encode())
    return digest.hexdigest()


def tensor_sums(tensor: Tensor) -> str:
    """Sums of its values, as whole numbers, each weighed by its place: made where the tensor is, and exact."""
    import numpy as np
    import torch

    values = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    length = len(values) // 8 * 8
    words = values[:length]
    if values.storage_offset() % 8 != 0:
        words = words.clone()
    weights = _odd_numbers(str(tensor.device))
    sums = []
    for part in words.view(torch.int64).split(_WORDS):
        if tensor.device.type == "cpu":  # where numpy is ten times as fast
            sums.append(int(np.dot(part.numpy(), weights.numpy()[: len(part)])))
        else:
            sums.append(int((part * weights[: len(part)]).sum()))
    return f"{tensor.dtype} {tuple(tensor.shape)} {sums} {values[length:].tolist()}"


@cache
def _odd_numbers(device: str) -> Tensor:
    """Weights of places; odd, so that each change of one value counts."""
    import torch

    return (torch.arange(_WORDS) * 0x5851F42D4C957F2D * 2 + 1).to(device)


def metric_identity(
    spec: MetricSpec,
    checkpoint: str | os.PathLike[str],
    *,
    revision: str | None = None,
    dtype: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What a metric's scores depend on: code, weights, revision, number format and its options.

    The version of the library is left out, so that a release that computes the same ends no run. Files that an option
    names count by their content.
    """
    weights = checkpoint
    assets = Path(reward.__file__).parent / "assets" / spec.name
    if checkpoint == "embedded" and assets.is_dir():  # a formula has no weights
        weights = assets
    settings = dict(options or {})
    for name, value in settings.items():
        if os.path.isfile(str(value)):
            settings[name] = fingerprint_file(Path(value))
    # A mean over sentences names the scorer of its metric.
    modules = (spec.scorer.partition(":")[0], "reward.metrics.sentence_mean")
    return {
        "metric": spec.name,
        "code": fingerprint_code(*modules),
        "source": fingerprint_checkpoint(weights, revision),
        "revision": hub_commit(os.fspath(checkpoint), revision) or revision,
        "dtype": dtype,
        "options": settings,
    }
