"""Requests made up from the service's own OpenAPI description: none makes it fail or hold on to memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.reward.service.in_process import App

pytestmark = pytest.mark.slow

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis needs Python 3.11")
own = settings(
    max_examples=12,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode))
def test_no_request_makes_the_service_fail(mode: schemathesis.GenerationMode, tmp_path: Path) -> None:
    app = App("unigram", image_root=tmp_path)
    seen = set()
    for result in schemathesis.openapi.from_asgi("/openapi.json", app.app).get_all_operations():

        @own
        @given(case=result.ok().as_strategy(generation_mode=mode))
        def send(case: schemathesis.Case) -> None:
            response = case.call()
            assert response.status_code < 500, (case.as_curl_command(), response.text)
            seen.add((case.path, response.status_code))

        try:
            send()
        except Exception as error:  # a path without parameters has nothing to get wrong
            if type(error).__name__ != "Unsatisfiable":
                raise
    assert ("/score", 200 if mode == schemathesis.GenerationMode.POSITIVE else 422) in seen
    assert app.post("/score", {"caption": "A star.", "references": "A star."})["samples"][0]["scores"] == [[1.0]]
