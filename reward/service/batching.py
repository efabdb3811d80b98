"""The scoring thread of a process: it loads the metrics, and scores the requests that wait together."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import reward
from reward.checkpoints.fingerprint_objects import fingerprint_scorer, is_told
from reward.checkpoints.fingerprints import metric_identity
from reward.data.samples import CaptionSample
from reward.data.score_table import ScoreTable
from reward.errors import ConfigError
from reward.metrics.base import Scorer
from reward.registry import MetricSource
from reward.service.counts import Counts
from reward.service.settings import ServiceSettings

logger = logging.getLogger(__name__)


@dataclass
class _Request:
    metric: str
    samples: list[CaptionSample]
    reply: Future[ScoreTable] = field(default_factory=Future)


class ScoringThread:
    """Scores requests in a thread of its own, those that wait at one time together, so that they share images.

    Args:
        settings: of the service.
        device: such as `cpu` or `cuda:1`.
        give_up: is called, in the thread, with the reason why the metrics cannot be loaded.
        on_ready: is called, in the thread, when they are loaded.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        device: str,
        give_up: Callable[[Exception], None],
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings, self.counts = settings, Counts()
        self.facts: dict[str, dict[str, Any]] = {}  # of each metric, once they are loaded
        self._device, self._give_up, self._on_ready = device, give_up, on_ready
        self._requests: queue.SimpleQueue[_Request] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="scoring", daemon=True).start()

    async def ask(self, metric: str, samples: list[CaptionSample]) -> ScoreTable:
        """Scores of captions; images are encoded bytes.

        Raises:
            asyncio.TimeoutError: there are none in time.

        What the metric raises is raised, too.
        """
        request = _Request(metric, samples)
        self._requests.put(request)
        return await asyncio.wait_for(asyncio.wrap_future(request.reply), self.settings.timeout)

    def _run(self) -> None:
        try:
            scorers = {metric.name: self._load(metric) for metric in self.settings.metrics}
        except Exception as error:
            self._give_up(error)
            return
        self.facts = {
            metric.name: describe_metric(metric, scorers[metric.name], self.settings.dtype)
            for metric in self.settings.metrics
        }
        self._on_ready()
        gc.freeze()  # walking through loaded networks would hold up requests for a quarter of a second
        while True:
            batch = self._batch()
            for metric in dict.fromkeys(request.metric for request in batch):
                self._score(scorers[metric], [request for request in batch if request.metric == metric])

    def _load(self, metric: MetricSource) -> Scorer:
        options: dict[str, Any] = {"device": self._device}
        if self.settings.dtype:
            options["dtype"] = self.settings.dtype
        scorer = metric.load(**options)
        if scorer.spec.needs_corpus:
            raise ConfigError(
                f"metric {metric.name!r} weighs words by a corpus and has none: serve a folder in which a fitted "
                f"scorer was saved, --metric {metric.name}=FOLDER"
            )
        return scorer

    def _batch(self) -> list[_Request]:
        """The requests that are scored next; those for which nobody waits any more are left out."""
        batch = [self._requests.get()]
        # Requests of one training step come within milliseconds of each other; together they fill a forward pass.
        end = time.monotonic() + self.settings.batch_wait
        while len(batch) < self.settings.batch_requests:
            try:
                batch.append(self._requests.get(timeout=max(0.0, end - time.monotonic())))
            except queue.Empty:
                break
        return [request for request in batch if request.reply.set_running_or_notify_cancel()]

    def _score(self, scorer: Scorer, batch: list[_Request]) -> None:
        samples = [sample for request in batch for sample in request.samples]
        try:
            table = scorer.score(samples, batch_size=self.settings.batch_size)
        except Exception as error:  # whatever it is, the service must go on, and no request may spoil another
            if len(batch) > 1:
                for request in batch:
                    self._score(scorer, [request])
                return
            logger.exception("%s: a request could not be scored", batch[0].metric)
            batch[0].reply.set_exception(error)
            return
        start = 0
        for request in batch:
            end = start + len(request.samples)
            errors = {row - start: why for row, why in table.errors.items() if start <= row < end}
            part = ScoreTable(table.scores[start:end], table.aspects, errors, table.truncated[start:end])
            request.reply.set_result(part)
            start = end


def describe_metric(metric: MetricSource, scorer: Scorer, dtype: str | None) -> dict[str, Any]:
    """Facts of a loaded metric for `/info` and replies, with an `identity` that changes whenever scores may."""
    spec = scorer.spec
    settings: Any = fingerprint_scorer(scorer)
    if not is_told(settings):  # it would differ after a restart, and clients keep to the identity of their first reply
        settings = None
    facts = metric_identity(spec, metric.source, revision=metric.revision, dtype=dtype, options=dict(metric.options))
    facts.update(aspects=list(spec.aspects), settings=settings)
    return {
        "aspects": spec.aspects,
        "aliases": spec.aliases,
        "columns": spec.columns,
        "needs_image": spec.needs_image,
        "needs_references": spec.needs_references,
        "default_weights": spec.default_weights,
        "paper": spec.paper,
        "metric": metric.name,
        "identity": hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:16],
        "version": reward.__version__,
        "reads_images": bool(getattr(scorer, "reads_images", spec.needs_image)),
        "reads_references": bool(getattr(scorer, "reads_references", True)),
        "range": [bound if abs(bound) != float("inf") else None for bound in spec.range],  # JSON has no infinity
    }
