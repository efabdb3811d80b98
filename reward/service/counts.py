"""What the service counts, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60]


class Counts:
    """Counters of a process."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self.requests = Counter("capreward_requests", "Requests", ["path", "status"], registry=registry)
        self.seconds = Histogram("capreward_request_seconds", "Time", ["path"], registry=registry, buckets=_SECONDS)
        self.waiting = Gauge("capreward_requests_under_way", "Requests without an answer", registry=registry)
        self._captions = Counter("capreward_captions", "Captions", ["metric", "outcome"], registry=registry)

    def captions(self, metric: str, scored: int, failed: int) -> None:
        """Counts the captions of a request."""
        self._captions.labels(metric, "scored").inc(scored)
        self._captions.labels(metric, "not scored").inc(failed)

    def text(self) -> bytes:
        """All counts in Prometheus's format."""
        return generate_latest(self._registry)
