"""Scores stored on disk, one file per metric and one row per caption, so that no caption is scored twice."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import reward
from reward.checkpoints import resolve_checkpoint
from reward.errors import CheckpointError, OutputError
from reward.fingerprints import fingerprint_file, fingerprint_source
from reward.metrics.base import MetricSpec
from reward.samples import CaptionSample

__all__ = ["KnownScore", "ScoreCache", "default_cache_folder", "metric_identity", "sample_key"]

_SHARED = (".", "metrics", "backbones", "judges", "scoring")  # folders of this package, without those inside them
_KEYS_A_QUERY = 500  # SQLite allows 999 placeholders in old builds


@dataclass(frozen=True)
class KnownScore:
    """The stored result of a caption.

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


class ScoreCache:
    """Scores of one metric by `sample_key`; they are on the disk when `put` returns, and processes may share the file.

    The file holds hashes and numbers: no captions and no images.

    Args:
        folder: of the files; made if absent.
        identity: what the scores depend on besides the sample, see `metric_identity`. It names the file.

    Attributes:
        path: the file.

    Raises:
        OutputError: the file cannot be opened, or is not a cache, or is damaged.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     cache = ScoreCache(Path(folder), {"metric": "length", "source": "embedded"})
        ...     cache.put({"key": KnownScore((4.0,), False, 0.001, "CPU")})
        ...     cache.get(["key", "other"])["key"].scores
        (4.0,)
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any]) -> None:
        description = json.dumps(dict(identity), sort_keys=True)
        digest = hashlib.sha256(description.encode()).hexdigest()[:16]
        self.path = folder / f"{identity['metric']}-{digest}.sqlite"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._rows = sqlite3.connect(self.path, timeout=60, isolation_level=None)
            self._rows.execute("CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
            self._rows.execute(
                "CREATE TABLE IF NOT EXISTS scores (key TEXT PRIMARY KEY, scores TEXT NOT NULL, "
                "truncated INTEGER NOT NULL, seconds REAL NOT NULL, device TEXT NOT NULL)"
            )
        except (sqlite3.Error, OSError) as error:
            raise self._problem(error) from error
        self.set_fact("identity", dict(identity))  # for people who open the file

    def fact(self, name: str) -> Any:
        """The value that `set_fact` stored, or None."""
        rows = self._run("SELECT value FROM facts WHERE name = ?", [name])
        return json.loads(rows[0][0]) if rows else None

    def set_fact(self, name: str, value: Any) -> None:
        """Stores a JSON value, such as the aspects of the scores."""
        text = json.dumps(value)
        if json.dumps(self.fact(name)) != text:
            self._run("INSERT OR REPLACE INTO facts VALUES (?, ?)", [name, text])

    def get(self, keys: Sequence[str]) -> dict[str, KnownScore]:
        """The stored results of these keys; a key without one is left out."""
        known: dict[str, KnownScore] = {}
        for start in range(0, len(keys), _KEYS_A_QUERY):
            part = list(keys[start : start + _KEYS_A_QUERY])
            marks = ",".join("?" * len(part))
            for key, scores, *rest in self._run(f"SELECT * FROM scores WHERE key IN ({marks})", part):
                try:
                    numbers = tuple(map(float, json.loads(scores)))
                except (TypeError, ValueError) as error:
                    raise self._problem(error) from error
                known[key] = KnownScore(numbers, bool(rest[0]), rest[1], rest[2])
        return known

    def put(self, known: Mapping[str, KnownScore]) -> None:
        """Stores a chunk of scores: all of them, or none if the process is killed meanwhile."""
        rows = [
            (key, json.dumps(each.scores), int(each.truncated), each.seconds, each.device)
            for key, each in known.items()
        ]
        try:
            self._rows.execute("BEGIN IMMEDIATE")
            self._rows.executemany("INSERT OR REPLACE INTO scores VALUES (?, ?, ?, ?, ?)", rows)
            self._rows.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._problem(error) from error

    def close(self) -> None:
        """Closes the file."""
        self._rows.close()

    def _run(self, query: str, values: Iterable[Any]) -> list[Any]:
        try:
            return self._rows.execute(query, list(values)).fetchall()
        except sqlite3.Error as error:
            raise self._problem(error) from error

    def _problem(self, error: Exception) -> OutputError:
        return OutputError(
            f"the cache of scores {str(self.path)!r} cannot be used: {error}; delete it, or choose another (--cache)"
        )


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
    content = json.dumps([sample.candidate, list(sample.references), image, among])
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
