"""Finds metrics by name and loads their scorers."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Mapping
from typing import Any

from reward.checkpoints import check_revision, check_source
from reward.errors import ConfigError, UnknownMetricError, did_you_mean
from reward.metrics.base import MetricSpec, Scorer, installed_specs
from reward.metrics.sentences import SUFFIX, SentenceMean, sentence_mean_spec

__all__ = [
    "check_caching",
    "check_loading",
    "is_address",
    "list_metrics",
    "load_scorer",
    "loaded_if_remote",
    "metric_spec",
    "split_options",
    "takes_option",
]

_CACHE_OPTIONS = ("cache", "cache_size")


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
        name: one of `list_metrics()`, or one with `_avg` appended, see `reward.metrics.sentences.SentenceMean`.
            Capitals, dashes and underscores do not matter: `"BLEU-4"` is `"bleu4"`.

    Raises:
        UnknownMetricError: no such metric; the message lists the installed ones.
    """
    spec, is_mean = _find(name)
    return sentence_mean_spec(spec) if is_mean else spec


def _find(name: str) -> tuple[MetricSpec, bool]:
    """The metric of a name, and whether the name asks for the mean over sentences."""
    specs = installed_specs()
    if not isinstance(name, str):
        raise UnknownMetricError(f"a metric is named by a string, got {name!r:.80}; installed: {', '.join(specs)}")
    if name in specs:
        return specs[name], False
    known = {_plain(each): spec for each, spec in specs.items()}
    plain = _plain(name)
    if plain in known:
        return known[plain], False
    stem = plain.removesuffix(_plain(SUFFIX))
    if stem == plain or stem not in known:
        hint = " (its source is an argument of its own: source=, or --source)" if "=" in name else ""
        raise UnknownMetricError(
            f"no metric is named {name!r}{hint}.{did_you_mean(stem, specs)} Installed: {', '.join(specs)}"
        )
    return known[stem], True


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]", "", name.lower())


def load_scorer(name: str, source: str | os.PathLike[str] = "embedded", **options: Any) -> Scorer:
    """Loads the scorer of a metric.

    Args:
        name: registry name, such as `"vela"`; `"vela_avg"` is the mean over the sentences of a caption.
        source: `"embedded"` (shipped with the package), a checkpoint folder, a Hub id, or the address of a reward
            service that serves the metric (`"http://..."`), see `reward.RemoteReward`.
        options: passed to the scorer's `from_pretrained` (revision, device, dtype, cache, ...).

    Raises:
        UnknownMetricError: no such metric.
        ConfigError: see `check_loading` and `check_caching`.
        CheckpointError: the source is missing, incomplete or of another metric, or see `check_revision`.

    Example:
        >>> load_scorer("length", device="cpu").spec.aspects
        ('length',)
    """
    spec, is_mean = _find(name)
    check_loading(source, options.get("device"), metric=name)
    check_revision(source, options.get("revision"))
    if is_address(source) and not spec.is_remote:
        address, _, named = os.fspath(source).partition("#")
        if named not in ("", spec.name):
            raise ConfigError(f"source {source!r} names the metric {named!r}, but {spec.name!r} was asked for")
        spec, source = metric_spec("remote"), f"{address}#{spec.name}"
    check_caching(spec, options)
    scorer: Scorer = spec.scorer_class().from_pretrained(source, **options)
    return SentenceMean(scorer) if is_mean else scorer


def is_address(source: str | os.PathLike[str]) -> bool:
    """Whether the source of a scorer is the address of a reward service."""
    return isinstance(source, str) and source.startswith(("http://", "https://"))


def loaded_if_remote(metric: str | Scorer, source: str | os.PathLike[str], **options: Any) -> str | Scorer:
    """The scorer of a metric behind a service, which alone knows what the service serves; else what was given.

    Args:
        metric: name or scorer.
        source, options: see `load_scorer`.

    Raises:
        ServiceError, ConfigError: the service cannot be used.

    Example:
        >>> loaded_if_remote("length", "embedded")
        'length'
    """
    is_remote = isinstance(metric, str) and (metric_spec(metric).is_remote or is_address(source))
    return load_scorer(metric, source, **options) if is_remote else metric  # type: ignore[arg-type]


def check_caching(spec: MetricSpec, options: Mapping[str, Any]) -> None:
    """Refuses options of a cache that the metric does not have.

    Raises:
        ConfigError: there is one.

    Example:
        >>> check_caching(metric_spec("length"), {"cache": "embeddings"})
        Traceback (most recent call last):
            ...
        reward.errors.ConfigError: metric 'length' keeps nothing on disk: leave out cache= (--cache)
    """
    for name in options:
        if not takes_option(spec, name):
            option = name.replace("_", "-")
            raise ConfigError(f"metric {spec.name!r} keeps nothing on disk: leave out {name}= (--{option})")


def takes_option(spec: MetricSpec, name: str) -> bool:
    """Whether the metric's `from_pretrained` takes an option, which only those of a cache may lack."""
    return name not in _CACHE_OPTIONS or name in inspect.signature(spec.scorer_class().from_pretrained).parameters


def split_options(function: Any, options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options that a function or class takes by keyword, and all others.

    Example:
        >>> split_options(metric_spec("harmoniceval").scorer_class(), {"gamma": 1, "name": "judge"})
        ({'gamma': 1}, {'name': 'judge'})
    """
    own = inspect.signature(function).parameters
    return {name: options[name] for name in options if name in own}, {
        name: options[name] for name in options if name not in own
    }


def check_loading(source: Any, device: Any = None, *, metric: str | None = None) -> None:
    """Checks the arguments of `load_scorer` before anything is loaded. No Hub id is looked up.

    Args:
        source, device: as for `load_scorer`.
        metric: name of the metric; None is a judge without a metric.

    Raises:
        ConfigError: `source` is neither a string nor a path, or `device` is not the name of a device.
        CheckpointError: `source` is no folder of the metric and no possible Hub id, see `check_source`.

    Example:
        >>> check_loading("embedded", "gpu9", metric="vela")
        Traceback (most recent call last):
            ...
        reward.errors.ConfigError: device must be such as 'cpu', 'cuda' or 'cuda:1', got 'gpu9'
    """
    if not isinstance(source, (str, os.PathLike)):
        raise ConfigError(f'source must be "embedded", a folder or a Hub id, got {source!r:.80}')
    if isinstance(device, str) and device != "cpu":
        import torch  # imported here because listing metrics must not load torch

        try:
            torch.device(device)
        except RuntimeError:
            raise ConfigError(f"device must be such as 'cpu', 'cuda' or 'cuda:1', got {device!r}") from None
    spec = None if metric is None else _find(metric)[0]
    kind = "judge" if spec is None else spec.sources
    if spec is not None and kind and source == "embedded" and not (spec.has_embedded or spec.needs_corpus):
        spec.scorer_class().from_pretrained(source)  # raises, and says what to give instead
    if kind is not None and not is_address(source):
        check_source(source, metric="judge" if spec is None else spec.name, kind=kind)
