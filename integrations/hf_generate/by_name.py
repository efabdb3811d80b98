"""Called by the code that `capreward export-decoder` writes: runs `generate` with a strategy given by its name."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

from integrations.hf_generate import STRATEGIES
from reward.errors import ConfigError
from reward.functions.metric_reward import MetricReward
from reward.registry import metric_spec

__all__ = ["generate_by_name", "make_strategy"]

# Arguments of `generate` by which transformers has found the repository.
_OF_LOADER = ("cache_dir", "force_download", "local_files_only", "proxies", "revision", "token")


def generate_by_name(settings: Mapping[str, Any], *inputs: Any, model: Any, **arguments: Any) -> Any:
    """What `generate` returns with the strategy. Metrics are loaded once a process.

    Args:
        settings: strategy, n, options, metric, source, revision, weights.
        inputs, model, arguments: of the call. `processor` or `tokenizer`, `images`, `references`, `n` and `chunk` are
            for the strategy. If `custom_generate` is among them, it is obeyed; None decodes without a strategy.

    Raises:
        ConfigError: the call lacks something, or asks for what the strategy cannot do.
        ValueError: `generate` does not know an argument.
    """
    # transformers puts this very function in the place of `model.generate`, if the model is loaded from the repository
    generate = functools.partial(type(model).generate, model, *inputs)
    if "custom_generate" in arguments:
        return generate(**arguments)
    arguments = {name: value for name, value in arguments.items() if name not in _OF_LOADER}
    processor, tokenizer = arguments.pop("processor", None), arguments.pop("tokenizer", None)
    if processor is None and tokenizer is None:
        raise ConfigError("give generate(..., processor=...), a processor or a tokenizer that decodes the captions")
    if arguments.get("cache_implementation") == "paged":
        raise ConfigError("with cache_implementation='paged', generate ignores every strategy: leave it out")
    for values, needed in ("images", "needs_image"), ("references", "needs_references"):
        metric = settings["metric"]
        if metric and arguments.get(values) is None and getattr(metric_spec(metric), needed):
            raise ConfigError(f"metric {metric!r} needs {values}: give generate(..., {values}=[...]), one per prompt")
    own = {name: arguments.pop(name) for name in ("n", "chunk") if arguments.get(name) is not None}
    strategy = make_strategy(settings, tokenizer if processor is None else processor, **own)
    return generate(custom_generate=strategy, **arguments)


def make_strategy(settings: Mapping[str, Any], processor: Any, **of_call: Any) -> Any:
    """The strategy of some settings.

    Raises:
        ConfigError, UnknownMetricError, WeightsError: it cannot work with them.
    """
    options, utility = dict(settings["options"]), settings["options"].get("utility", "unigram")
    if utility != "unigram":
        options["utility"] = _kept_reward(utility, "embedded", None, "null")
    weights = json.dumps(settings["weights"])
    reward = settings["metric"] and _kept_reward(settings["metric"], settings["source"], settings["revision"], weights)
    try:
        return STRATEGIES[settings["strategy"]](
            reward, **{"n": settings["n"], **of_call}, processor=processor, **options
        )
    except TypeError as error:
        raise ConfigError(f"strategy {settings['strategy']!r} cannot work with {options}: {error}") from error


@functools.cache
def _kept_reward(metric: str, source: str, revision: str | None, weights: str) -> MetricReward:
    return MetricReward(metric, source, json.loads(weights), revision=revision)
