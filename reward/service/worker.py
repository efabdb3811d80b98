"""What a worker process does: it loads the metrics, and scores the captions of many requests in one call."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import connection, parent_process
from typing import Any

import reward
from reward.errors import ConfigError
from reward.fingerprint_objects import fingerprint_scorer, is_told
from reward.fingerprints import metric_identity
from reward.metrics.base import Scorer
from reward.registry import MetricSource
from reward.samples import CaptionSample
from reward.service.settings import ServiceSettings

__all__ = ["Job", "JobReply", "Worker", "end_with_parent"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """Captions of one request; images are encoded bytes. Without samples, only facts are asked for."""

    metric: str
    samples: list[CaptionSample] = field(default_factory=list)
    is_alone: bool = False  # not to be scored together with other requests


@dataclass
class JobReply:
    """Scores (N, A) as lists with None for NaN, or `problem`; `batch` counts what was scored together."""

    facts: dict[str, Any]
    scores: list[list[float | None]] = field(default_factory=list)
    errors: dict[int, str] = field(default_factory=dict)
    truncated: list[bool] = field(default_factory=list)
    batch: dict[str, float] = field(default_factory=dict)
    problem: str | None = None


class Worker:
    """The scorers of a process.

    Args:
        settings: of the service.
        device: such as `cpu` or `cuda:1`.
    """

    def __init__(self, settings: ServiceSettings, device: str) -> None:
        self.settings = settings
        self.scorers: dict[str, Scorer] = {}
        self.facts: dict[str, dict[str, Any]] = {}
        for metric in settings.metrics:
            options = {"device": device} | ({"dtype": settings.dtype} if settings.dtype else {})
            scorer = metric.load(**options)
            if scorer.spec.needs_corpus:
                raise ConfigError(
                    f"metric {metric.name!r} weighs words by a corpus and has none: serve a folder in which a fitted "
                    f"scorer was saved, --metric {metric.name}=FOLDER"
                )
            self.scorers[metric.name] = scorer
            self.facts[metric.name] = describe(metric, scorer, settings.dtype)

    def run(self, jobs: list[Job]) -> list[JobReply]:
        """Replies to the jobs, in order. Jobs of one metric are scored in one call, which shares images."""
        replies: dict[int, JobReply] = {}
        for name in dict.fromkeys(job.metric for job in jobs):
            rows = [row for row, job in enumerate(jobs) if job.metric == name]
            replies.update(zip(rows, self._score(name, [jobs[row] for row in rows]), strict=True))
        return [replies[row] for row in range(len(jobs))]

    def _score(self, name: str, jobs: list[Job]) -> list[JobReply]:
        facts = self.facts[name]
        samples = [sample for job in jobs for sample in job.samples]
        if not samples:
            return [JobReply(facts) for _ in jobs]
        try:
            table = self.scorers[name].score(samples, batch_size=self.settings.batch_size)
        except Exception as error:  # whatever it is, the worker must go on, and no request may spoil another
            if len(jobs) > 1:
                return [reply for job in jobs for reply in self._score(name, [job])]
            logger.exception("%s: a request could not be scored", name)
            return [JobReply(facts, problem=f"{type(error).__name__}: {error}"[:500])]
        replies, start = [], 0
        for job in jobs:
            rows = range(start, start + len(job.samples))
            start = rows.stop
            replies.append(
                JobReply(
                    facts,
                    [[None if value != value else value for value in table.scores[row].tolist()] for row in rows],
                    {row - rows.start: table.errors[row] for row in rows if row in table.errors},
                    table.truncated[rows.start : rows.stop].tolist(),
                )
            )
        replies[0].batch = {"requests": len(jobs), "captions": len(samples)}
        return replies


def describe(metric: MetricSource, scorer: Scorer, dtype: str | None) -> dict[str, Any]:
    """Facts of a loaded metric for `/info` and replies, with an `identity` that changes whenever scores may."""
    spec = scorer.spec
    given = {
        **metric_identity(spec, metric.source, revision=metric.revision, dtype=dtype, options=dict(metric.options)),
        "aspects": list(spec.aspects),
        "settings": held if is_told(held := fingerprint_scorer(scorer)) else None,  # clients keep to it after a restart
    }
    identity = hashlib.sha256(json.dumps(given, sort_keys=True, default=str).encode()).hexdigest()[:16]
    return {
        "metric": metric.name,
        "identity": identity,
        "version": reward.__version__,
        "aspects": list(spec.aspects),
        "reads_images": bool(getattr(scorer, "reads_images", spec.needs_image)),
        "reads_references": bool(getattr(scorer, "reads_references", True)),
        "aliases": dict(spec.aliases),
        "columns": list(spec.columns),
        "needs_image": spec.needs_image,
        "needs_references": spec.needs_references,
        "range": [bound if abs(bound) != float("inf") else None for bound in spec.range],  # JSON has no infinity
        "default_weights": dict(spec.default_weights) if spec.default_weights is not None else None,
        "paper": spec.paper,
    }


def end_with_parent(first: Callable[[], None] | None = None) -> None:
    """Ends this process when its parent is gone, however it went; calls `first` before."""
    parent = parent_process()
    if parent is None:
        return

    def watch() -> None:
        connection.wait([parent.sentinel])
        try:
            if first is not None:
                first()
        finally:
            os._exit(1)

    threading.Thread(target=watch, name="watch-parent", daemon=True).start()
