"""RemoteReward: a metric behind a reward service as a reward function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reward.metrics.base import Scorer
from reward.metrics.options import split_options
from reward.remote.scorer import RemoteScorer
from reward.rewards.completions import RowReader
from reward.rewards.metric_reward import MetricReward


class RemoteReward(MetricReward):
    """A metric of a reward service (`capreward serve`) as a reward function; needs no GPU and no weights here.

    It is a `MetricReward` in everything else. The first call raises if the service cannot be reached or serves another
    metric; later, rows without an answer get None and are counted in `failures`. It can be pickled, and then keeps to
    the checkpoint that it found. Calls of several threads go on beside each other. For an asynchronous trainer wrap
    it: `AsyncReward(RemoteReward(...))`.

    Args:
        url: address, such as `"http://127.0.0.1:8123"`; several replicas as a list, or separated by commas.
        metric: which of the service's metrics; None takes its only one, and asks for it at once.
        weights: {aspect: weight}, see `MetricReward`.
        options: settings of `RemoteScorer`, such as api_key, identity, timeout, patience and image_root, and further
            arguments of `MetricReward`, such as name and image_column.

    Example:
        >>> RemoteReward("http://127.0.0.1:8123", "vela", {"rel": 1}).__name__
        'vela_rel'
    """

    def __init__(
        self,
        url: str | Sequence[str],
        metric: str | None = None,
        weights: Mapping[str, float] | None = None,
        **options: Any,
    ) -> None:
        settings, options = split_options(RemoteScorer, options)
        self.scorer = RemoteScorer(url, metric, **settings)
        super().__init__(self.scorer, weights=weights, **options)
        self.source = ",".join(self.scorer.urls)

    def _load(self) -> tuple[Scorer, RowReader]:
        self.scorer.connect()  # only the service knows what its checkpoint needs
        return super()._load()
