"""Metrics: a list of one or more that score the same captions, each with its own scores, reward and errors."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import tee
from typing import Any, cast

import numpy as np

from reward.aspect_weights import checked_weight, sum_to_one
from reward.errors import ConfigError, UnknownMetricError, WeightsError, nearest
from reward.fingerprint_objects import fingerprint_scorer
from reward.fingerprints import metric_identity, source_stamp
from reward.metrics.base import MetricSpec, Scorer, fitted
from reward.metrics.options import check_options, metric_options, takes_option
from reward.registry import MetricSource, as_scorer, loaded_if_remote, metric_spec

__all__ = ["Metrics", "options_of", "reads_images"]

_NO_EFFECT = ("device", "cache", "cache_size")  # options that change no scores but by rounding
_JUDGED_ROWS, _ROWS = 64, 8192  # of a part: what a kill can cost


class Metrics:
    """What scores a data set: metrics by name, or scorers that are loaded.

    Args:
        parts: a MetricSource, or a scorer that is loaded, for each.
        shares: weights of the metrics in the reward of all; None for no such reward.

    Raises:
        ConfigError: a metric is there twice.
        WeightsError: a weight that is not a finite number, or a sum that is not positive.

    Example:
        >>> metrics = Metrics.of(["vela", "length"], weights={"vela": 3, "length": 1})
        >>> metrics.shares, metrics.columns("aspects")
        ((0.75, 0.25), ['vela_descriptiveness', 'vela_relevance', 'vela_fluency', 'length_length'])
    """

    def __init__(self, parts: Sequence[MetricSource | Scorer], shares: Sequence[float] | None = None) -> None:
        self.parts = tuple(parts)
        self.shares: tuple[float, ...] | None = None
        names = [spec.name for spec in self.specs]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(
                    f"metric {name!r} is there twice, and its columns would have one name: score each checkpoint into "
                    f"a file of its own; the second may take the first as its data, with --prefix (prefix=)"
                )
        if shares is not None:
            checked = [
                checked_weight(share, f"weight of metric {name!r}") for name, share in zip(names, shares, strict=True)
            ]
            self.shares = tuple(sum_to_one(checked).tolist())

    def __repr__(self) -> str:
        return f"Metrics({list(self.parts)}, {self.shares})"

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
            weights: those of several metrics, {metric: weight}, make the reward of all; others are left to `weigh`.

        Raises:
            ConfigError: neither a name nor a scorer, or a metric twice.
            WeightsError: weights of some metrics only.
        """
        if isinstance(scorer, Metrics):
            return scorer
        if not isinstance(scorer, (list, tuple)):
            is_text = isinstance(scorer, (str, os.PathLike))
            one: Any = MetricSource.of(scorer, source, options.get("revision")) if is_text else scorer
            return cls([_known(one, options)])
        if source != "embedded" or options.get("revision") is not None:
            raise ConfigError(
                "source= and revision= are of one metric: write NAME=FOLDER or NAME=HUB_ID@REVISION for each of several"
            )
        known = [_known(MetricSource.parse(each) if isinstance(each, str) else each, options) for each in scorer]
        if not known:
            raise ConfigError("an empty list of metrics scores nothing: name at least one")
        names = [part.spec.name for part in known]
        if len(known) == 1 or not isinstance(weights, Mapping):
            return cls(known)
        given = {_one_of(names, name): weight for name, weight in weights.items() if _one_of(names, name)}
        for name in weights:
            if not _one_of(names, name) and not str(name).startswith(tuple(f"{each}_" for each in names)):
                raise cls(known)._unknown(name)
        if given and (bare := [name for name in names if name not in given]):
            told = ",".join(f"{name}={weight}" for name, weight in given.items())
            raise WeightsError(
                f"{bare[0]} has no weight: write --weights {told},{bare[0]}=WEIGHT (weights=), or 0 for none"
            )
        return cls(known, [given[name] for name in names] if given else None)

    @property
    def specs(self) -> list[MetricSpec]:
        """Facts about each, as far as they are known without loading it."""
        return [part.spec for part in self.parts]

    @property
    def name(self) -> str:
        return "+".join(spec.name for spec in self.specs)

    @property
    def scorers(self) -> list[Scorer]:
        """Each, once all are loaded."""
        return cast("list[Scorer]", list(self.parts))

    @property
    def is_named(self) -> bool:
        """Whether another process can load them."""
        return all(isinstance(part, MetricSource) for part in self.parts)

    @property
    def knows_drawings_only(self) -> bool:
        """Whether the weights of one are the small ones that ship with the package."""
        return any(isinstance(part, MetricSource) and part.knows_drawings_only for part in self.parts)

    @property
    def knows_aspects(self) -> bool:
        """Whether their aspects are known: other checkpoints than those that ship may have aspects of their own."""
        return all(not isinstance(part, MetricSource) or part.source == "embedded" for part in self.parts)

    @property
    def needs_corpus(self) -> bool:
        return any(spec.needs_corpus for spec in self.specs)

    @property
    def part_rows(self) -> int:
        """Rows of a part of a data file: fewer where a judge is asked, which takes long or has to be paid."""
        return _JUDGED_ROWS if any(spec.sources == "judge" for spec in self.specs) else _ROWS

    def column(self, spec: MetricSpec, name: str) -> str:
        """What a column of one of the metrics is called."""
        return name if len(self.parts) == 1 else f"{spec.name}_{name}"

    def columns(self, kind: str) -> list[str]:
        """Names of all columns of a kind, `"aspects"` or `"texts"`."""
        return [self.column(spec, name) for spec in self.specs for name in getattr(spec, kind)]

    @property
    def rewards(self) -> list[str]:
        """Names of the rewards: of each metric, and of all if they have weights."""
        if len(self.parts) == 1:
            return ["reward"]
        return [*(f"{spec.name}_reward" for spec in self.specs), *(["reward"] if self.shares else [])]

    @property
    def numbers(self) -> list[str]:
        """Names of all columns of scores and rewards."""
        return [*self.columns("aspects"), *self.rewards]

    def weigh(self, weights: Mapping[str, float] | None) -> list[np.ndarray]:
        """For each metric, weights (A,) of its aspects in its reward.

        Args:
            weights: {aspect: weight}, of several metrics as `<metric>_<aspect>`. None takes a metric's own, as for one
                of which no aspect is named.

        Raises:
            WeightsError: an unknown aspect, or weights that are none.
        """
        if len(self.parts) == 1:
            return [self.specs[0].weigh(weights)]
        owners = {f"{spec.name}_{aspect}": (spec.name, aspect) for spec in self.specs for aspect in spec.aspects}
        aliases = {f"{s.name}_{short}": f"{s.name}_{aspect}" for s in self.specs for short, aspect in s.aliases.items()}
        given: dict[str, dict[str, float]] = {}
        if weights is not None and not isinstance(weights, Mapping):
            raise WeightsError(f"weights must be a dict {{aspect: number}}, got {type(weights).__name__}")
        for name, weight in (weights or {}).items():
            aspect = aliases.get(name, name)
            if aspect not in owners:
                if _one_of([spec.name for spec in self.specs], name):  # the weight of a whole, see `of`
                    continue
                raise self._unknown(name)
            metric, own = owners[aspect]
            if own in given.setdefault(metric, {}):
                raise WeightsError(f"weights give aspect {aspect!r} twice")
            given[metric][own] = weight
        return [spec.weigh(given.get(spec.name)) for spec in self.specs]

    def _unknown(self, name: Any) -> WeightsError:
        """What is said of a weight of nothing."""
        metrics = [spec.name for spec in self.specs]
        aliases = [f"{spec.name}_{short}" for spec in self.specs for short in spec.aliases]
        close = ", ".join(nearest(str(name), [*metrics, *self.columns("aspects"), *aliases]))
        return WeightsError(f"weights name {name!r}, which is no metric and no aspect here; nearest: {close}")

    def load(self, **options: Any) -> Metrics:
        """Loads what is given by name; each of several gets the options of a cache only if it has them."""
        if len(self.parts) == 1:
            return Metrics([_loaded(self.parts[0], options)])
        loaded = []
        for part in self.parts:
            taken = {name: value for name, value in options.items() if takes_option(part.spec, name)}
            loaded.append(_loaded(part, taken))
        return Metrics(loaded, self.shares)

    def fit(self, corpus: Iterable[Sequence[str]]) -> Metrics:
        """See `reward.metrics.base.fitted`; the metrics are loaded."""
        copies = tee(corpus, len(self.parts))
        return Metrics([fitted(part, copy) for part, copy in zip(self.scorers, copies, strict=True)], self.shares)

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Refuses options that none of the metrics has.

        Raises:
            ConfigError: there is one, or a cache for scorers that are loaded already.
        """
        named = [part for part in self.parts if isinstance(part, MetricSource)]
        if not named and "cache" in options:
            raise ConfigError("a scorer that is loaded already has its own cache: give cache= where it is loaded")
        for name in options:
            if named and not any(takes_option(part.spec, name) for part in named):
                check_options(named[0].spec, [name])

    def check_one_number(self) -> None:
        """Refuses several metrics without weights where candidates are ordered by one number.

        Raises:
            ConfigError: so it is.
        """
        if "reward" not in self.rewards:
            share = f"{1 / len(self.parts):.2g}"
            raise ConfigError(
                "candidates are ordered by one number: give each metric a weight in the mean, as in --weights "
                + ",".join(f"{spec.name}={share}" for spec in self.specs)
            )

    @property
    def fingerprint(self) -> Any:
        """What makes their scores: weights and code, or all that a scorer holds; of several {metric: fingerprint}."""
        each = {part.spec.name: _fingerprint(part) for part in self.parts}
        return each if len(each) > 1 else next(iter(each.values()))

    @property
    def identity(self) -> dict[str, Any]:
        """What is said of them in the description of a run."""
        shares = {} if self.shares is None else {"shares": list(self.shares)}
        return {"metric": self.name, "source": self.fingerprint, **shares}

    @property
    def stamp(self) -> str:
        """Changes when a file of a checkpoint on this disk does; see `source_stamp`."""
        return ";".join(source_stamp(part.source) for part in self.parts if isinstance(part, MetricSource))

    @property
    def checkpoints(self) -> dict[str, str | None]:
        """{metric: its checkpoint as it was given}; None for a scorer object."""
        return {part.spec.name: part.checkpoint if isinstance(part, MetricSource) else None for part in self.parts}


def options_of(options: Mapping[str, Any]) -> dict[str, str]:
    """The options of loading that change scores, for the description of a run."""
    return {name: str(value) for name, value in options.items() if name not in _NO_EFFECT}


def reads_images(scorer: Scorer) -> bool:
    """Whether a metric looks at images; others score a row whose image is not there."""
    return bool(getattr(scorer, "reads_images", scorer.spec.needs_image))


def _one_of(metrics: Sequence[str], name: Any) -> str:
    """The metric that a weight is of as a whole; empty for that of an aspect."""
    with suppress(UnknownMetricError):
        name = name if name in metrics else metric_spec(name).name
    return name if name in metrics else ""


def _known(part: MetricSource | Scorer, options: Mapping[str, Any]) -> MetricSource | Scorer:
    if isinstance(part, MetricSource):
        asked = loaded_if_remote(part.name, part.source, **{**options, **dict(part.options)})
        if not isinstance(asked, str):
            return asked
        own = {name: options[name] for name in metric_options(part.spec) if name in options}
        return replace(part, options=tuple({**own, **dict(part.options)}.items()))
    part = as_scorer(part)
    if not isinstance(getattr(part, "spec", None), MetricSpec):
        raise ConfigError(
            f"scorer must be the name of a metric, a scorer, a function, or a list of them, got {type(part).__name__}"
        )
    return part


def _loaded(part: MetricSource | Scorer, options: Mapping[str, Any]) -> Scorer:
    return part.load(**options) if isinstance(part, MetricSource) else part


def _fingerprint(part: MetricSource | Scorer) -> str:
    if isinstance(part, MetricSource):
        own = dict(part.options)
        facts = metric_identity(part.spec, part.source, revision=part.revision, options=own)
        return f"{facts['source']} code {facts['code']}" + (f" {facts['options']}" if own else "")
    return fingerprint_scorer(part)
