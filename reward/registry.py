"""Finds metrics by name, or by what a checkpoint says of itself, and loads their scorers."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from reward.checkpoints.fingerprints import split_sources
from reward.checkpoints.folders import (
    CONFIG_FILE,
    OPEN_CLIP_CONFIG,
    SENTENCE_TRANSFORMERS_CONFIG,
    check_revision,
    check_source,
    config_folder,
    named_metric,
)
from reward.data.json_files import read_json
from reward.errors import CheckpointError, ConfigError, DataError, UnknownMetricError, did_you_mean, nearest
from reward.judges.base import Judge, Usage
from reward.judges.scripted import ScriptedJudge
from reward.metrics.base import MetricSpec, Scorer, installed_specs
from reward.metrics.function import FunctionScorer
from reward.metrics.function_places import load_function, names_function
from reward.metrics.options import check_options, split_options
from reward.metrics.sentence_mean import SUFFIX, SentenceMean, sentence_mean_spec
from reward.remote import REMOTE

COLUMN = "column:"  # prefix of a score column where a metric may be named


@dataclass(frozen=True)
class MetricSource:
    """A metric with its checkpoint, or a score column that came with the data.

    Args:
        name: name of the metric or the column.
        source: checkpoint of the metric: `"embedded"`, a folder, or a Hub id; or the place of a function.
        revision: of a Hub id.
        is_column: whether it is a column.
        options: of its own, as pairs of name and value; see `reward.metrics.options`.

    Attributes:
        usages: what the judges do that were loaded with it in this process.
    """

    name: str
    source: str | os.PathLike[str] = "embedded"
    revision: str | None = None
    is_column: bool = False
    options: tuple[tuple[str, Any], ...] = ()
    usages: list[Usage] = field(default_factory=list, compare=False, repr=False)

    @classmethod
    def parse(cls, text: str | os.PathLike[str]) -> MetricSource:
        """Reads NAME, NAME=CHECKPOINT, a checkpoint (see `metric_of`) or column:NAME. A Hub id may have @REVISION.

        A function is file.py:function or module:function, or NAME=file.py:function, see `load_function`.

        Example:
            >>> MetricSource.parse("vela=name/repo@v2")
            MetricSource(name='vela', source='name/repo', revision='v2', is_column=False, options=())
        """
        if not isinstance(text, (str, os.PathLike)):
            raise UnknownMetricError(f"a metric is named by a text such as 'vela', got {text!r:.80}")
        text = os.fspath(text)
        if text.startswith(COLUMN):
            return cls(text[len(COLUMN) :], is_column=True)
        name, equals, source = text.partition("=")
        if name.isidentifier() and (names_function(source) or is_address(source)):
            return cls.of(name, source)
        if names_function(text) or names_function(name):
            return cls(load_function(text).spec.name, text)
        if "/" in name or (not equals and _known(name) is None and os.path.exists(name)):
            source, revision = _split_revision(text)
            return cls(metric_of(source, revision), source, revision)
        if not name or (equals and not source):
            raise ConfigError(f"{text!r} is not a metric: write NAME, or NAME=CHECKPOINT with a folder or a Hub id")
        source, revision = _split_revision(source)
        return cls(metric_spec(name).name, source or "embedded", revision)

    @classmethod
    def of(
        cls, metric: str | os.PathLike[str], source: str | os.PathLike[str] = "embedded", revision: str | None = None
    ) -> MetricSource:
        """What `load_scorer` is given: all in one text, see `parse`, or a name with its source beside it."""
        if names_function(source):
            return cls(os.fspath(metric), source)
        if is_address(source) and _known(str(metric)) is None:  # only the service knows it
            return cls("remote", f"{source}#{metric}")
        if source != "embedded":
            return cls(metric_spec(metric).name, source, revision)  # type: ignore[arg-type]
        one = cls.parse(metric)
        return one if revision is None else replace(one, revision=revision)

    @property
    def label(self) -> str:
        """As on the command line."""
        if self.is_column:
            return COLUMN + self.name
        told = f" ({', '.join(f'{name}={value}' for name, value in self.options)})" if self.options else ""
        if self.source == "embedded" or self.checkpoint.endswith(f":{self.name}"):
            return (self.name if self.source == "embedded" else self.checkpoint) + told
        return f"{self.name}={self.checkpoint}{told}"

    @property
    def checkpoint(self) -> str:
        """The source with its revision."""
        return os.fspath(self.source) + (f"@{self.revision}" if self.revision else "")

    @property
    def knows_drawings_only(self) -> bool:
        """Whether its weights are the small ones that ship with the package."""
        return self.source == "embedded" and self.spec.has_embedded and bool(self.spec.checkpoints)

    @property
    def loads(self) -> MetricSpec:
        """Facts of the scorer that `load` gives: of a metric behind a reward service those of `remote`."""
        served = is_address(self.source) and not _asks_there(self.spec, self.source)
        return REMOTE if served else self.spec

    @property
    def spec(self) -> MetricSpec:
        """Facts about the metric, as far as they are known without loading it."""
        if names_function(self.source):
            return load_function(self.checkpoint, self.name).spec
        spec = metric_spec(self.name)
        dry = dry_scorer(spec, dict(self.options))
        return spec if dry is None else replace(dry.spec, name=spec.name)

    def load(self, **options: Any) -> Scorer:
        """Loads the scorer, see `load_scorer`."""
        own = {"revision": self.revision} if self.revision else {}
        scorer = load_scorer(self.name, self.source, **options | own | dict(self.options))
        self.usages.extend(each.usage for each in getattr(getattr(scorer, "scorer", scorer), "judges", ()))
        return scorer


def _split_revision(source: str) -> tuple[str, str | None]:
    if "@" not in source or "://" in source or os.path.exists(source):
        return source, None
    source, _, revision = source.partition("@")
    return source, revision


def metric_of(source: str | os.PathLike[str], revision: str | None = None) -> str:
    """Name of the metric that a checkpoint is of, as its files say.

    Args:
        source: a folder or Hub id whose config.json names the metric, as `save_pretrained` writes it, or has a type
            that a metric reads (`MetricSpec.model_types`); or with an open_clip_config.json, for `clipscore`; or the
            address of a reward service that serves one metric.
        revision: of a Hub id.
    """
    text = os.fspath(source)
    if is_address(text):
        return "remote"
    folder = config_folder(source, revision)
    name = named_metric(folder)
    if name is not None:
        return metric_spec(name).name
    types = _types(folder)
    for kind in types:
        found = [s.name for s in installed_specs().values() if any(fnmatchcase(kind, each) for each in s.model_types)]
        if len(found) > 1:
            lines = " or ".join(f"{name}={text}" for name in found)
            raise CheckpointError(f"{text!r} ({kind}) can be scored with by several metrics: write {lines}")
        if found:
            return found[0]
    if (folder / OPEN_CLIP_CONFIG).is_file():
        return "clipscore"
    told = f"its type is {types[-1]}" if types else f"it has no {CONFIG_FILE} that names one"
    raise CheckpointError(
        f"{text!r} does not say which metric it is for ({told}): write NAME={text}; `capreward metrics` lists the names"
    )


def _types(folder: Path) -> list[str]:
    """The type of sentence-transformers, then the architectures and the type that a config.json names."""
    told: list[Any] = []
    for file in (SENTENCE_TRANSFORMERS_CONFIG, CONFIG_FILE):
        with suppress(DataError):
            config = read_json(folder / file)
            if isinstance(config, dict):
                told += [*(config.get("architectures") or []), config.get("model_type")]
    return [each for each in told if isinstance(each, str)]


def list_metrics() -> list[str]:
    """Names of the installed metrics.

    Example:
        >>> "vela" in list_metrics()
        True
    """
    return list(installed_specs())


def metric_spec(name: str) -> MetricSpec:
    """Facts of a metric.

    Args:
        name: one of `list_metrics()`, or one with `_avg` appended, see `reward.metrics.sentence_mean.SentenceMean`.
            Capitals, dashes and underscores do not matter: `"BLEU-4"` is `"bleu4"`.

    Raises:
        UnknownMetricError: no such metric; the message names the nearest.
    """
    spec, is_mean = _find(name)
    return sentence_mean_spec(spec) if is_mean else spec


def _find(name: str) -> tuple[MetricSpec, bool]:
    """The metric of a name, and whether the name asks for the mean over sentences."""
    if not isinstance(name, str):
        raise UnknownMetricError(f"a metric is named by a text such as 'vela', got {name!r:.80}")
    found = _known(name)
    if found is None:
        close = ", ".join(nearest(_plain(name), installed_specs()))
        if "," in name:
            hint = f"of several write -m {name.replace(',', ' -m ')}"
        else:
            hint = "a checkpoint is written NAME=FOLDER or NAME=HUB_ID, a function my_metric.py:length"
            hint += ", a weight --weights NAME=0.5 (weights={NAME: 0.5})" * (":" in name)
        folder = did_you_mean(name, [path.name for path in Path().iterdir() if path.is_dir()])
        raise UnknownMetricError(
            f"no metric is named {name!r}.{folder} Nearest: {close}; {hint}. `capreward metrics` lists all"
        )
    return found


def _known(name: str) -> tuple[MetricSpec, bool] | None:
    known = {_plain(each): spec for each, spec in installed_specs().items()} | {REMOTE.name: REMOTE}
    plain = _plain(name)
    if plain in known:
        return known[plain], False
    stem = plain.removesuffix(_plain(SUFFIX))
    return (known[stem], True) if stem != plain and stem in known else None


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]", "", name.lower())


def load_scorer(
    name: str | os.PathLike[str] | Callable[..., Any], source: str | os.PathLike[str] = "embedded", **options: Any
) -> Scorer:
    """Loads the scorer of a metric.

    Args:
        name: registry name, such as `"vela"`; `"vela_avg"` is the mean over the sentences of a caption. A checkpoint
            that says which metric it is for needs no name, and both may be one text: `"my-vela"`, `"vela=my-vela"`.
            Or a function of one's own, or its place, as in `"my_metric.py:length"`, see
            `reward.metrics.function.FunctionScorer`.
        source: `"embedded"` (shipped with the package), a checkpoint folder, a Hub id, or the address of a reward
            service that serves the metric (`"http://..."`), see `reward.RemoteReward`. Of a metric that asks a judge
            also the address of an OpenAI-compatible server, ending in /v1 and perhaps #MODEL, or a judge.
        options: passed to the scorer's `from_pretrained` (revision, device, dtype, and see `reward.metrics.options`).

    Raises:
        UnknownMetricError: no such metric.
        ConfigError: see `check_loading` and `reward.metrics.options.check_options`.
        CheckpointError: the source is missing, incomplete or of another metric, or see `check_revision`.

    Example:
        >>> load_scorer("length", device="cpu").spec.aspects
        ('length',)
    """
    own = {key: value for key, value in options.items() if key not in ("revision", "device", "dtype")}
    if is_function(name):
        return FunctionScorer(name, **own)
    source = as_source(source)
    if isinstance(source, list):
        spec, is_mean = _find(name)  # type: ignore[arg-type]
        scorer = spec.scorer_class()(source, **options)
        return SentenceMean(scorer) if is_mean else scorer
    given = MetricSource.of(name, source, options.get("revision"))  # type: ignore[arg-type]
    source = given.source
    if names_function(source):
        return load_function(given.checkpoint, given.name, **own)
    if given.revision is not None:
        options["revision"] = given.revision
    spec, is_mean = _find(given.name)
    check_loading(source, metric=given.name)
    check_revision(source, options.get("revision"))
    if is_address(source) and spec is not REMOTE and not _asks_there(spec, source):
        address, _, named = os.fspath(source).partition("#")
        if named not in ("", spec.name):
            raise ConfigError(f"source {source!r} names the metric {named!r}, but {spec.name!r} was asked for")
        spec, source = REMOTE, f"{address}#{spec.name}"
    check_options(spec, options)
    scorer = spec.scorer_class().from_pretrained(source, **options)
    return SentenceMean(scorer) if is_mean else scorer


def as_source(source: Any) -> Any:
    """A source as text, of several folders, ids and addresses with commas; a list for judges that are loaded.

    Example:
        >>> as_source(["name/one", "name/two"])
        'name/one,name/two'
    """
    several = list(source) if isinstance(source, (list, tuple)) else [source]
    if several and all(isinstance(each, Judge) for each in several):
        return several
    are_texts = isinstance(source, (list, tuple)) and all(isinstance(each, (str, os.PathLike)) for each in several)
    return ",".join(map(os.fspath, several)) if are_texts else source


def _asks_there(spec: MetricSpec, source: Any) -> bool:
    """Whether a source is the server of a judge, and no reward service."""
    return spec.sources == "judge" and re.search(r"/v1/?(#|,|$)", os.fspath(source)) is not None


def dry_scorer(spec: MetricSpec, options: Mapping[str, Any]) -> Any:
    """The scorer of a metric that asks a judge, with one that answers nothing: it refuses options that cannot be.

    None for any other metric.

    Example:
        >>> dry_scorer(metric_spec("judge"), {"scale": "1:7"}).prompt.scale
        (1.0, 7.0)
    """
    if spec.sources != "judge":
        return None
    own, _ = split_options(spec.scorer_class(), options)
    return spec.scorer_class()(ScriptedJudge(), **own)


def is_address(source: str | os.PathLike[str]) -> bool:
    """Whether the source of a scorer is the address of a reward service."""
    return isinstance(source, str) and source.startswith(("http://", "https://"))


def as_scorer(metric: Any) -> Any:
    """The scorer of a function; whatever else names or is a metric is given back.

    Example:
        >>> as_scorer(lambda samples: [1.0] * len(samples)).spec.name, as_scorer("length")
        ('function', 'length')
    """
    return FunctionScorer(metric) if is_function(metric) else metric


def is_function(metric: Any) -> bool:
    """Whether a metric is a function of the user's, or an object that scores, and neither a name nor a scorer.

    Example:
        >>> is_function(len), is_function("length")
        (True, False)
    """
    if hasattr(metric, "spec"):
        return False
    return callable(metric) or hasattr(metric, "rewards") or hasattr(metric, "score")


def loaded_if_remote(metric: Any, source: str | os.PathLike[str], **options: Any) -> str | Scorer:
    """The scorer of a function, or of a metric behind a service, which alone know their facts; else what was given.

    Example:
        >>> loaded_if_remote("length", "embedded")
        'length'
    """
    if not isinstance(metric, str):
        return as_scorer(metric)
    is_known = any(map(names_function, (metric, source))) or is_address(source)
    return load_scorer(metric, source, **options) if is_known else metric


def check_loading(source: Any, *, metric: str | None = None) -> None:
    """Checks the arguments of `load_scorer` before anything is loaded. No Hub id is looked up.

    Args:
        source: as for `load_scorer`.
        metric: name of the metric; None is a judge without a metric.
    """
    if not isinstance(source, (str, os.PathLike)):
        is_judge = metric is not None and _find(metric)[0].sources == "judge"
        first, last = ("an address", "a judge of reward.judges") if is_judge else ('"embedded"', "a Hub id")
        raise ConfigError(f"source must be {first}, a folder or {last}, got {source!r:.80}")
    if names_function(source):
        return
    spec = None if metric is None else _find(metric)[0]
    kind = "judge" if spec is None else spec.sources
    if spec is not None and kind and source == "embedded" and not (spec.has_embedded or spec.needs_corpus):
        spec.scorer_class().from_pretrained(source)  # raises, and says what to give instead
    for each in split_sources(source) if kind == "judge" else [source] if kind is not None else []:
        if not is_address(each):
            check_source(each, metric="judge" if spec is None else spec.name, kind=kind)  # type: ignore[arg-type]
