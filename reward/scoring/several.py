"""Metrics: a list of one or more that score the same captions, each with its own scores, reward and errors."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import tee
from typing import Any

import numpy as np

from reward.aspect_weights import checked_weight, sum_to_one
from reward.checkpoints.fingerprint_objects import fingerprint_scorer
from reward.checkpoints.fingerprints import metric_identity
from reward.errors import CheckpointError, ConfigError, UnknownMetricError, WeightsError
from reward.metrics.base import MetricSpec, Scorer, fitted
from reward.metrics.function_places import names_function
from reward.metrics.options import check_options, metric_options, takes_option
from reward.registry import MetricSource, as_scorer, is_address, metric_spec

# Options that change no score but by rounding.
_NO_EFFECT = (
    "device",
    "cache",
    "cache_size",
    "token_budget",
    "concurrency",
    "prices",
    "api_key",
    "timeout",
    "retries",
)


class Metrics:
    """What scores a data set: metrics by name, or scorers that are loaded.

    A pickled one stands for the checkpoints as they were: once these were changed, it refuses to be loaded.

    Args:
        parts: a MetricSource, or a scorer that is loaded, for each.
        weights: {aspect: weight} of the reward, or of several metrics {metric: weight} and {metric_aspect: weight}.
        options: of `from_pretrained`.

    Attributes:
        specs: facts about each metric, as far as they are known without loading it.
        names: of the metrics; `name` is that of all.
        prefixes: what the names of each metric's columns begin with.
        rewards: names of the columns with rewards: one a metric, and `reward` of all that are weighed.
        shares: weights (M,) of several metrics in the reward of all, which sum to 1; None for no such reward.
        is_named: whether another process can load them.
        knows_aspects: whether their aspects are known: other checkpoints than those that ship may have aspects of their
            own.
        needs_corpus: whether one of them weighs words by a corpus that it has not been given yet.

    Raises:
        WeightsError: weights of some metrics only, or no positive sum.

    Example:
        >>> metrics = Metrics.of(["vela", "length"], weights={"vela": 3, "length": 1})
        >>> metrics.shares.tolist(), metrics.prefixes
        ([0.75, 0.25], ['vela_', 'length_'])
    """

    def __init__(
        self,
        parts: Sequence[MetricSource | Scorer],
        weights: Mapping[str, float] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.parts: tuple[Any, ...] = tuple(parts)
        self.weights, self.options = weights, dict(options or {})
        self.specs: list[MetricSpec] = []
        self.names: list[str] = []
        self.prefixes: list[str] = []
        self.rewards: list[str] = []
        self.is_named = self.knows_aspects = True
        self.needs_corpus = False
        for part in self.parts:
            spec, prefix = part.spec, f"{part.spec.name}_"
            if len(self.parts) == 1:
                prefix = ""
            self.specs.append(spec)
            self.names.append(spec.name)
            self.prefixes.append(prefix)
            self.rewards.append(f"{prefix}reward")
            self.needs_corpus |= spec.needs_corpus
            if not isinstance(part, MetricSource):
                self.is_named = False
            elif part.source != "embedded":
                self.knows_aspects = False
        self.name = "+".join(self.names)
        self.shares = self._shares()
        if self.shares is not None:
            self.rewards.append("reward")
        self.made_for: str | None = None  # fingerprint of the checkpoints that it must be loaded from

    @classmethod
    def of(
        cls,
        scorer: Any,
        source: str | os.PathLike[str] = "embedded",
        *,
        weights: Mapping[str, float] | None = None,
        **options: Any,
    ) -> Metrics:
        """What a user chose to score with. Only metrics behind a service are loaded, which alone know their facts.

        Args:
            scorer: name of a metric, a scorer, a function, or several of them, see `score_dataset`.
            source, options: see `load_scorer`; several metrics have their sources beside their names.
            weights: see `Metrics`; checked here as far as the aspects are known before the metrics are loaded.

        Raises:
            ConfigError: neither a name nor a scorer, a metric twice, or an option that none has.
            WeightsError: unknown names, weights of some metrics only, or no positive sum.
        """
        if isinstance(scorer, Metrics):
            return scorer
        parts: list[Any]
        if isinstance(scorer, (str, os.PathLike)):
            parts = [MetricSource.of(scorer, source, options.get("revision"))]
        elif not isinstance(scorer, (list, tuple)):
            parts = [scorer]
        elif source != "embedded" or options.get("revision") is not None:
            raise ConfigError(
                "source= and revision= are of one metric: write NAME=FOLDER or NAME=HUB_ID@REVISION for each of several"
            )
        elif not scorer:
            raise ConfigError("an empty list of metrics scores nothing: name at least one")
        else:
            parts = [MetricSource.parse(part) if isinstance(part, str) else part for part in scorer]
        # From here on each part has its facts, and what follows needs no model.
        is_loaded = not any(isinstance(part, MetricSource) for part in parts)
        metrics = cls([_with_facts(part, options) for part in parts], weights, options)
        if "cache" in options and is_loaded:
            raise ConfigError("a scorer that is loaded already has its own cache: give cache= where it is loaded")
        for name in metrics.names:
            if metrics.names.count(name) > 1:
                raise ConfigError(
                    f"metric {name!r} is there twice, and its columns would have one name: score each checkpoint into "
                    "a file of its own; the second may take the first as its data, with --prefix (prefix=)"
                )
        named = [part for part in metrics.parts if isinstance(part, MetricSource)]
        for option in options:
            if named and not any(takes_option(part.spec, option) for part in named):
                check_options(named[0].spec, [option])
        if metrics.knows_aspects:
            metrics.weigh()
        return metrics

    def __getstate__(self) -> dict[str, Any]:
        self.stay()
        return vars(self)

    def stay(self) -> str:
        """The fingerprint of what it scores with, which must not change from now on.

        Raises:
            CheckpointError: the files of a checkpoint are others than at the first call.
        """
        now = repr(self.fingerprint)
        if self.is_named and self.made_for not in (None, now):
            raise CheckpointError(
                f"the checkpoint of {self.name!r} is not the one that this BatchScorer was made for: its files are "
                "others (or what its name stands for). Make a new BatchScorer"
            )
        self.made_for = now
        return now

    def _shares(self) -> np.ndarray | None:
        if len(self.parts) == 1 or self.weights is None:
            return None
        if not isinstance(self.weights, Mapping):
            raise WeightsError(f"weights must be a dict {{aspect: number}}, got {type(self.weights).__name__}")
        weights = {}
        for name, weight in self.weights.items():
            metric = self._metric_of(name)
            if metric is not None:
                weights[metric] = weight
        if not weights:
            return None
        for name in self.names:
            if name not in weights:
                written = ",".join(f"{metric}={weight}" for metric, weight in weights.items())
                raise WeightsError(
                    f"{name} has no weight: write --weights {written},{name}=WEIGHT (weights=), or 0 for none"
                )
        return sum_to_one([checked_weight(weights[name], f"weight of metric {name!r}") for name in self.names])

    def weigh(self) -> list[np.ndarray]:
        """For each metric, weights (A,) of its aspects in its reward; its own where none of its aspects is named.

        Raises:
            WeightsError: an unknown aspect, or weights that are none.
        """
        if len(self.parts) == 1:
            return [self.specs[0].weigh(self.weights)]
        of_aspects: dict[str, dict[str, float]] = {name: {} for name in self.names}
        for name, weight in (self.weights or {}).items():
            if self._metric_of(name) is not None:
                continue
            owners = [metric for metric in self.names if str(name).startswith(f"{metric}_")]
            if not owners:
                columns = [f"{spec.name}_{aspect}" for spec in self.specs for aspect in spec.aspects]
                names = ", ".join([*self.names, *columns])
                raise WeightsError(f"weights name {name!r}, which is no metric and no aspect here; there are {names}")
            metric = max(owners, key=len)
            of_aspects[metric][name.removeprefix(f"{metric}_")] = weight
        return [spec.weigh(of_aspects[spec.name] or None) for spec in self.specs]

    def _metric_of(self, name: Any) -> str | None:
        """The metric that a weight is of as a whole; None for that of an aspect."""
        if name in self.names:
            return str(name)
        try:
            name = metric_spec(name).name
        except UnknownMetricError:
            return None
        return name if name in self.names else None

    def load(self, **options: Any) -> Metrics:
        """Loads what is given by name, with further options; each gets the options that it has.

        Raises:
            CheckpointError: it cannot be loaded, or is not what `stay` was called for.
        """
        if self.made_for is not None and self.is_named:
            self.stay()
        loaded: list[Scorer] = []
        for part in self.parts:
            if isinstance(part, MetricSource):
                options_of_part = {**self.options, **options}
                for name in [*options_of_part]:
                    if not takes_option(part.spec, name):
                        del options_of_part[name]
                part = part.load(**options_of_part)
            loaded.append(part)
        return Metrics(loaded, self.weights)

    def fit(self, corpus: Iterable[Sequence[str]]) -> Metrics:
        """See `reward.metrics.base.fitted`; the metrics are loaded."""
        # The corpus is an iterator over the rows of a file, which can be read once.
        copies = tee(corpus, len(self.parts))
        return Metrics([fitted(part, copy) for part, copy in zip(self.parts, copies, strict=True)], self.weights)

    def check_one_number(self) -> None:
        """Refuses several metrics without weights where candidates are ordered by one number."""
        if len(self.parts) > 1 and self.shares is None:
            share = f"{1 / len(self.parts):.2g}"
            raise ConfigError(
                "candidates are ordered by one number: give each metric a weight in the mean, as in --weights "
                + ",".join(f"{name}={share}" for name in self.names)
            )

    @property
    def fingerprint(self) -> Any:
        """What makes their scores: weights and code, or all that a scorer holds; of several {metric: fingerprint}."""
        if len(self.parts) == 1:
            return _fingerprint(self.parts[0])
        return {part.spec.name: _fingerprint(part) for part in self.parts}

    @property
    def identity(self) -> dict[str, Any]:
        """What is said of them in the description of a run."""
        options = {}
        for name, value in self.options.items():
            if value is not None and name not in _NO_EFFECT:  # the command line names options that nobody chose
                options[name] = str(value)
        weights = None
        if self.weights is not None:
            weights = {name: float(weight) for name, weight in self.weights.items()}
        return {"metric": self.name, "source": self.fingerprint, "options": options, "weights": weights}

    @property
    def checkpoints(self) -> dict[str, str | None]:
        """{metric: its checkpoint as it was given}; None for a scorer object."""
        checkpoints: dict[str, str | None] = {}
        for part in self.parts:
            checkpoints[part.spec.name] = part.checkpoint if isinstance(part, MetricSource) else None
        return checkpoints


def _with_facts(part: MetricSource | Scorer, options: Mapping[str, Any]) -> MetricSource | Scorer:
    """A metric by name with those of the options that are settings of its own, or a scorer whose facts are known."""
    if isinstance(part, MetricSource):
        if names_function(part.name) or names_function(part.source) or is_address(part.source):
            return part.load(**options)  # they alone know their facts
        settings = {name: options[name] for name in metric_options(part.spec) if name in options}
        return replace(part, options=tuple({**settings, **dict(part.options)}.items()))
    part = as_scorer(part)
    if not isinstance(getattr(part, "spec", None), MetricSpec):
        raise ConfigError(
            f"scorer must be the name of a metric, a scorer, a function, or a list of them, got {type(part).__name__}"
        )
    return part


def _fingerprint(part: MetricSource | Scorer) -> str:
    if not isinstance(part, MetricSource):
        return fingerprint_scorer(part)
    options = {name: value for name, value in part.options if name not in _NO_EFFECT}
    facts = metric_identity(part.spec, part.source, revision=part.revision, options=options)
    text = f"{facts['source']} code {facts['code']}"
    return f"{text} {facts['options']}" if options else text
