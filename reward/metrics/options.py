"""Which options the loading of a metric takes, told from its code, and how a command line writes them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from reward.errors import ConfigError
from reward.metrics.base import MetricSpec

if TYPE_CHECKING:
    from reward.registry import MetricSource

_OF_ALL = ("revision", "device", "dtype")
_OF_CACHES = ("cache", "cache_size")
_OF_PYTHON = ("judge", "trust_remote_code", "api_key")
_NO_SETTINGS = (*_OF_ALL, *_OF_CACHES, *_OF_PYTHON)


def metric_options(spec: MetricSpec) -> list[str]:
    """The options of a metric's own, which `load_scorer` and `--set` take.

    Example:
        >>> from reward import metric_spec
        >>> metric_options(metric_spec("bertscore"))
        ['layer']
    """
    return [name for name in _keywords(spec) or () if name not in _NO_SETTINGS]


# The signatures are the one list of options, so that no table beside the code can be out of date.
def _keywords(spec: MetricSpec) -> list[str] | None:
    """Keywords of `from_pretrained`, and those of the class if it passes them on; None if it takes any."""
    scorer = spec.scorer_class()
    if not hasattr(scorer, "from_pretrained"):  # a function
        return None
    parameters = inspect.signature(scorer.from_pretrained).parameters.values()
    names = _keyword_names(parameters)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        passed_on = _keyword_names(inspect.signature(scorer).parameters.values())
        return [*names, *passed_on] if passed_on else None
    return names


def _keyword_names(parameters: Iterable[inspect.Parameter]) -> list[str]:
    return [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]


def takes_option(spec: MetricSpec, name: str) -> bool:
    """Whether the metric's `from_pretrained` takes an option."""
    if name in _OF_ALL:
        return True
    keywords = _keywords(spec)
    return keywords is None or name in keywords


def check_options(spec: MetricSpec, options: Iterable[str], *, own: bool = False) -> None:
    """Refuses options that the metric does not have; if `own`, also those that are not settings of it alone.

    Raises:
        ConfigError: there is one.

    Example:
        >>> from reward import metric_spec
        >>> check_options(metric_spec("length"), {"cache": "embeddings"})
        Traceback (most recent call last):
            ...
        reward.errors.ConfigError: metric 'length' keeps nothing on disk: leave out cache= (--cache)
    """
    for name in options:
        if takes_option(spec, name) and not (own and name in _NO_SETTINGS):
            continue
        if name in _OF_CACHES and not own:
            flag = name.replace("_", "-")
            raise ConfigError(f"metric {spec.name!r} keeps nothing on disk: leave out {name}= (--{flag})")
        if name == "batch_size" and not own:
            raise ConfigError(
                "batch_size belongs to the call: scorer.score(data, batch_size=64), or MetricReward(..., batch_size=64)"
            )
        if name in ("model", "checkpoint", "ckpt", "path"):
            raise ConfigError(
                f"metric {spec.name!r} has no option {name!r}: what it loads is its source, as in "
                f'load_scorer("{spec.name}", "FOLDER") or -m {spec.name}=FOLDER'
            )
        settings = ", ".join(metric_options(spec)) or "none"
        raise ConfigError(f"metric {spec.name!r} has no option {name!r}; it has {settings}")


def split_options(function: Any, options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options that a function or class takes by keyword, and all others.

    Example:
        >>> from reward import metric_spec
        >>> split_options(metric_spec("harmoniceval").scorer_class(), {"gamma": 1, "name": "judge"})
        ({'gamma': 1}, {'name': 'judge'})
    """
    parameters = inspect.signature(function).parameters
    matching, remaining = dict[str, Any](), dict[str, Any]()
    for name, value in options.items():
        if name in parameters:
            matching[name] = value
        else:
            remaining[name] = value
    return matching, remaining


def dry_scorer(spec: MetricSpec, options: Mapping[str, Any]) -> Any:
    """The scorer of a metric that asks a judge, with one that answers nothing; None of any other metric.

    Raises:
        ConfigError: an option has a value that cannot be.

    Example:
        >>> from reward import metric_spec
        >>> dry_scorer(metric_spec("judge"), {"scale": "1:7"}).prompt.scale
        (1.0, 7.0)
    """
    if spec.sources != "judge":
        return None
    from reward.judges.scripted import ScriptedJudge

    settings, _ = split_options(spec.scorer_class(), options)
    return spec.scorer_class()(ScriptedJudge(), **settings)


def with_options(metrics: Sequence[MetricSource], texts: Iterable[str]) -> list[MetricSource]:
    """The metrics, each with the options that are written for it as in `layer=5`, or of several `bertscore.layer=5`.

    Raises:
        ConfigError: an option that the metric does not have, or that does not say for which of several metrics it is.

    Example:
        >>> from reward.registry import MetricSource
        >>> metrics = [MetricSource("bertscore"), MetricSource("length")]
        >>> [metric.options for metric in with_options(metrics, ["bertscore.layer=5"])]
        [(('layer', 5),), ()]
    """
    metrics = list(metrics)
    for text in texts:
        left, equals, value = text.partition("=")
        prefix, _, name = left.rpartition(".")
        if not equals or not name:
            raise ConfigError(f"--set {text!r} is not of the form NAME=VALUE, as in layer=5")
        numbers = list(range(len(metrics)))
        if prefix:
            numbers = [number for number in numbers if metrics[number].name == prefix.lower()]
        if len(numbers) != 1:
            takers = [metric for metric in metrics if takes_option(metric.spec, name)] or metrics
            lines = " or ".join(f"--set {metric.name}.{name}={value}" for metric in takers)
            raise ConfigError(f"--set {text} does not say for which of the metrics: write {lines}")
        metric = metrics[numbers[0]]
        check_options(metric.loads, [name], own=True)
        if name in dict(metric.options):
            raise ConfigError(f"--set gives {name} of {metric.name} twice; leave out all but one")
        metrics[numbers[0]] = replace(metric, options=(*metric.options, (name, read_value(value))))
    for metric in metrics:
        if metric.options:
            dry_scorer(metric.loads, dict(metric.options))  # refuses a wrong value before weights are loaded
    return metrics


def read_value(text: str) -> Any:
    """A number, true, false, null or a list in brackets as YAML reads them; anything else is a text as it stands.

    1e-3 is a number, and 1:5 is none, which YAML 1.1 sees the other way round.

    Example:
        >>> [read_value(text) for text in ("5", "1e-3", "true", "[a, b]", "1:5", " Rate it: {caption}")]
        [5, 0.001, True, ('a', 'b'), '1:5', ' Rate it: {caption}']
    """
    import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own

    # YAML 1.1 takes 1e-3 for a text, because its floats need a dot.
    try:
        value = float(text) if re.fullmatch(r"[-+]?\d+e[-+]?\d+", text) else yaml.safe_load(text)
    except yaml.YAMLError:  # such as a pattern
        return text
    if not text or (isinstance(value, str) and text[0] not in "'\""):  # with the blanks at its ends
        return text
    if isinstance(value, list) and text.endswith("]"):
        return tuple(value)
    is_scalar = value is None or isinstance(value, (bool, int, float, str))
    return value if is_scalar and ":" not in text else text
