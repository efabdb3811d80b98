"""Starts a service and stops it."""

from __future__ import annotations

from reward.service.app import make_app
from reward.service.settings import ServiceSettings
from reward.service.workers import Workers

__all__ = ["run_service"]


def run_service(settings: ServiceSettings) -> None:
    """Serves until SIGTERM or Ctrl-C."""
    workers = Workers(settings)
    workers.serve(make_app(settings, workers, workers.lifespan))
