"""The strategies of `capreward caption` by name: those that choose among candidates, and those that steer decoding."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import numpy as np

from reward.decoding.choosing import poisson_count
from reward.decoding.mbr import expected_utilities
from reward.decoding.selection import rank, soft_rank
from reward.errors import CapRewardError, ConfigError

__all__ = ["CHOOSING", "Choosing", "check_strategy", "parse_options", "steering"]

Rewards = Sequence[float | None]


@dataclass(frozen=True)
class Choosing:
    """A strategy that samples candidates and chooses one.

    Args:
        choose: (captions, rewards, rng, **options) -> place of the chosen caption. The parameters after the first three
            are the options that a user may give, with their defaults.
        count: (n, rng) -> candidates to draw for an image.
    """

    choose: Callable[..., int]
    count: Callable[[int, np.random.Generator], int] = lambda n, rng: n


def _best(captions: Sequence[str], rewards: Rewards, rng: np.random.Generator) -> int:
    return rank(rewards)[0]


def _soft(captions: Sequence[str], rewards: Rewards, rng: np.random.Generator, temperature: float) -> int:
    return soft_rank(rewards, temperature, rng)[0]


def _mbr(
    captions: Sequence[str],
    rewards: Rewards,
    rng: np.random.Generator,
    utility: str = "unigram",
    keep: int | None = None,
    aggregate: bool = False,
) -> int:
    kept = rank(rewards)[:keep]
    return rank(expected_utilities(captions, kept, utility=utility, aggregate=aggregate)[0])[0]


CHOOSING: dict[str, Choosing] = {
    "best-of-n": Choosing(_best),
    "soft-best-of-n": Choosing(_soft),
    "best-of-poisson": Choosing(_best, poisson_count),
    "mbr": Choosing(_mbr),
}


def steering() -> dict[str, EntryPoint]:
    """Strategies that steer a model while it writes, from packages above this one: the group `capreward.strategies`.

    Each is called as `(reward, n=..., processor=..., **options)` and makes what `generate(custom_generate=...)` takes.
    """
    return {point.name: point for point in entry_points(group="capreward.strategies")}


def check_strategy(name: str, options: Mapping[str, Any], *, behind_server: bool) -> Choosing:
    """How candidates are chosen: of a strategy that steers, the best by the reward of what it writes.

    Raises:
        ConfigError: no such strategy or option, or one that steers with a model behind a server.

    Example:
        >>> check_strategy("best-of-n", {}, behind_server=True).count(4, np.random.default_rng(0))
        4
        >>> check_strategy("best-of-n", {"temperature": 1}, behind_server=True)
        Traceback (most recent call last):
            ...
        reward.errors.ConfigError: --option temperature: strategy 'best-of-n' has no such option; it has none
    """
    steers = steering()
    if name not in CHOOSING and name not in steers:
        raise ConfigError(f"no strategy is named {name!r} (--strategy); there are: {', '.join([*CHOOSING, *steers])}")
    if name in CHOOSING:
        known = dict([*inspect.signature(CHOOSING[name].choose).parameters.items()][3:])
    elif behind_server:
        raise ConfigError(
            f"strategy {name!r} steers the model while it writes, which no server lets us do: give --model a folder, "
            f"or take one of {', '.join(CHOOSING)}"
        )
    else:
        known = dict([*inspect.signature(steers[name].load()).parameters.items()][1:])
        own = ("n", "processor", "images", "references")
        known = {
            each: value for each, value in known.items() if each not in own and value.kind is not value.VAR_KEYWORD
        }
    for option in options:
        if option not in known:
            there = ", ".join(known) or "none"
            raise ConfigError(f"--option {option}: strategy {name!r} has no such option; it has {there}")
    for option, parameter in known.items():
        if parameter.default is parameter.empty and option not in options:
            raise ConfigError(f"strategy {name!r} needs --option {option}=VALUE")
    if name not in CHOOSING:
        return Choosing(lambda captions, rewards, rng, **_: rank(rewards)[0], lambda n, rng: 1)
    try:  # a wrong value shows before captions are paid for
        CHOOSING[name].choose(["a star", "a red star"], [0.0, 1.0], np.random.default_rng(0), **options)
    except (CapRewardError, TypeError, ValueError) as error:
        raise ConfigError(f"strategy {name!r} cannot work with {dict(options)}: {error}") from error
    return CHOOSING[name]


def parse_options(texts: Sequence[str]) -> dict[str, Any]:
    """Options of a strategy, written NAME=VALUE; numbers, true, false and null are read as JSON, all else is text.

    Raises:
        ConfigError: no such form, or a name twice.

    Example:
        >>> parse_options(["temperature=0.1", "utility=unigram"])
        {'temperature': 0.1, 'utility': 'unigram'}
    """
    options: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or name in options:
            raise ConfigError(f"--option {text!r} must be NAME=VALUE, with each name once")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options
