"""Finds metrics by name, or by what a checkpoint says of itself, and loads their scorers."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from reward.checkpoints.fingerprints import split_sources
from reward.checkpoints.folders import CheckpointKind, check_checkpoint, check_revision
from reward.errors import ConfigError, UnknownMetricError, nearest
from reward.metrics.base import MetricSpec, Scorer, installed_specs, own_spec
from reward.metrics.function_places import load_function, names_function
from reward.metrics.options import check_options, dry_scorer
from reward.remote import POOLED, REMOTE

if TYPE_CHECKING:
    from reward.judges.base import Usage

COLUMN = "column:"  # prefix of a score column where a metric may be named
_ALIASES = {"bleu": "bleu4", "rouge": "rougel"}  # what papers mean by these names


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
            return cls(text.removeprefix(COLUMN), is_column=True)
        # A path may hold an equals sign, and a Hub id a slash. So functions come first, then what must be a checkpoint,
        # since it has a slash or is a folder here whose name is no metric's, and last what must be a name.
        name, equals, checkpoint = text.partition("=")
        if name.isidentifier() and (names_function(checkpoint) or is_address(checkpoint)):
            return cls.of(name, checkpoint)
        if names_function(text) or names_function(name):
            return cls(load_function(text).spec.name, text)
        is_checkpoint = "/" in name or (not equals and _installed(name) is None and os.path.exists(name))
        if is_checkpoint:
            checkpoint, revision = _split_revision(text)
            return cls(metric_of(checkpoint, revision), checkpoint, revision)
        if not name or (equals and not checkpoint):
            raise ConfigError(f"{text!r} is not a metric: write NAME, or NAME=CHECKPOINT with a folder or a Hub id")
        checkpoint, revision = _split_revision(checkpoint)
        return cls(metric_spec(name).name, checkpoint or "embedded", revision)

    @classmethod
    def of(
        cls, metric: str | os.PathLike[str], source: str | os.PathLike[str] = "embedded", revision: str | None = None
    ) -> MetricSource:
        """What `load_scorer` is given: all in one text, see `parse`, or a name with its checkpoint beside it."""
        if names_function(source):
            return cls(os.fspath(metric), source)
        if is_address(source) and _installed(str(metric)) is None:  # only the service knows it
            return cls("remote", f"{source}#{metric}")
        if source != "embedded":
            return cls(metric_spec(metric).name, source, revision)  # type: ignore[arg-type]
        parsed = cls.parse(metric)
        if revision is not None:
            parsed = replace(parsed, revision=revision)
        return parsed

    @property
    def label(self) -> str:
        """As on the command line."""
        if self.is_column:
            return COLUMN + self.name
        if self.source == "embedded":
            label = self.name
        elif self.checkpoint.endswith(f":{self.name}"):  # a function of that name
            label = self.checkpoint
        else:
            label = f"{self.name}={self.checkpoint}"
        if self.options:
            label += f" ({', '.join(f'{name}={value}' for name, value in self.options)})"
        return label

    @property
    def checkpoint(self) -> str:
        """The checkpoint with its revision."""
        checkpoint = os.fspath(self.source)
        return f"{checkpoint}@{self.revision}" if self.revision else checkpoint

    @property
    def knows_drawings_only(self) -> bool:
        """Whether its weights are the small ones that ship with the package."""
        return self.source == "embedded" and self.spec.has_embedded and bool(self.spec.checkpoints)

    @property
    def loads(self) -> MetricSpec:
        """Facts of the scorer that `load` gives: of a metric behind a reward service those of `remote`."""
        return _served_spec(self.spec, self.source)

    @cached_property
    def spec(self) -> MetricSpec:
        """Facts about the metric, as far as they are known without loading it."""
        if names_function(self.source):
            return load_function(self.checkpoint, self.name).spec
        spec = metric_spec(self.name)
        dry = dry_scorer(spec, dict(self.options))
        if dry is not None:  # a judge's options change its facts
            spec = replace(dry.spec, name=spec.name)
        return spec

    def load(self, **options: Any) -> Scorer:
        """Loads the scorer, see `load_scorer`."""
        if self.revision is not None:
            options["revision"] = self.revision
        scorer = load_scorer(self.name, self.source, **options | dict(self.options))
        judges = getattr(getattr(scorer, "scorer", scorer), "judges", ())
        self.usages.extend(judge.usage for judge in judges)
        return scorer


def _split_revision(text: str) -> tuple[str, str | None]:
    if "@" not in text or "://" in text or os.path.exists(text):
        return text, None
    checkpoint, _, revision = text.partition("@")
    return checkpoint, revision


def metric_of(checkpoint: str | os.PathLike[str], revision: str | None = None) -> str:
    """Name of the metric of a checkpoint, see `metric_of_checkpoint`; of a service with one metric `"remote"`."""
    if is_address(checkpoint):
        return "remote"
    from reward.metrics.checkpoint_metric import metric_of_checkpoint

    return metric_spec(metric_of_checkpoint(checkpoint, revision)).name


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
            Capitals, dashes and underscores do not matter: `"BLEU-4"` is `"bleu4"`, and so is `"bleu"`.

    Raises:
        UnknownMetricError: no such metric; the message names the nearest.
    """
    spec, is_mean = _find(name)
    if is_mean:
        from reward.metrics.sentence_mean import sentence_mean_spec

        return sentence_mean_spec(spec)
    return spec


def _find(name: str) -> tuple[MetricSpec, bool]:
    """The metric of a name, and whether the name means the mean over sentences."""
    if not isinstance(name, str):
        raise UnknownMetricError(f"a metric is named by a text such as 'vela', got {name!r:.80}")
    metric = _installed(name)
    if metric is None:
        close = nearest(_letters(name), installed_specs())
        names = f"Nearest: {', '.join(close)}" if close else f"The metrics are {', '.join(installed_specs())}"
        hint = "a checkpoint is written NAME=FOLDER or NAME=HUB_ID, a function my_metric.py:length"
        before, _, after = name.partition(":")
        prefix = _installed(before)
        if prefix is not None:
            address = "http://localhost:8000/v1#" if prefix[0].sources == "judge" else ""
            hint = f"a checkpoint is written {before}={address}{after}"
        module, _, function = name.rpartition(".")
        if names_function(f"{module}:{function}"):
            hint = f"a function is written {module}:{function}"
        if "," in name:
            hint = f"of several write -m {name.replace(',', ' -m ')}"
        raise UnknownMetricError(f"no metric is named {name!r}. {names}; {hint}. `capreward metrics` lists all")
    return metric


def _installed(name: str) -> tuple[MetricSpec, bool] | None:
    """The metric of a name, and whether the name means the mean over sentences; None if none is installed."""
    spec = own_spec(name)
    if spec is not None:
        return spec, False
    specs = {_letters(spec.name): spec for spec in (*installed_specs().values(), REMOTE)}
    letters = _letters(name)
    stem = letters.removesuffix("avg")
    for text, is_mean in ((letters, False), (stem, True)):
        spec = specs.get(_ALIASES.get(text, text))
        if spec is not None:
            return spec, is_mean
    return None


def _letters(name: str) -> str:
    """A name without what people write differently: capitals, blanks, dashes and underscores."""
    return "".join(name.lower().replace("-", " ").replace("_", " ").split())


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
            service that serves the metric (`"http://..."`), see `reward.RemoteReward`. Of a metric that asks a judge,
            of `"crossencoder"` and of `"vlmreward"` also the address of a server of models such as vLLM's, ending in
            /v1 and perhaps #MODEL; or a judge.
        options: passed to the scorer's `from_pretrained` (revision, device, dtype, and see `reward.metrics.options`).

    Raises:
        UnknownMetricError: no such metric.
        ConfigError: see `check_loading` and `reward.metrics.options.check_options`.
        CheckpointError: the checkpoint is missing, incomplete or of another metric, or see `check_revision`.

    Example:
        >>> load_scorer("length", device="cpu").spec.aspects
        ('length',)
    """
    # A function is loaded from no checkpoint to no device.
    settings = {name: value for name, value in options.items() if name not in ("revision", "device", "dtype")}
    if is_function(name):
        return as_scorer(name, **settings)
    source = as_source(source)
    if isinstance(source, list):  # judges that are loaded
        spec, is_mean = _find(name)  # type: ignore[arg-type]
        scorer = spec.scorer_class()(source, **options)
        return _over_sentences(scorer) if is_mean else scorer
    metric = MetricSource.of(name, source, options.get("revision"))  # type: ignore[arg-type]
    source = metric.source
    if names_function(source):
        return load_function(metric.checkpoint, metric.name, **settings)
    if metric.revision is not None:
        options["revision"] = metric.revision
    spec, is_mean = _find(metric.name)
    check_loading(source, metric=metric.name)
    check_revision(source, options.get("revision"))
    served_spec = _served_spec(spec, source)
    if served_spec is REMOTE and spec is not REMOTE:
        address, _, served = os.fspath(source).partition("#")
        if served not in ("", spec.name):
            raise ConfigError(f"source {source!r} names the metric {served!r}, but {spec.name!r} was asked for")
        source = f"{address}#{spec.name}"
    spec = served_spec
    check_options(spec, options)
    scorer = spec.scorer_class().from_pretrained(source, **options)
    return _over_sentences(scorer) if is_mean else scorer


def _over_sentences(scorer: Scorer) -> Scorer:
    from reward.metrics.sentence_mean import SentenceMean

    return SentenceMean(scorer)


def as_source(source: Any) -> Any:
    """What `source=` was given, as text; several folders, ids and endpoints with commas; judges as a list.

    Example:
        >>> as_source(["name/one", "name/two"])
        'name/one,name/two'
    """
    if isinstance(source, (str, os.PathLike)):
        return source
    from reward.judges.base import Judge

    if isinstance(source, Judge):
        return [source]
    if not isinstance(source, (list, tuple)):
        return source
    if source and all(isinstance(part, Judge) for part in source):
        return list(source)
    if all(isinstance(part, (str, os.PathLike)) for part in source):
        return ",".join(map(os.fspath, source))
    return source


def _served_spec(spec: MetricSpec, source: Any) -> MetricSpec:
    """The facts of what is loaded: of an address those of `remote`, unless it is that of a server of models."""
    if not is_address(source):
        return spec
    if re.search(r"/v1/?(#|,|$)", source) is None:
        return REMOTE
    name = spec.name.removesuffix("_avg")
    if name in POOLED:
        return replace(spec, scorer=POOLED[name])
    return spec if spec.sources == "judge" else REMOTE


def is_address(checkpoint: str | os.PathLike[str]) -> bool:
    """Whether in place of a checkpoint stands the endpoint of a server."""
    return isinstance(checkpoint, str) and checkpoint.startswith(("http://", "https://"))


def as_scorer(metric: Any, **options: Any) -> Any:
    """The scorer of a function, with further arguments of it; whatever else names or is a metric is given back.

    Example:
        >>> as_scorer(lambda samples: [1.0] * len(samples)).spec.name, as_scorer("length")
        ('function', 'length')
    """
    if not is_function(metric):
        return metric
    from reward.metrics.function import FunctionScorer

    return FunctionScorer(metric, **options)


def is_function(metric: Any) -> bool:
    """Whether a metric is a function of the user's, or an object that scores, and neither a name nor a scorer."""
    scores = callable(metric) or hasattr(metric, "rewards") or hasattr(metric, "score")
    return scores and not hasattr(metric, "spec")


def check_loading(source: Any, *, metric: str | None = None) -> None:
    """Checks the arguments of `load_scorer` before anything is loaded. No Hub id is looked up.

    Args:
        source: as for `load_scorer`.
        metric: name of the metric; None is a judge without a metric.
    """
    if not isinstance(source, (str, os.PathLike)):
        forms = '"embedded", a folder or a Hub id'
        if metric is not None and _find(metric)[0].sources == "judge":
            forms = "an address, a folder or a judge of reward.judges"
        raise ConfigError(f"source must be {forms}, got {source!r:.80}")
    if names_function(source):
        return
    kind: CheckpointKind | None = "judge"
    if metric is not None:
        spec, _ = _find(metric)
        metric, kind = spec.name, spec.sources
        if kind is not None and source == "embedded" and not (spec.has_embedded or spec.needs_corpus):
            spec.scorer_class().from_pretrained(source)  # raises, and says what to give instead
    if kind is None:
        return
    for part in split_sources(source) if kind == "judge" else [source]:
        if not is_address(part):
            check_checkpoint(part, metric=metric or "judge", kind=kind)
