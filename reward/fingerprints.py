"""Fingerprints of data, weights and code, by which it is seen whether they have changed."""

from __future__ import annotations

import hashlib
import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import reward

if TYPE_CHECKING:
    from torch import nn

    from reward.metrics.base import MetricSpec

__all__ = ["fingerprint_file", "fingerprint_network", "fingerprint_source", "metric_identity"]

WHOLE_BELOW = 256 * 2**20  # bytes; larger files are sampled, because hashing terabytes would delay every start
BLOCKS, BLOCK_BYTES = 64, 2**20
VALUES = 16_384  # of each weight that are hashed; a training moves nearly all of them
_SHARED = (".", "metrics", "backbones", "judges", "scoring")  # folders of this package, without those inside them
_DATA = {".json", ".safetensors", ".spm", ".model", ".txt", ".jinja", ".bin", ".pt", ".pth"}  # no cards, no logs


def fingerprint_file(path: Path, *, whole: bool = False) -> str:
    """Hash of a file: of all bytes up to 256 MiB, else of the size and 64 evenly spaced blocks of 1 MiB.

    The modification time does not count: a copy of a file is the same input.

    Args:
        path: the file.
        whole: hash all bytes of a large file too, for an output that may have been damaged anywhere.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "a.txt"
        ...     _ = path.write_text("one")
        ...     fingerprint_file(path)[:8]
        'f483484c'
    """
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        if whole or size <= WHOLE_BELOW:
            while block := file.read(BLOCK_BYTES):
                digest.update(block)
        else:
            for position in range(BLOCKS):
                file.seek(position * (size - BLOCK_BYTES) // (BLOCKS - 1))
                digest.update(file.read(BLOCK_BYTES))
    return digest.hexdigest()


def fingerprint_source(source: Any) -> str:
    """Fingerprint of a scorer's `source`.

    A file is hashed. Of a folder, the data files are hashed, and the files that its config.json names, such as the
    weights of a backbone elsewhere on this disk. Any other source, a Hub id or `"embedded"`, is its own fingerprint.
    """
    path = Path(str(source).removeprefix("local-dir:"))
    named = [Path(text) for text in sorted(_texts(_config(path))) if os.path.exists(text)]
    hashes = [_fingerprint(each) for each in (path, *named) if each.exists()]
    return ";".join(hashes) or str(source)


def fingerprint_network(network: nn.Module, *facts: Any) -> str:
    """Hash of what a network computes with: name, type, shape and up to 16,384 evenly spaced values of each tensor.

    It names the weights that are loaded, wherever they came from: a Hub revision that moved, or adapters, change it.

    Args:
        network: on any device.
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
    import torch

    digest = hashlib.sha256(json.dumps(facts, default=str, sort_keys=True).encode())
    for name, tensor in network.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        values = tensor.detach().reshape(-1)
        values = values[:: max(1, -(-len(values) // VALUES))].contiguous().cpu()
        digest.update(values.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _fingerprint(path: Path) -> str:
    files = [path] if path.is_file() else sorted(each for each in path.iterdir() if each.suffix.lower() in _DATA)
    return ",".join(f"{each.name}:{fingerprint_file(each)[:16]}" for each in files if each.is_file())


def _config(folder: Path) -> Any:
    try:
        return json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # without a readable one, loading the checkpoint gives the error
        return None


def _texts(value: Any) -> set[str]:
    """All texts in a JSON value, but not the names of its fields."""
    if isinstance(value, str):
        return {value.removeprefix("local-dir:")}
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return set().union(*map(_texts, parts))


def metric_identity(
    spec: MetricSpec, source: str | os.PathLike[str], *, revision: str | None = None, dtype: str | None = None
) -> dict[str, Any]:
    """What a metric's scores depend on: package version, the metric's code, weights, revision and number format.

    A folder of weights is identified by its content, and weights on the Hub by the commit of the revision. If the Hub
    cannot be reached, that is the commit that was last downloaded.

    Example:
        >>> from reward.registry import metric_spec
        >>> metric_identity(metric_spec("length"), "embedded")["source"]
        'embedded'
    """
    embedded = Path(reward.__file__).parent / "assets" / spec.name
    if source != "embedded":
        weights = fingerprint_source(source)
    else:  # a formula has no weights
        weights = fingerprint_source(embedded) if embedded.is_dir() else "embedded"
    return {
        "metric": spec.name,
        "capreward": reward.__version__,
        "code": _code_fingerprint(spec),
        "source": weights,
        "revision": _hub_commit(os.fspath(source), revision) or revision,
        "dtype": dtype,
    }


def _code_fingerprint(spec: MetricSpec) -> str:
    """Hash of the code of a metric and of the code that all metrics share."""
    module = spec.scorer.partition(":")[0]
    spec_of_module = find_spec(module)
    if spec_of_module is None or spec_of_module.origin is None:
        return "unknown"
    file = Path(spec_of_module.origin)
    package = Path(reward.__file__).parent
    folders = [*((file.parent,) if "." in module else ()), *(package / name for name in _SHARED)]
    files = {file} | {
        path for folder in folders for path in folder.iterdir() if path.suffix in (".py", ".yaml", ".json")
    }
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.name} {fingerprint_file(path)}\n".encode())
    return digest.hexdigest()[:16]


def _hub_commit(source: str, revision: str | None) -> str | None:
    """Commit of a Hub id; None for what is not on the Hub."""
    source = source.removeprefix("hf-hub:")
    if source.count("/") != 1 or Path(source).exists() or source.startswith((".", "~", "/")):
        return None
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HFValidationError, HTTPError
    from huggingface_hub.file_download import repo_folder_name

    try:
        commit: str | None = HfApi().model_info(source, revision=revision, timeout=10).sha
        return commit
    except HFValidationError:
        return None
    except (HTTPError, OSError):  # no network, or no such repository: loading it says so
        refs = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=source, repo_type="model") / "refs"
        file = refs / (revision or constants.DEFAULT_REVISION)
        return file.read_text(encoding="utf-8").strip() if file.is_file() else None
