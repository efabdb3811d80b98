"""Requests made up from the service's own OpenAPI description: none makes it fail, die, or hold on to memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from reward import CaptionSample, load_scorer
from reward.remote.scorer import RemoteScorer
from tests.toys.loopback_service import LoopbackService, loopback_service

pytestmark = pytest.mark.slow

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis needs Python 3.11")

REQUESTS = 24  # for each path


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackService]:
    root = tmp_path_factory.mktemp("images")
    options = ("--metric", "unigram", "--devices", "cpu", "--image-root", str(root))
    with loopback_service(*options) as running:
        yield running


def memory(service: LoopbackService) -> float:
    """Megabytes that the processes of a service hold."""
    total = 0
    for pid in service.processes():
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            total += int(line.split()[1]) if line.startswith("VmRSS") else 0
    return total / 1024


def test_no_request_makes_the_service_fail(service: LoopbackService) -> None:
    description = schemathesis.openapi.from_url(f"{service.url}/openapi.json")
    before, processes = memory(service), set(service.processes())
    seen = set()
    for result in description.get_all_operations():
        operation = result.ok()
        for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):

            @settings(
                max_examples=REQUESTS // 2,
                deadline=None,
                database=None,
                derandomize=True,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def send(case: schemathesis.Case) -> None:
                response = case.call(timeout=20)
                assert response.status_code < 500, (case.as_curl_command(), response.text)
                seen.add((case.path, response.status_code))

            try:
                send()
            except Exception as error:  # a path without parameters has nothing to get wrong
                if type(error).__name__ != "Unsatisfiable":
                    raise
    assert {("/score", 200), ("/score", 422)} <= seen
    assert memory(service) < before + 100
    assert set(service.processes()) == processes
    sample = CaptionSample("A red star.", None, ["A star."])
    expected = load_scorer("unigram").score([sample]).scores
    assert (RemoteScorer(service.url).score([sample]).scores == expected).all()
