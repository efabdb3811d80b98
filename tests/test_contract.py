"""The contract of scorers, for every metric that works without a checkpoint of the user.

The others, and those that count n-grams in Java, hold it beside their own tests, on checkpoints made there.
"""

import pytest

from reward import list_metrics, load_scorer, metric_spec
from tests.contract import ScorerContract

pytestmark = pytest.mark.slow

SHIPPED = [spec.name for spec in map(metric_spec, list_metrics()) if spec.has_embedded and spec.extra != "ngrams"]


@pytest.fixture(scope="class", params=SHIPPED)
def scorer(request):
    return load_scorer(request.param, device="cpu")


class TestInstalledMetrics(ScorerContract):
    """The contract, once a metric."""
