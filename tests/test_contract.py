"""Every installed metric, with the checkpoint that ships with the package, keeps the contract of scorers."""

from __future__ import annotations

import pytest

from reward import list_metrics, load_scorer, metric_spec
from reward.errors import MissingExtraError
from reward.metrics.base import Scorer, fitted
from tests.contract import SAMPLES, ScorerContract


@pytest.fixture(scope="class", params=list_metrics())
def scorer(request: pytest.FixtureRequest) -> Scorer:
    spec = metric_spec(request.param)
    if not spec.has_embedded and not spec.needs_corpus:
        pytest.skip(f"metric {spec.name!r} ships no checkpoint")
    try:
        return fitted(load_scorer(spec.name, device="cpu"), [sample.references for sample in SAMPLES])
    except MissingExtraError as error:
        pytest.skip(str(error).split(". ")[0])


class TestInstalledMetrics(ScorerContract):
    """The contract, once a metric."""
