"""Rewards made of other rewards: the base that calls, checks and logs the parts; WeightedReward, CombinedReward and
EnsembleReward make one number of them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from reward.errors import ConfigError, InvalidSampleError
from reward.functions.completions import CaptionRow, read_rows
from reward.functions.metric_reward import check_one_name
from reward.functions.wrappers import function_name, is_asynchronous, rates_captions
from reward.samples import CaptionSample
from reward.weights import checked_weight, sum_to_one, weighted_range

__all__ = [
    "Call",
    "Combination",
    "CombinedReward",
    "EnsembleReward",
    "Ramp",
    "WeightedReward",
    "pairs_of",
    "range_of",
]

_UNKNOWN = (-math.inf, math.inf)


@dataclass(frozen=True)
class Call:
    """What a combination may read besides the rewards of its parts.

    Args:
        prompts: N prompts; None where captions did not come from a trainer.
        read: reads the N rows; takes `image_column` and `references_column`.
        columns: of the data set, {name: N values}, with the trainer's state among them; None for captions that did not
            come from a trainer.
        log: takes a name, which is put behind that of the reward, and a number.
    """

    prompts: Sequence[Any]
    read: Callable[..., list[CaptionRow]]
    columns: dict[str, Any] | None
    log: Callable[[str, float], None]

    @property
    def trainer_state(self) -> Any:
        return (self.columns or {}).get("trainer_state")


class Combination:
    """The base of rewards that are made of other rewards. Derive from it and write `combine` for one of your own.

    A completion to which any part gives None, or a number that is not finite, gets None. With a trainer's loggers, the
    mean of each part is logged as `<name>/<part>`, and the share of rows without a reward as `<name>/unscored`; parts
    log what they log.

    Args:
        parts: reward functions, at least one. A part is anything with a trainer's call: `VelaReward()`, an aspect such
            as `VelaReward().aspect("flu")`, a plain function that takes `**kwargs`, another combination. All columns
            and loggers are passed on to every part.
        kind: begins the default name.
        name: the name in the trainer's logs (`__name__`). Default: the kind and the names of the parts. Two rewards
            of one trainer must not share a name.

    Raises:
        ConfigError: no parts.
        TypeError: a part cannot be called, is asynchronous, or is a network: trainers call those in other ways, so they
            must be given to the trainer itself.

    Example:
        >>> class Best(Combination):
        ...     def combine(self, table, rows, call):
        ...         return table.max(axis=1)
        >>> def polite(completions, **kwargs):
        ...     return [float("please" in text) for text in completions]
        >>> Best([polite, lambda completions, **kwargs: [0.5] * len(completions)], "best").rewards(
        ...     [CaptionSample("A star, please."), CaptionSample("A star.")]
        ... )
        [1.0, 0.5]
    """

    __name__: str  # trainers read it from the instance

    def __init__(self, parts: Sequence[Callable[..., Any]], kind: str, name: str | None = None) -> None:
        if not isinstance(parts, Sequence):
            raise TypeError(f"parts must be a list of reward functions, got {parts!r:.80}")
        if not parts:
            raise ConfigError(f"{type(self).__name__} needs at least one reward function, got none")
        self.parts: list[Any] = [_checked_part(part, place) for place, part in enumerate(parts)]
        self.part_names = _different([function_name(part) for part in self.parts])
        self.__name__ = name or "_".join([kind, *self.part_names])

    def combine(self, table: np.ndarray, rows: np.ndarray, call: Call) -> np.ndarray:
        """Rewards of the rows to which every part gave a finite number.

        Args:
            table: rewards of the parts, float array (R, parts).
            rows: which rows of the call they are, (R,); R may be 0.
            call: see `Call`.

        Returns:
            (R,); what is not finite becomes None.
        """
        raise NotImplementedError

    @property
    def range(self) -> tuple[float, float]:
        """Bounds of the reward, infinite where they are not known."""
        return _UNKNOWN

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Any = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Rewards of the completions, one each, in order.

        Args:
            prompts, completions, completion_ids, columns: as the trainer gives them; each part gets them all.
            log_extra, log_metric: a trainer's loggers, which each part gets as well.

        Raises:
            InvalidSampleError: a part gave another number of rewards than there are completions.
            ConfigError: another reward of this trainer has the same name.
        """
        check_one_name(self, columns.get("trainer_state"))
        loggers = {"log_extra": log_extra, "log_metric": log_metric}
        # pass only the loggers that the trainer gave
        options = {**columns, **{key: value for key, value in loggers.items() if value is not None}}
        given = [
            part(prompts=prompts, completions=completions, completion_ids=completion_ids, **options)
            for part in self.parts
        ]
        table = self._table(given, len(completions))
        log: Callable[[str, float], None] = _log_nothing
        if log_metric is not None and len(completions):
            log = partial(_log_under, self.__name__, log_metric)
            for part_name, column in zip(self.part_names, table.T, strict=True):
                if np.isfinite(column).any():  # a mean of nothing would spoil the mean over processes
                    log(part_name, float(column[np.isfinite(column)].mean()))
        combined = self._combine(table, Call(prompts, partial(read_rows, prompts, completions, columns), columns, log))
        if combined:
            log("unscored", sum(value is None for value in combined) / len(combined))
        return combined

    def rewards(self, samples: Sequence[CaptionSample]) -> list[float | None]:
        """Rewards of valid samples, in order, as `BestOfN` and `rerank` ask for them.

        Raises:
            ConfigError: a part is a function that needs what captions do not have, see `rates_captions`.
        """
        given = [rates_captions(part).rewards(samples) for part in self.parts]

        def read(**columns: Any) -> list[CaptionRow]:
            return [CaptionRow.of_sample(sample) for sample in samples]

        call = Call([None] * len(samples), read, None, _log_nothing)
        return self._combine(self._table(given, len(samples)), call)

    def reason(self, sample: CaptionSample) -> str | None:
        """Why a sample has no reward, from the first part that gives one; None if no part does."""
        for part, part_name in zip(self.parts, self.part_names, strict=True):
            reason = part.reason(sample) if hasattr(part, "reason") else None
            if reason is not None:
                return f"{part_name}: {reason}"
        return None

    def _table(self, given: Sequence[Sequence[float | None]], count: int) -> np.ndarray:
        """Rewards (N, parts), NaN for None."""
        for part_name, rewards in zip(self.part_names, given, strict=True):
            if len(rewards) != count:
                raise InvalidSampleError(
                    f"{self.__name__}: the part {part_name!r} gave {len(rewards)} rewards for {count} completions"
                )
        columns = [[math.nan if value is None else float(value) for value in rewards] for rewards in given]
        table = np.array(columns, dtype=np.float64).reshape(len(self.parts), count).T
        return np.where(np.isfinite(table), table, math.nan)

    def _combine(self, table: np.ndarray, call: Call) -> list[float | None]:
        rows = np.flatnonzero(np.isfinite(table[:, self._counts(call)]).all(axis=1))
        combined = np.full(len(table), math.nan)
        combined[rows] = self.combine(table[rows], rows, call)
        return [float(value) if math.isfinite(value) else None for value in combined]

    def _counts(self, call: Call) -> np.ndarray:
        """Which parts must have a number, (parts,)."""
        return np.ones(len(self.parts), dtype=bool)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.__name__!r}, parts={self.part_names})"


class WeightedReward(Combination):
    """The weighted mean of several reward functions, as one reward function.

    Weights are divided by their sum: 0.7 and 0.3 give 0.7 a + 0.3 b, and 7 and 3 the same. Unless one is negative,
    which is allowed, the result lies in the range that the parts share. A trainer that is given the parts as separate
    `reward_funcs` with `reward_weights` sums them without dividing, and may normalise each by itself first.

    A completion gets None if any part of weight other than zero gives it None or a number that is not finite: a mean
    over fewer parts is on another scale than its neighbours', and in a group it would count as a high or low
    reward. A part of weight zero is called and logged, and changes nothing.

    A weight may be a function of the progress of training, 0 to 1 (`global_step / max_steps`), such as `Ramp(0, 0.5)`.
    Such weights are logged as `<name>/weight_<part>`; outside a trainer those of the end count.

    Args:
        parts: (reward function, weight), at least one; see `Combination`.
        name: default: `weighted` and the names of the parts, as in `weighted_vela_length`.

    Raises:
        WeightsError: no parts, a weight that is not a finite number, or a sum that is not positive.
        TypeError: see `Combination`.

    Example:
        >>> from reward import MetricReward
        >>> def polite(completions, **kwargs):
        ...     return [float("please" in text) for text in completions]
        >>> reward = WeightedReward([(MetricReward("length"), 1), (polite, 3)])
        >>> reward(prompts=["Describe."] * 2, completions=["A star, please.", "A star."])
        [1.5, 0.5]
    """

    def __init__(
        self, parts: Sequence[tuple[Callable[..., Any], float | Callable[[float], float]]], *, name: str | None = None
    ) -> None:
        rewards, self._given = pairs_of(parts, "parts", "weight")
        for place, weight in enumerate(self._given):
            for progress in (0.0, 0.5, 1.0) if callable(weight) else (0.0,):
                value = weight(progress) if callable(weight) else weight
                checked_weight(value, f"the weight of parts[{place}]")
        self._changes = any(map(callable, self._given))
        for progress in (0.0, 0.5, 1.0):
            self.weights = self.weights_at(progress)
        super().__init__(rewards, "weighted", name)

    def weights_at(self, progress: float) -> np.ndarray:
        """Weights (parts,), which sum to 1, at a progress of training from 0 to 1.

        Raises:
            WeightsError: a weight that is not a finite number, or a sum that is not positive.
        """
        given = [weight(progress) if callable(weight) else weight for weight in self._given]
        return sum_to_one([checked_weight(weight, f"the weight of parts[{i}]") for i, weight in enumerate(given)])

    @property
    def range(self) -> tuple[float, float]:
        """Bounds of the reward; not known while weights change."""
        return _UNKNOWN if self._changes else weighted_range(self.weights, list(map(range_of, self.parts)))

    def combine(self, table: np.ndarray, rows: np.ndarray, call: Call) -> np.ndarray:
        """See `Combination`."""
        weights = self._weights(call)
        if self._changes:
            for part_name, weight in zip(self.part_names, weights.tolist(), strict=True):
                call.log(f"weight_{part_name}", weight)
        return table[:, weights != 0] @ weights[weights != 0]  # a part without weight must not spread its NaN

    def _counts(self, call: Call) -> np.ndarray:
        return self._weights(call) != 0

    def _weights(self, call: Call) -> np.ndarray:
        if not self._changes or call.columns is None:
            return self.weights
        state = call.trainer_state
        if state is None or not state.max_steps > 0:
            raise ConfigError(
                f"{self.__name__}: its weights change with the progress of training, and this trainer does not say "
                "how far it is (trainer_state with max_steps). Give numbers as weights"
            )
        return self.weights_at(min(1.0, state.global_step / state.max_steps))

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}: {weight:.4g}" for name, weight in zip(self.part_names, self.weights, strict=True))
        return f"{type(self).__name__}(name={self.__name__!r}, {parts})"


@dataclass(frozen=True)
class Ramp:
    """A weight that goes in a straight line from `first` to `last`, and stays level before `begin` and after `end`.

    Args:
        first, last: weights.
        begin, end: progress of training, 0 <= begin <= end <= 1; if they are equal, the weight jumps there.

    Example:
        >>> [Ramp(0.0, 0.5, end=0.5)(progress) for progress in (0, 0.25, 1)]
        [0.0, 0.25, 0.5]
    """

    first: float
    last: float
    begin: float = 0.0
    end: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.begin <= self.end <= 1:
            raise ConfigError(f"a Ramp needs 0 <= begin <= end <= 1, got begin={self.begin}, end={self.end}")

    def __call__(self, progress: float) -> float:
        if self.begin == self.end:
            return self.first if progress < self.begin else self.last
        share = min(1.0, max(0.0, (progress - self.begin) / (self.end - self.begin)))
        return self.first + share * (self.last - self.first)


Way = Literal["product", "min", "harmonic", "geometric"]
_WAYS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "product": lambda table: table.prod(axis=1),
    "min": lambda table: table.min(axis=1),
    "harmonic": lambda table: table.shape[1] / (1 / table).sum(axis=1),
    "geometric": lambda table: np.exp(np.log(table).mean(axis=1)),
}


class CombinedReward(Combination):
    """Product, minimum, harmonic or geometric mean of rewards: a low part cannot be made up for by a high one.

    On [0, 1]: product <= min <= harmonic <= geometric <= (weighted) mean. Equal parts give their value, save in the
    product. All but the minimum need parts that are never negative.

    Args:
        parts: reward functions, see `Combination`.
        how: `"product"`, `"min"`, `"harmonic"` or `"geometric"`.
        name: default: `how` and the names of the parts.

    Raises:
        ConfigError: no parts, an unknown way, or a part whose metric can be negative.
        InvalidSampleError: in a call, if a part is negative where it must not be.

    Example:
        >>> def constant(value):
        ...     return lambda completions, **kwargs: [value] * len(completions)
        >>> [CombinedReward([constant(0.5), constant(1.0)], how)(["p"], ["c"])[0] for how in ("product", "min")]
        [0.5, 0.5]
    """

    def __init__(self, parts: Sequence[Callable[..., Any]], how: Way, *, name: str | None = None) -> None:
        if how not in _WAYS:
            raise ConfigError(f"how must be one of {', '.join(_WAYS)}, got {how!r}; for the mean take WeightedReward")
        super().__init__(parts, how, name)
        self.how = how
        for part, part_name in zip(self.parts, self.part_names, strict=True):
            low, high = range_of(part)
            if how != "min" and -math.inf < low < 0:
                raise ConfigError(
                    f'how="{how}" needs rewards that are never negative, and {part_name!r} lies in [{low:g}, {high:g}]'
                )

    @property
    def range(self) -> tuple[float, float]:
        """Bounds of the reward, infinite where those of a part are not known."""
        ends = np.array([range_of(part) for part in self.parts]).T
        if self.how != "min" and (ends[0] < 0).any():
            return _UNKNOWN
        low, high = self._apply(ends).tolist()
        return low, high

    def combine(self, table: np.ndarray, rows: np.ndarray, call: Call) -> np.ndarray:
        """See `Combination`."""
        if self.how != "min" and (table < 0).any():
            row, part = np.argwhere(table < 0)[0]
            raise InvalidSampleError(
                f'{self.__name__}: how="{self.how}" needs rewards that are never negative, and '
                f"{self.part_names[part]!r} gave {table[row, part]:g}"
            )
        return self._apply(table)

    def _apply(self, table: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", over="ignore"):  # a part of 0 makes all of them 0
            return _WAYS[self.how](table)


class EnsembleReward(Combination):
    """Mean minus k times the spread of rewards that are to say the same: where they disagree, the reward is lower.

    The members may be metrics, checkpoints of one metric trained with different seeds, or aspects. Put members on one
    scale first, see `StandardisedReward`. Members that share a backbone share its errors, and do not see them.

    Args:
        parts: at least two reward functions, see `Combination`.
        k: at least 0; 0 gives the mean.
        spread: `"std"`, the standard deviation over the members (divided by their number, not one less), or
            `"variance"`, its square, as in "Reward Model Ensembles Help Mitigate Overoptimization" (2023).
        name: default: `ensemble` and the names of the parts.

    Raises:
        ConfigError: fewer than two parts, a bad k or spread, or ranges that differ.

    Example:
        >>> def constant(value):
        ...     return lambda completions, **kwargs: [value] * len(completions)
        >>> EnsembleReward([constant(0.25), constant(0.75)], k=1)(["p"], ["c"])
        [0.25]
    """

    def __init__(
        self,
        parts: Sequence[Callable[..., Any]],
        *,
        k: float = 1.0,
        spread: Literal["std", "variance"] = "std",
        name: str | None = None,
    ) -> None:
        super().__init__(parts, "ensemble", name)
        if len(self.parts) < 2:
            raise ConfigError("an ensemble needs at least two rewards: one alone has no spread")
        if not 0 <= k < math.inf:
            raise ConfigError(f"k must be a number of at least 0, got {k!r}")
        if spread not in ("std", "variance"):
            raise ConfigError(f'spread must be "std" or "variance", got {spread!r}')
        self.k, self.spread = k, spread
        known = {range_of(part) for part in self.parts} - {_UNKNOWN}
        if len(known) > 1:
            raise ConfigError(
                f"the members of an ensemble must be on one scale, and their ranges are {sorted(known)}. "
                "Wrap each in StandardisedReward"
            )

    @property
    def range(self) -> tuple[float, float]:
        """Bounds of the reward, infinite where those of a part are not known."""
        low, high = min(range_of(part)[0] for part in self.parts), max(range_of(part)[1] for part in self.parts)
        if not math.isfinite(high - low):
            return _UNKNOWN
        most = (high - low) / 2
        return low - self.k * (most if self.spread == "std" else most**2), high

    def combine(self, table: np.ndarray, rows: np.ndarray, call: Call) -> np.ndarray:
        """See `Combination`."""
        spread = table.std(axis=1) if self.spread == "std" else table.var(axis=1)
        if len(spread):
            call.log(self.spread, float(spread.mean()))
        return table.mean(axis=1) - self.k * spread


def range_of(part: Any) -> tuple[float, float]:
    """Lowest and highest value of a reward, infinite where it does not say."""
    low, high = getattr(part, "range", _UNKNOWN)
    return float(low), float(high)


def pairs_of(pairs: Any, argument: str, second: str) -> tuple[list[Any], list[Any]]:
    """Reward functions and what stands beside them.

    Raises:
        TypeError: no list of pairs; the message says `argument` and `second`.
    """
    if not isinstance(pairs, Sequence):
        raise TypeError(f"{argument} must be a list of (reward function, {second}), got {pairs!r:.80}")
    for place, entry in enumerate(pairs):
        if not isinstance(entry, (tuple, list)) or len(entry) != 2:
            raise TypeError(f"{argument}[{place}] must be (reward function, {second}), got {entry!r:.80}")
    return [first for first, _ in pairs], [other for _, other in pairs]


def _checked_part(part: Any, place: int) -> Any:
    torch = sys.modules.get("torch")  # without torch loaded there is no network to tell apart
    if not callable(part) or isinstance(part, type) or (torch is not None and isinstance(part, torch.nn.Module)):
        raise TypeError(
            f"parts[{place}] must be a reward function, got {part!r:.80}; give networks and their names to the trainer"
        )
    if is_asynchronous(part):
        raise TypeError(
            f"parts[{place}] is asynchronous: give it to the trainer itself, in reward_funcs, which awaits it"
        )
    return part


def _different(names: list[str]) -> list[str]:
    """The names, with `_2`, `_3`, ... where one comes again, since logs of one key are merged."""
    return [name if names.index(name) == i else f"{name}_{names[: i + 1].count(name)}" for i, name in enumerate(names)]


def _log_nothing(name: str, value: float) -> None:
    pass


def _log_under(prefix: str, log_metric: Callable[[str, float], None], name: str, value: float) -> None:
    log_metric(f"{prefix}/{name}", value)
