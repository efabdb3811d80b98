"""Every installed metric, with the checkpoint that ships with the package, keeps the contract of scorers."""

from __future__ import annotations

import pytest

from reward import list_metrics, load_scorer, metric_spec
from reward.metrics.base import Scorer
from tests.contract import ScorerContract


@pytest.fixture(scope="class", params=list_metrics())
def scorer(request: pytest.FixtureRequest) -> Scorer:
    spec = metric_spec(request.param)
    if not spec.has_embedded:
        pytest.skip(f"metric {spec.name!r} ships no checkpoint")
    return load_scorer(spec.name, device="cpu")


class TestInstalledMetrics(ScorerContract):
    """The contract, once a metric."""
