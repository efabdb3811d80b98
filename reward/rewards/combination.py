"""The base of rewards that are made of other rewards: it calls, checks and logs the parts."""

from __future__ import annotations

import inspect
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from reward.errors import ConfigError, InvalidSampleError
from reward.metrics.function_places import names_function
from reward.registry import list_metrics
from reward.rewards.names import check_one_name, different_names, log_rows
from reward.rewards.wrappers import function_name, is_asynchronous, load_reward, rates_captions
from reward.samples import CaptionSample

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["UNKNOWN_RANGE", "Combination", "range_of"]

UNKNOWN_RANGE = (-math.inf, math.inf)


class Combination(ABC):
    """The base of rewards that are made of other rewards; a completion to which a part gives None gets None.

    Args:
        parts: reward functions, names of metrics or functions of samples, at least one; see `WeightedReward`.
        kind: begins the default name.
        name: the name in the trainer's logs (`__name__`). Default: the kind and the names of the parts. Two rewards
            of one trainer must not share a name.

    Raises:
        ConfigError: no parts.
        TypeError: a part cannot be called, is asynchronous, or is a network: trainers call those in other ways, so they
            must be given to the trainer itself.
    """

    __name__: str  # trainers read it from the instance

    def __init__(self, parts: Sequence[Callable[..., Any]], kind: str, name: str | None = None) -> None:
        if not isinstance(parts, Sequence):
            raise TypeError(f"parts must be a list of reward functions, got {parts!r:.80}")
        if not parts:
            raise ConfigError(f"{type(self).__name__} needs at least one reward function, got none")
        self.parts: list[Any] = [_checked_part(part, place) for place, part in enumerate(parts)]
        self.part_names = different_names([function_name(part) for part in self.parts])
        self.__name__ = name or "_".join([kind, *self.part_names])

    @abstractmethod
    def combine(self, table: np.ndarray) -> np.ndarray:
        """Rewards (R,) of the rows to which every part gave a finite number; what is not finite becomes None.

        Args:
            table: rewards of the parts, float array (R, parts); R may be 0.
        """

    @property
    def range(self) -> tuple[float, float]:
        """Bounds of the reward, infinite where they are not known."""
        return UNKNOWN_RANGE

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
        combined = self._combine(table)
        if log_metric is not None:
            for part_name, column in zip(self.part_names, table.T, strict=True):
                log_rows(log_metric, f"{self.__name__}/{part_name}", column[np.isfinite(column)])
            log_rows(log_metric, f"{self.__name__}/unscored", [value is None for value in combined])
        return combined

    def load(self) -> Self:
        """Loads the models of all parts now, see `MetricReward.load`."""
        for part in self.parts:
            load_reward(part)
        return self

    def rewards(self, samples: Sequence[CaptionSample]) -> list[float | None]:
        """Rewards of valid samples, in order, as `BestOfN` and `rerank` ask for them.

        Raises:
            ConfigError: a part is a function that needs what captions do not have, see `rates_captions`.
        """
        given = [rates_captions(part).rewards(samples) for part in self.parts]
        return self._combine(self._table(given, len(samples)))

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

    def _combine(self, table: np.ndarray) -> list[float | None]:
        rows = np.isfinite(table[:, self._counts()]).all(axis=1)
        combined = np.full(len(table), math.nan)
        combined[rows] = self.combine(table[rows])
        return [float(value) if math.isfinite(value) else None for value in combined]

    def _counts(self) -> np.ndarray:
        """Which parts must have a number, (parts,)."""
        return np.ones(len(self.parts), dtype=bool)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.__name__!r}, parts={self.part_names})"


def range_of(part: Any) -> tuple[float, float]:
    """Lowest and highest value of a reward, infinite where it does not say."""
    low, high = getattr(part, "range", UNKNOWN_RANGE)
    return float(low), float(high)


def _checked_part(part: Any, place: int) -> Any:
    """A part as trainers call it; the name of a metric and a function of samples become a MetricReward."""
    if isinstance(part, str) and (names_function(part) or part in list_metrics()):  # else perhaps a network's
        return rates_captions(part)
    torch = sys.modules.get("torch")  # without torch loaded there is no network to tell apart
    if not callable(part) or isinstance(part, type) or (torch is not None and isinstance(part, torch.nn.Module)):
        raise TypeError(
            f"parts[{place}] must be a reward function, got {part!r:.80}; give networks and their names to the trainer"
        )
    if is_asynchronous(part):
        raise TypeError(
            f"parts[{place}] is asynchronous: give it to the trainer itself, in reward_funcs, which awaits it"
        )
    try:
        inspect.signature(part).bind_partial(prompts=(), completions=())
    except TypeError:  # no call of a trainer
        return rates_captions(part)
    except ValueError:  # some of those written in C have no signature
        pass
    return part
