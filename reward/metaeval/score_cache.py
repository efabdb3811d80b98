"""Scores kept on disk, one journal per metric and one line per caption, so that no caption is scored twice."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import reward
from reward.checkpoints import resolve_checkpoint
from reward.errors import CheckpointError, OutputError
from reward.fingerprints import fingerprint_file, fingerprint_source
from reward.metrics.base import MetricSpec
from reward.samples import CaptionSample
from reward.scoring.journal import Journal

__all__ = ["KnownScore", "default_cache_folder", "metric_identity", "open_cache", "sample_key"]

_SHARED = (".", "metrics", "backbones", "judges", "scoring")  # folders of this package, without those inside them


class KnownScore(NamedTuple):
    """The result of a caption, as the cache keeps it.

    Args:
        scores: finite numbers, one an aspect.
        truncated: whether text was cut to fit the model.
        seconds: measured when it was scored: its share of the time of its chunk, without loading the model.
        device: on which that was.
    """

    scores: tuple[float, ...]
    truncated: bool
    seconds: float
    device: str


def open_cache(folder: Path, identity: Mapping[str, Any]) -> Journal:
    """Opens the journal of the scores of one metric, a line [`sample_key`, `KnownScore`] each; processes may share it.

    The file holds hashes and numbers: no captions and no images.

    Args:
        folder: of the files; made if absent.
        identity: what the scores depend on besides the sample, see `metric_identity`. It names the file.

    Raises:
        OutputError: the file cannot be opened, or is not such a journal.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with open_cache(Path(folder), {"metric": "length", "source": "embedded"}) as cache:
        ...         _ = cache.append([["key", KnownScore((4.0,), False, 0.001, "CPU")]])
        ...         dict(cache.results())
        {'key': [[4.0], False, 0.001, 'CPU']}
    """
    digest = hashlib.sha256(json.dumps(dict(identity), sort_keys=True).encode()).hexdigest()[:16]
    try:
        return Journal(folder / f"{identity['metric']}-{digest}.jsonl", dict(identity), shared=True)
    except OutputError as error:
        raise OutputError(
            f"the cache of scores cannot be used: {error}. Choose another with --cache (cache=)."
        ) from error


def default_cache_folder() -> Path:
    """`capreward/scores` in the user's folder of caches: XDG_CACHE_HOME, else ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "capreward" / "scores"


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
    try:
        weights = resolve_checkpoint("embedded", metric=spec.name) if source == "embedded" else source
    except CheckpointError:  # a formula has no weights
        weights = source
    return {
        "metric": spec.name,
        "capreward": reward.__version__,
        "code": _code_fingerprint(spec),
        "source": str(source) if source == "embedded" and weights == source else fingerprint_source(weights),
        "revision": _hub_commit(os.fspath(source), revision) or revision,
        "dtype": dtype,
    }


def sample_key(sample: CaptionSample, image: str | None, *, among: str = "") -> str:
    """Names a sample by content: caption, references, and the image's `image_key`.

    Args:
        sample: what is scored.
        image: hash of the image; None for a metric that does not look at it.
        among: for metrics whose scores depend on the other captions: what identifies these.
    """
    context = [sample.question, sample.task] if sample.question or sample.task else []
    content = json.dumps([sample.candidate, list(sample.references), image, among, *context])
    return hashlib.sha256(content.encode()).hexdigest()


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
