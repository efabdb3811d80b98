"""Rewards for frameworks that ask for one caption at a time: requests that come together become one call."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from reward.aspect_weights import parse_weights
from reward.data.samples import column_names
from reward.errors import InvalidSampleError
from reward.rewards.metric_reward import MetricReward
from reward.rewards.remote_reward import RemoteReward

_configured: dict[str, GatheredReward] = {}
_configuring = threading.Lock()


@dataclass(frozen=True)
class RowReward:
    """The reward of one caption: `value` is None if it cannot be scored; `aspects` are its scores, NaN for none."""

    value: float | None
    aspects: Mapping[str, float] = field(default_factory=dict)

    def number(self, missing: float | None) -> float:
        """The reward, for a framework that cannot leave a row out.

        Args:
            missing: what a row without a reward gets; None raises.

        Example:
            >>> RowReward(0.5).number(None), RowReward(None).number(0.0)
            (0.5, 0.0)
        """
        value = missing if self.value is None else self.value
        if value is None:
            raise InvalidSampleError(
                "a caption has no reward (a warning in the log says why), and this framework cannot leave it out. "
                "Repair or remove such rows, or set missing=NUMBER, which is then their reward"
            )
        return float(value)


class GatheredReward:
    """Collects captions that coroutines or threads submit one at a time, and rates them in batches.

    The first request waits a short time for others to join. Requests that arrive while a batch is rated form the next
    one. So the captions of one image share its encoding although the framework asks for each reward separately.

    Args:
        reward: a reward function with a trainer's call, such as `VelaReward()`.
        wait: seconds that the first request waits.
        most: most captions of one call.

    Example:
        >>> gathered = GatheredReward(MetricReward("length"))
        >>> asked = [gathered.ask(text) for text in ("A red star.", "A star.")]
        >>> [future.result().value for future in asked]
        [3.0, 2.0]
    """

    def __init__(self, reward: Callable[..., Sequence[float | None]], *, wait: float = 0.01, most: int = 256) -> None:
        self.reward, self.wait, self.most = reward, wait, most
        self._lock = threading.Lock()
        self._asked: list[tuple[Future[RowReward], Any, Mapping[str, Any]]] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gathered-reward")

    def ask(
        self, caption: Any, image: Any = None, references: Any = None, row: Mapping[str, Any] | None = None
    ) -> Future[RowReward]:
        """Puts a caption into the next call. `asyncio.wrap_future` awaits the answer, `.result()` waits in a thread.

        Args:
            caption, image, references: as in a row of a trainer's call.
            row: values of the caption's row by name, of which those are taken that the metric needs besides.
        """
        roles = getattr(getattr(self.reward, "spec", None), "columns", ())
        names = [name for role in roles for name in column_names(role) if name in (row or {})]
        columns = {"images": image, "references": references, **{name: (row or {})[name] for name in names}}
        future: Future[RowReward] = Future()
        with self._lock:
            self._asked.append((future, caption, columns))
        self._thread.submit(self._answer)
        return future

    def _rate(self, captions: Sequence[Any], columns: Sequence[Mapping[str, Any]]) -> list[RowReward]:
        found: dict[str, list[float]] = {}
        values = self.reward(
            prompts=[None] * len(captions),
            completions=list(captions),
            log_extra=found.__setitem__,
            **{name: [each.get(name) for each in columns] for name in dict.fromkeys(chain(*columns))},
        )
        names = [name.rpartition("/")[2] for name in found]
        scores = zip(*found.values(), strict=True) if found else [()] * len(captions)
        return [RowReward(value, dict(zip(names, row, strict=True))) for value, row in zip(values, scores, strict=True)]

    def _answer(self) -> None:
        if not self._asked:
            return  # an earlier turn has answered this request
        if len(self._asked) < self.most:
            time.sleep(self.wait)
        with self._lock:
            taken, self._asked = self._asked[: self.most], self._asked[self.most :]
        rows = [row for row in taken if row[0].set_running_or_notify_cancel()]
        if not rows:
            return
        futures, captions, columns = zip(*rows, strict=True)
        try:
            results = self._rate(captions, columns)
        except BaseException as error:  # whoever asked is to see it, of whatever kind
            for future in futures:
                future.set_exception(error)
        else:
            for future, result in zip(futures, results, strict=True):
                future.set_result(result)


def make_reward(
    metric: str = "vela",
    source: Any = "embedded",
    weights: Mapping[str, float] | str | None = None,
    *,
    missing: float | None = None,
    **options: Any,
) -> MetricReward:
    """The reward of settings as they come from a configuration file or a command line.

    Args:
        metric: name of a metric; `"remote"` asks a reward service.
        source: its checkpoint, or the address of the service, with `#vela` behind it where it has several metrics.
        weights: {aspect: weight}, or text such as `"desc=1,rel=2"`.
        missing: what the framework gives a row without a reward, see `RowReward.number`. With a number, a first call
            in which no row can be scored is warned of and does not raise: it may be of one caption, with a bad image.
        options: further arguments of `MetricReward`, such as device, dtype and batch_size, or of `RemoteReward`.

    Example:
        >>> make_reward("vela", weights="rel=2,flu=2").__name__
        'vela_rel_flu'
    """
    chosen = parse_weights(weights) if isinstance(weights, str) else None if weights is None else dict(weights)
    if metric == "remote":
        reward: MetricReward = RemoteReward(source, None, chosen, **options)
    else:
        reward = MetricReward(metric, source, chosen, **options)
    reward.goes_on = missing is not None
    return reward


def configured_reward(*, wait: float = 0.01, **settings: Any) -> GatheredReward:
    """The reward of `make_reward(**settings)`, made once a process: frameworks pass settings with every call.

    Args:
        wait: seconds that a first request waits for others, see `GatheredReward`.
        settings: see `make_reward`, `missing` among them.

    Example:
        >>> configured_reward(metric="length") is configured_reward(metric="length")
        True
    """
    key = json.dumps([wait, settings], sort_keys=True, default=repr)
    with _configuring:
        if key not in _configured:
            _configured[key] = GatheredReward(make_reward(**settings), wait=wait)
        return _configured[key]
