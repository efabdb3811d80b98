"""Rewards for frameworks that ask for one caption at a time: requests that come together become one call."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from reward.aspect_weights import parse_weights
from reward.data.column_names import column_names
from reward.errors import InvalidSampleError
from reward.rewards.metric_reward import MetricReward
from reward.rewards.named_rewards import RemoteReward

_configured: dict[str, GatheredReward] = {}
_configuring = threading.Lock()


@dataclass(frozen=True)
class RowReward:
    """The reward of one caption: `value` is None if it cannot be scored; `aspects` are its scores, NaN for none."""

    value: float | None
    aspects: Mapping[str, float] = field(default_factory=dict)

    def filled(self, missing: float | None) -> RowReward:
        """With numbers only, for a framework that cannot leave a row out.

        `missing` takes the place of a reward, and of scores, that are not there.

        Raises:
            InvalidSampleError: there is no reward, and `missing` is None.
        """
        if missing is None:
            if self.value is None:
                raise InvalidSampleError(
                    "a caption has no reward (a warning in the log says why), and this framework cannot leave it out. "
                    "Repair or remove such rows, or set missing=NUMBER, which is then their reward"
                )
            return self
        aspects = {name: missing if math.isnan(score) else score for name, score in self.aspects.items()}
        return RowReward(float(missing) if self.value is None else self.value, aspects)


@dataclass(frozen=True)
class _Request:
    """A caption that waits for its reward, with the cells of its row."""

    future: Future[RowReward]
    caption: Any
    columns: Mapping[str, Any]


class GatheredReward:
    """Collects captions that coroutines or threads submit one at a time, and rates them in batches.

    The first request waits a short time for others to join. Requests that arrive while a batch is rated form the next
    one. So the captions of one image share its encoding although the framework asks for each reward separately.

    Args:
        reward: a reward function with a trainer's call, such as `VelaReward()`.
        wait: seconds that the first request waits.

    Example:
        >>> gathered = GatheredReward(MetricReward("length"))
        >>> futures = [gathered.ask(text) for text in ("A red star.", "A star.")]
        >>> [future.result().value for future in futures]
        [3.0, 2.0]
    """

    def __init__(self, reward: Callable[..., Sequence[float | None]], *, wait: float = 0.01) -> None:
        self.reward, self.wait = reward, wait
        self._lock = threading.Lock()
        self._requests: list[_Request] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gathered-reward")

    def ask(
        self, caption: Any, image: Any = None, references: Any = None, row: Mapping[str, Any] | None = None
    ) -> Future[RowReward]:
        """Puts a caption into the next call. `asyncio.wrap_future` awaits the answer, `.result()` waits in a thread.

        Args:
            caption, image, references: as in a row of a trainer's call.
            row: values of the caption's row by name, of which those are taken that the metric needs besides.
        """
        columns = {"images": image, "references": references}
        spec = getattr(self.reward, "spec", None)
        if spec is not None and row is not None:
            for role in spec.columns:
                columns |= {name: row[name] for name in column_names(role) if name in row}
        request = _Request(Future(), caption, columns)
        with self._lock:
            self._requests.append(request)
        self._thread.submit(self._answer)
        return request.future

    def _answer(self) -> None:
        """Rates what has come until now, in the one thread that does."""
        # Each request puts a turn into the queue of the thread, and a turn answers all that wait.
        if not self._requests:
            return
        # The first one waits for those that come at the same time, so that the captions of an image come together.
        time.sleep(self.wait)
        with self._lock:
            waiting, self._requests = self._requests, []
        requests = [request for request in waiting if request.future.set_running_or_notify_cancel()]
        if not requests:
            return
        try:
            rewards = self._rate(requests)
        except BaseException as error:  # whoever waits is to see it, of whatever kind
            for request in requests:
                request.future.set_exception(error)
        else:
            for request, reward in zip(requests, rewards, strict=True):
                request.future.set_result(reward)

    def _rate(self, requests: Sequence[_Request]) -> list[RowReward]:
        names = dict.fromkeys(name for request in requests for name in request.columns)
        scores: dict[str, list[float]] = {}  # of the aspects, as the reward logs them
        values = self.reward(
            prompts=[None] * len(requests),
            completions=[request.caption for request in requests],
            log_extra=scores.__setitem__,
            **{name: [request.columns.get(name) for request in requests] for name in names},
        )
        rewards = []
        for row, value in enumerate(values):
            aspects = {name.rpartition("/")[2]: column[row] for name, column in scores.items()}
            rewards.append(RowReward(value, aspects))
        return rewards


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
        missing: what the framework gives a row without a reward, see `RowReward.filled`. With a number, a first call
            in which no row can be scored does not raise: it may be of one caption, with a bad image.
        options: further arguments of `MetricReward`, such as device, dtype and batch_size, or of `RemoteReward`.

    Example:
        >>> make_reward("vela", weights="rel=2,flu=2").__name__
        'vela_rel_flu'
    """
    if isinstance(weights, str):
        weights = parse_weights(weights)
    elif weights is not None:
        weights = dict(weights)  # a configuration may have a mapping of its own kind
    if metric == "remote":
        reward: MetricReward = RemoteReward(source, None, weights, **options)
    else:
        reward = MetricReward(metric, source, weights, **options)
    reward.goes_on = missing is not None
    return reward


def configured_reward(*, wait: float = 0.01, **settings: Any) -> GatheredReward:
    """The reward of `make_reward(**settings)`, made once a process: frameworks pass settings with every call.

    Args:
        wait: seconds that a first request waits for others, see `GatheredReward`.
        settings: see `make_reward`, `missing` among them.
    """
    # What JSON does not have, such as a device or a configuration's own kind of mapping, its repr tells apart.
    key = json.dumps([wait, settings], sort_keys=True, default=repr)
    with _configuring:
        if key not in _configured:
            _configured[key] = GatheredReward(make_reward(**settings), wait=wait)
        return _configured[key]
