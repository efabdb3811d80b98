"""StandardisedReward and ConstrainedReward: rewards with a state that training changes and checkpoints keep."""

from __future__ import annotations

import copy
import logging
import math
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np

from reward.errors import ConfigError
from reward.functions.combination import Call, Combination, pairs_of, range_of
from reward.functions.gating import checked_thresholds
from reward.functions.processes import from_all_processes
from reward.metrics.groups import group_samples
from reward.samples import CaptionSample

__all__ = ["ConstrainedReward", "LearningReward", "StandardisedReward"]

logger = logging.getLogger(__name__)


class LearningReward(Combination):
    """The base of combinations with a state.

    The state is stored in the trainer's own state, under `capreward:<name>`. It is therefore part of the trainer's
    checkpoints, and a resumed training continues with it if the reward has the same name as in the first run. A new
    training starts from the state that the reward was made with, or that `load_state_dict` gave it.

    Every call by a trainer changes the state, including the calls of an evaluation. With several processes, each of
    them learns from the captions of all. `rewards(samples)` uses the state but does not change it.
    """

    def __init__(self, parts: Sequence[Callable[..., Any]], kind: str, name: str | None, state: dict[str, Any]) -> None:
        super().__init__(parts, kind, name)
        self._trainer: Any = None
        self._start, self._state = state, copy.deepcopy(state)

    @abstractmethod
    def learn(self, table: np.ndarray, call: Call) -> None:
        """Changes `self._state` by the rewards (R, parts) of a call; R may be 0."""

    @contextmanager
    def restored(self, trainer_state: Any) -> Iterator[None]:
        """Puts the state back at the end: for calls with captions that are not trained on, such as held-out ones."""
        key, kept = f"capreward:{self.__name__}", getattr(trainer_state, "stateful_callbacks", None)
        kept = {} if kept is None else kept
        before = self._trainer, self._start, copy.deepcopy(self._state)
        stored = {key: copy.deepcopy(kept[key])} if key in kept else {}
        try:
            yield
        finally:
            self._trainer, self._start, self._state = before
            kept.pop(key, None)
            kept.update(stored)

    def state_dict(self) -> dict[str, Any]:
        """A copy of the state: numbers and lists of them, which JSON can hold."""
        return copy.deepcopy(self._state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes a state over, for trainers that keep none, or to begin a training with it.

        Raises:
            ConfigError: it is not a state of such a reward.
        """
        if state.keys() != self._start.keys() or any(
            np.shape(state[key]) != np.shape(self._start[key]) for key in state
        ):
            raise ConfigError(f"{self.__name__}: the state must be like {self._start!r}, got {dict(state)!r:.200}")
        self._start, self._state = copy.deepcopy(dict(state)), copy.deepcopy(dict(state))

    def _learn(self, table: np.ndarray, call: Call) -> tuple[dict[str, Any], dict[str, Any]]:
        """The states before and after this call."""
        if call.columns is None:
            return self._state, self._state
        trainer, key = call.trainer_state, f"capreward:{self.__name__}"
        kept = getattr(trainer, "stateful_callbacks", None)
        if kept is not None and (self._trainer is None or self._trainer() is not trainer):
            self._trainer, start = weakref.ref(trainer), self._start
            if key in kept:
                self.load_state_dict(kept[key])
                self._start = start  # the next training begins anew
            else:
                self._state = copy.deepcopy(start)
                if trainer.global_step:
                    logger.warning(
                        "%s: the training resumes after step %d, and its checkpoint holds no state of this reward, "
                        "which starts from scratch. Give it the name that it had in the first run",
                        self.__name__,
                        trainer.global_step,
                    )
        before = self._state
        self.learn(table, call)
        if kept is not None:
            kept[key] = self.state_dict()
        return before, self._state

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_trainer": None}


class StandardisedReward(LearningReward):
    """A reward minus its mean, divided by its standard deviation: rewards of different scales become comparable.

    With `over="run"`, mean and deviation are those of all captions of the training so far, this call's included; they
    are checkpointed, see `LearningReward`. With `over="group"`, they are those of the captions of the same image,
    references and prompt in the call; a group must not be split over processes, see `TournamentReward`.

    Args:
        reward: see `Combination`.
        over: `"run"` or `"group"`.
        least_std: deviations below it count as this much. Otherwise the noise of nearly equal rewards becomes as large
            as any difference. In the units of `reward`, above 0.
        name: default: `standardised` and the name of the part.

    Raises:
        ConfigError: a setting is not usable; or `rewards` is called before there is a mean to subtract.

    Example:
        >>> def words(completions, **kwargs):
        ...     return [float(len(text.split())) for text in completions]
        >>> StandardisedReward(words)(["p"] * 2, ["A star.", "A red star on."])
        [-1.0, 1.0]
    """

    def __init__(
        self,
        reward: Callable[..., Any],
        *,
        over: Literal["run", "group"] = "run",
        least_std: float = 1e-4,
        name: str | None = None,
    ) -> None:
        if over not in ("run", "group"):
            raise ConfigError(f'over must be "run" or "group", got {over!r}')
        if not 0 < least_std < math.inf:
            raise ConfigError(f"least_std must be a number above 0, got {least_std!r}")
        super().__init__([reward], "standardised", name, {"count": 0.0, "mean": 0.0, "squares": 0.0})
        self.over, self.least_std = over, least_std

    def combine(self, table: np.ndarray, rows: np.ndarray, call: Call) -> np.ndarray:
        """See `Combination`."""
        values = table[:, 0]
        if self.over == "group":
            centred = np.empty(len(values))
            for members in _groups(rows, call):
                centred[members] = self._standardise(values[members], values[members].mean(), values[members].std())
            return centred
        _, state = self._learn(table, call)
        count, mean, squares = (state[key] for key in ("count", "mean", "squares"))
        if not count and len(values):
            raise ConfigError(f"{self.__name__}: no rewards yet to standardise by; train with it, or load_state_dict")
        std = math.sqrt(squares / count) if count else 0.0
        if count:
            call.log("running_mean", mean)
            call.log("running_std", std)
        return self._standardise(values, mean, std)

    def learn(self, table: np.ndarray, call: Call) -> None:
        """See `LearningReward`."""
        values = table[:, 0]
        own = (len(values), float(values.mean()), float(values.var() * len(values))) if len(values) else (0, 0.0, 0.0)
        count, mean, squares = (self._state[key] for key in ("count", "mean", "squares"))
        for more, their_mean, their_squares in from_all_processes(own, call.trainer_state):
            if more:
                total, apart = count + more, their_mean - mean
                squares += their_squares + apart**2 * count * more / total
                mean += apart * more / total
                count = total
        self._state = {"count": float(count), "mean": float(mean), "squares": float(squares)}

    def _standardise(self, values: np.ndarray, mean: float, std: float) -> np.ndarray:
        return (values - mean) / max(std, self.least_std)


class ConstrainedReward(LearningReward):
    """A reward to be maximised while others stay above thresholds on average; the weights of those are learnt.

    The reward is `(r + sum of w_i * (c_i - t_i)) / (1 + sum of w_i)`. After each call, w_i grows by
    `rate * (t_i - mean c_i)` and never falls below 0: a constraint that holds loses its weight, one that is broken
    gains. At the threshold the weight stands still. This is the Lagrangian with projected gradient ascent;
    compare "Confronting Reward Model Overoptimization with Constrained RLHF" (2023). A gate vetoes single captions;
    a constraint is about the mean.

    The weights are checkpointed, see `LearningReward`, and logged as `<name>/weight_<part>`.

    Args:
        reward: what is maximised, see `Combination`.
        constraints: (reward function, threshold), such as `(vela.aspect("flu"), 0.8)`.
        rate: how fast weights are learnt, above 0. A shortfall of .1 at rate .1 adds .01 a call.
        start: weights at the beginning, at least 0.
        most: no weight grows above it. A constraint that cannot be met would drown the reward otherwise.
        name: default: `constrained` and the names of the parts.

    Raises:
        ConfigError: no constraint, a threshold outside the range of its reward, or a setting that is not usable.

    Example:
        >>> def score(completions, **kwargs):
        ...     return [1.0] * len(completions)
        >>> def fluent(completions, **kwargs):
        ...     return [0.5] * len(completions)
        >>> reward = ConstrainedReward(score, [(fluent, 0.75)], rate=4.0)
        >>> reward(["p"], ["c"]), reward.state_dict(), reward(["p"], ["c"])
        ([1.0], {'weights': [1.0]}, [0.375])
    """

    def __init__(
        self,
        reward: Callable[..., Any],
        constraints: Sequence[tuple[Callable[..., Any], float]],
        *,
        rate: float = 0.1,
        start: float = 0.0,
        most: float = 10.0,
        name: str | None = None,
    ) -> None:
        bound, thresholds = pairs_of(constraints, "constraints", "threshold")
        if not bound:
            raise ConfigError("constraints needs at least one (reward function, threshold), got none")
        if not 0 < rate < math.inf or not 0 <= start <= most < math.inf:
            raise ConfigError(f"needs rate > 0 and 0 <= start <= most, got rate={rate}, start={start}, most={most}")
        super().__init__([reward, *bound], "constrained", name, {"weights": [float(start)] * len(bound)})
        self.thresholds, self.rate, self.most = checked_thresholds(self, thresholds), rate, most

    @property
    def range(self) -> tuple[float, float]:
        """Bounds of the reward, whatever the weights."""
        bounds = [range_of(self.parts[0])]
        for part, threshold in zip(self.parts[1:], self.thresholds.tolist(), strict=True):
            low, high = range_of(part)
            bounds.append((low - threshold, high - threshold))
        return min(low for low, _ in bounds), max(high for _, high in bounds)

    def combine(self, table: np.ndarray, rows: np.ndarray, call: Call) -> np.ndarray:
        """See `Combination`."""
        before, _ = self._learn(table, call)
        weights = np.array(before["weights"])
        for part_name, weight in zip(self.part_names[1:], weights.tolist(), strict=True):
            call.log(f"weight_{part_name}", weight)
        return (table[:, 0] + (table[:, 1:] - self.thresholds) @ weights) / (1 + weights.sum())

    def learn(self, table: np.ndarray, call: Call) -> None:
        """See `LearningReward`."""
        weights = np.array(self._state["weights"])
        shares = from_all_processes((len(table), table[:, 1:].sum(axis=0)), call.trainer_state)
        count = sum(share[0] for share in shares)
        if count:
            short = self.thresholds - sum(share[1] for share in shares) / count
            self._state = {"weights": (weights + self.rate * short).clip(0, self.most).tolist()}


def _groups(rows: np.ndarray, call: Call) -> list[list[int]]:
    """Places of the rows that share image, references and prompt."""
    read = call.read()
    samples = [CaptionSample("a", read[row].image, read[row].references or ()) for row in rows]
    groups = group_samples(samples, contexts=[_text_of(call.prompts[row]) for row in rows])
    return [group.rows["a"] for group in groups]


def _text_of(prompt: Any) -> Any:
    """What is hashable of a prompt: its text, without images."""
    if isinstance(prompt, Mapping):
        return tuple((key, _text_of(value)) for key, value in prompt.items() if key in ("role", "content", "text"))
    return tuple(map(_text_of, prompt)) if isinstance(prompt, (list, tuple)) else prompt
