"""The metrics of a process, and what is said of them."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import reward
from reward.errors import ConfigError
from reward.fingerprint_objects import fingerprint_scorer, is_told
from reward.fingerprints import metric_identity
from reward.metrics.base import Scorer
from reward.registry import MetricSource
from reward.service.settings import ServiceSettings

__all__ = ["describe", "load_metrics"]


def load_metrics(settings: ServiceSettings, device: str) -> tuple[dict[str, Scorer], dict[str, dict[str, Any]]]:
    """{metric: its scorer} and {metric: its facts}.

    Raises:
        ConfigError: a metric that weighs words has no corpus.
        CheckpointError: a checkpoint cannot be loaded.
    """
    scorers, facts = {}, {}
    for metric in settings.metrics:
        scorer = metric.load(device=device, **({"dtype": settings.dtype} if settings.dtype else {}))
        if scorer.spec.needs_corpus:
            raise ConfigError(
                f"metric {metric.name!r} weighs words by a corpus and has none: serve a folder in which a fitted "
                f"scorer was saved, --metric {metric.name}=FOLDER"
            )
        scorers[metric.name] = scorer
        facts[metric.name] = describe(metric, scorer, settings.dtype)
    return scorers, facts


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
