"""Several metrics that score the same captions side by side: each keeps its own scores, reward and errors."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import tee
from typing import Any, TypeAlias

import numpy as np

from reward.caches import CacheSection
from reward.errors import ConfigError, UnknownMetricError, WeightsError, nearest
from reward.fingerprint_objects import fingerprint_scorer
from reward.fingerprints import metric_identity, source_stamp
from reward.metrics.base import MetricSpec, Scorer, fitted
from reward.metrics.options import check_options as check_own
from reward.metrics.options import metric_options, takes_option
from reward.registry import MetricSource, as_scorer, loaded_if_remote, metric_spec
from reward.weights import checked_weight, sum_to_one

__all__ = [
    "Scoring",
    "Several",
    "SeveralSpec",
    "check_one_number",
    "check_options",
    "fingerprint_of",
    "is_named",
    "knows_aspects",
    "knows_drawings_only",
    "load",
    "options_of",
    "reads_images",
    "scoring_of",
    "shares_of",
    "sources_of",
    "stamp_of",
    "with_aspects",
]


_NO_EFFECT = ("device", "cache", "cache_size")  # options that change no scores but by rounding


@dataclass(frozen=True)
class SeveralSpec(MetricSpec):
    """Facts about several metrics: the aspects of all, as `<metric>_<aspect>`.

    Args:
        metrics: the facts of each.
        shares: of the metrics in the reward of all, which sum to 1; None if there is no such reward.
    """

    metrics: tuple[MetricSpec, ...] = ()
    shares: tuple[float, ...] | None = None

    @classmethod
    def of(cls, metrics: Sequence[MetricSpec], shares: Sequence[float] | None) -> SeveralSpec:
        """The facts of all together."""
        return cls(
            "+".join(spec.name for spec in metrics),
            scorer="",
            aspects=tuple(f"{spec.name}_{aspect}" for spec in metrics for aspect in spec.aspects),
            aliases={f"{m.name}_{short}": f"{m.name}_{aspect}" for m in metrics for short, aspect in m.aliases.items()},
            needs_image=any(spec.needs_image for spec in metrics),
            needs_references=any(spec.needs_references for spec in metrics),
            needs_corpus=any(spec.needs_corpus for spec in metrics),
            texts=tuple(f"{spec.name}_{text}" for spec in metrics for text in spec.texts),
            columns=tuple(dict.fromkeys(role for spec in metrics for role in spec.columns)),
            reads_questions=any(spec.reads_questions for spec in metrics),
            metrics=tuple(metrics),
            shares=None if shares is None else tuple(shares),
        )

    @property
    def parts(self) -> tuple[MetricSpec, ...]:
        return self.metrics

    @property
    def reward_names(self) -> tuple[str, ...]:
        return (*(f"{spec.name}_reward" for spec in self.metrics), *(() if self.shares is None else ("reward",)))

    def rewards(self, weights: Mapping[str, float] | None = None) -> dict[str, np.ndarray]:
        """See `MetricSpec.rewards`; `weights` name aspects as `<metric>_<aspect>`."""
        given = self.split_weights(weights)
        vectors, start = {}, 0
        for spec in self.metrics:
            vector = np.zeros(len(self.aspects))
            stop = start + len(spec.aspects)
            vector[start:stop] = spec.weigh(given.get(spec.name))
            vectors[f"{spec.name}_reward"], start = vector, stop
        if self.shares is not None:
            vectors["reward"] = np.array(self.shares) @ np.array(list(vectors.values()))
        return vectors

    def split_weights(self, weights: Mapping[str, float] | None) -> dict[str, dict[str, float]]:
        """{metric: {its aspect: weight}} of the metrics whose aspects `weights` name, as `<metric>_<aspect>`.

        Weights of metrics as a whole are in `shares`.

        Raises:
            WeightsError: an unknown aspect.
        """
        given: dict[str, dict[str, float]] = {}
        owners = {f"{spec.name}_{aspect}": (spec.name, aspect) for spec in self.metrics for aspect in spec.aspects}
        metrics = [spec.name for spec in self.metrics]
        for name, weight in (weights or {}).items():
            aspect = self.aliases.get(name, name)
            if aspect not in owners:
                if _one_of(metrics, name):
                    continue
                raise _unknown(name, self)
            metric, own = owners[aspect]
            if own in given.setdefault(metric, {}):
                raise WeightsError(f"weights give aspect {aspect!r} twice")
            given[metric][own] = weight
        return given


class Several:
    """Several metrics, by name or loaded.

    Args:
        parts: a MetricSource, or a scorer that is loaded, for each.
        shares: weights of the metrics in the reward of all; None for no such reward.

    Raises:
        ConfigError: a metric is there twice.
        WeightsError: a weight that is not a finite number, or a sum that is not positive.
    """

    def __init__(self, parts: Sequence[MetricSource | Scorer], shares: Sequence[float] | None = None) -> None:
        self.parts = tuple(parts)
        self.shares = None
        names = [part.spec.name for part in parts]
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
        return f"Several({list(self.parts)}, {self.shares})"

    @property
    def spec(self) -> SeveralSpec:
        """Facts about the metrics, as far as they are known."""
        return SeveralSpec.of([part.spec for part in self.parts], self.shares)

    @property
    def caches(self) -> dict[str, Sections]:
        """What the metrics keep on disk; see `CaptionScorer.caches`."""
        readers = sum(reads_images(part) for part in self.parts)
        found: dict[str, list[CacheSection]] = {}
        for part in self.parts:
            for kind, section in getattr(part, "caches", {}).items():
                found.setdefault(kind, []).append(section)
        return {kind: Sections(sections, len(sections) >= readers) for kind, sections in found.items()}

    def fit(self, corpus: Iterable[Sequence[str]]) -> Several:
        """See `reward.metrics.base.fitted`."""
        copies = tee(corpus, len(self.parts))
        return Several([fitted(part, copy) for part, copy in zip(self.parts, copies, strict=True)], self.shares)


class Sections:
    """What several metrics keep of one kind: an image is known if all that read images know it."""

    def __init__(self, sections: Sequence[CacheSection], are_complete: bool) -> None:
        self._sections, self._are_complete = sections, are_complete

    def __contains__(self, key: str) -> bool:
        return self._are_complete and all(key in section for section in self._sections)

    @property
    def hits(self) -> int:
        return sum(section.hits for section in self._sections)

    @property
    def misses(self) -> int:
        return sum(section.misses for section in self._sections)


Scoring: TypeAlias = "MetricSource | Scorer | Several"  # what scores a data set


def scoring_of(
    scorer: Any,
    source: str | os.PathLike[str] = "embedded",
    *,
    weights: Mapping[str, float] | None = None,
    **options: Any,
) -> Scoring:
    """What a user chose to score with. Nothing is loaded but metrics behind a service, which alone knows their facts.

    Args:
        scorer: name of a metric, a scorer, a function, or several of them, see `score_dataset`.
        source, options: see `load_scorer`; several metrics have their sources beside their names.
        weights: those of several metrics, {metric: weight}, make the reward of all; others are left to the specs.

    Raises:
        ConfigError: neither a name nor a scorer, or a metric twice.
        WeightsError: weights of some metrics only.

    Example:
        >>> scoring_of(["vela", "length"], weights={"vela": 3, "length": 1}).shares
        (0.75, 0.25)
    """
    if not isinstance(scorer, (list, tuple)):
        is_text = isinstance(scorer, (str, os.PathLike))
        one: Any = MetricSource.of(scorer, source, options.get("revision")) if is_text else scorer
        return _known(one, options)
    if source != "embedded" or options.get("revision") is not None:
        raise ConfigError(
            "source= and revision= are of one metric: write NAME=FOLDER or NAME=HUB_ID@REVISION for each of several"
        )
    known = [_known(MetricSource.parse(each) if isinstance(each, str) else each, options) for each in scorer]
    if not known:
        raise ConfigError("an empty list of metrics scores nothing: name at least one")
    if len(known) == 1:
        return known[0]
    names = [part.spec.name for part in known]
    given = {_one_of(names, name): weight for name, weight in (weights or {}).items() if _one_of(names, name)}
    strange = [
        name
        for name in weights or ()
        if not _one_of(names, name) and not str(name).startswith(tuple(f"{each}_" for each in names))
    ]
    if strange:
        raise _unknown(strange[0], Several(known).spec)
    if given and (bare := [name for name in names if name not in given]):
        told = ",".join(f"{name}={weight}" for name, weight in given.items())
        raise WeightsError(
            f"{bare[0]} has no weight: write --weights {told},{bare[0]}=WEIGHT (weights=), or 0 for none"
        )
    return Several(known, [given[name] for name in names] if given else None)


def _unknown(name: Any, spec: SeveralSpec) -> WeightsError:
    close = nearest(str(name), [*(part.name for part in spec.metrics), *spec.aspects, *spec.aliases])
    return WeightsError(f"weights name {name!r}, which is no metric and no aspect here; nearest: {', '.join(close)}")


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


def load(scoring: Scoring, **options: Any) -> Scorer | Several:
    """Loads what is given by name; each of several metrics gets the options of a cache only if it has them."""
    if isinstance(scoring, Several):
        parts: list[Any] = []
        for part in scoring.parts:
            taken = {name: value for name, value in options.items() if takes_option(part.spec, name)}
            parts.append(load(part, **taken))
        return Several(parts, scoring.shares)
    return scoring.load(**options) if isinstance(scoring, MetricSource) else scoring


def reads_images(scoring: Scoring) -> bool:
    """Whether a metric, or one of several, looks at images; others score a row whose image is not there."""
    return any(bool(getattr(part, "reads_images", part.spec.needs_image)) for part in _parts(scoring))


def is_named(scoring: Scoring) -> bool:
    """Whether another process can load it."""
    return all(isinstance(part, MetricSource) for part in _parts(scoring))


def knows_drawings_only(scoring: Scoring) -> bool:
    """Whether the weights of a metric, or of one of several, are the small ones that ship with the package."""
    return any(isinstance(part, MetricSource) and part.knows_drawings_only for part in _parts(scoring))


def knows_aspects(scoring: Scoring) -> bool:
    """Whether its aspects are known: other checkpoints than those that ship may have aspects of their own."""
    return all(not isinstance(part, MetricSource) or part.source == "embedded" for part in _parts(scoring))


def check_options(scoring: Scoring, options: Mapping[str, Any]) -> None:
    """Refuses options that none of the metrics has.

    Raises:
        ConfigError: there is one, or a cache for scorers that are loaded already.
    """
    named = [part for part in _parts(scoring) if isinstance(part, MetricSource)]
    if not named and "cache" in options:
        raise ConfigError("a scorer that is loaded already has its own cache: give cache= where it is loaded")
    for name in options:
        if named and not any(takes_option(part.spec, name) for part in named):
            check_own(named[0].spec, [name])


def fingerprint_of(scoring: Scoring) -> Any:
    """What makes its scores: weights and code, or all that a scorer holds; of several {metric: fingerprint}."""
    if isinstance(scoring, Several):
        return {part.spec.name: fingerprint_of(part) for part in scoring.parts}
    if isinstance(scoring, MetricSource):
        own = dict(scoring.options)
        facts = metric_identity(scoring.spec, scoring.source, revision=scoring.revision, options=own)
        return f"{facts['source']} code {facts['code']}" + (f" {facts['options']}" if own else "")
    return fingerprint_scorer(scoring)


def options_of(options: Mapping[str, Any]) -> dict[str, str]:
    """The options of loading that change scores, for the description of a run."""
    return {name: str(value) for name, value in options.items() if name not in _NO_EFFECT}


def stamp_of(scoring: Scoring) -> str:
    """Changes when a file of a checkpoint on this disk does; see `source_stamp`."""
    return ";".join(source_stamp(part.source) for part in _parts(scoring) if isinstance(part, MetricSource))


def shares_of(scoring: Scoring) -> dict[str, Any]:
    """{"shares": weights of the metrics} where several have weights, for the description of a run."""
    return {"shares": list(scoring.shares)} if isinstance(scoring, Several) and scoring.shares is not None else {}


def sources_of(scoring: Scoring) -> dict[str, str | None]:
    """{metric: its checkpoint as it was given}; None for a scorer object."""
    return {part.spec.name: part.checkpoint if isinstance(part, MetricSource) else None for part in _parts(scoring)}


def check_one_number(spec: MetricSpec) -> None:
    """Refuses several metrics without weights where candidates are ordered by one number.

    Raises:
        ConfigError: so it is.
    """
    if "reward" not in spec.reward_names:
        share = f"{1 / len(spec.parts):.2g}"
        raise ConfigError(
            "candidates are ordered by one number: give each metric a weight in the mean, as in --weights "
            + ",".join(f"{part.name}={share}" for part in spec.parts)
        )


def with_aspects(spec: MetricSpec, aspects: Mapping[str, Sequence[str]]) -> MetricSpec:
    """The facts with the aspects that each metric's checkpoint has: {metric: aspects}."""
    if isinstance(spec, SeveralSpec):
        return SeveralSpec.of([with_aspects(part, aspects) for part in spec.metrics], spec.shares)
    return replace(spec, aspects=tuple(aspects[spec.name]))


def _parts(scoring: Scoring) -> tuple[MetricSource | Scorer, ...]:
    return scoring.parts if isinstance(scoring, Several) else (scoring,)
