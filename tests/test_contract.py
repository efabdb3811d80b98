"""The contract of scorers, for every metric that works without a checkpoint of the user."""

from __future__ import annotations

import pytest

from reward import list_metrics, load_scorer, metric_spec
from reward.errors import MissingExtraError
from reward.metrics.base import Scorer, fitted
from tests.contract import SAMPLES, ScorerContract

pytestmark = pytest.mark.slow

# The others have their own tests, on checkpoints made there. BLEU-4 stands for the four orders of BLEU.
SHIPPED = [
    spec.name
    for spec in map(metric_spec, list_metrics())
    if (spec.has_embedded or spec.needs_corpus) and spec.name not in ("bleu1", "bleu2", "bleu3")
]


@pytest.fixture(scope="class", params=SHIPPED)
def scorer(request: pytest.FixtureRequest) -> Scorer:
    try:
        return fitted(load_scorer(request.param, device="cpu"), [sample.references for sample in SAMPLES])
    except MissingExtraError as error:
        pytest.skip(str(error).split(". ")[0])


class TestInstalledMetrics(ScorerContract):
    """The contract, once a metric."""
