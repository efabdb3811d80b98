"""Requests to the service, and its settings."""

from __future__ import annotations

import asyncio
import base64
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from reward import CaptionSample, MetricReward, load_scorer
from reward.errors import ConfigError
from reward.metrics.words.scorer import LengthScorer
from reward.registry import MetricSource
from reward.service import scoring
from reward.service.counts import Counts
from reward.service.guard import Guard
from reward.service.images import read_image
from reward.service.settings import ServiceSettings
from tests.reward.service.in_process import App
from tests.toys.pictures import png

CAPTIONS = ["A red star.", "Two dogs run.", "...", " ", "\ud800"]
REFERENCES = ["A red star shines."]
PNG = base64.b64encode(png("red", (32, 32))).decode()


@pytest.fixture(scope="module")
def app() -> App:
    return App("unigram")


def test_scores_and_rewards_are_those_in_process(app: App) -> None:
    reply = app.post("/score", {"samples": [{"candidates": CAPTIONS, "references": REFERENCES}] * 2})
    samples = [CaptionSample(caption, None, REFERENCES) for caption in CAPTIONS[:3]]
    expected = load_scorer("unigram").score(samples).scores.tolist()
    for sample in reply["samples"]:
        assert sample["scores"] == [*expected, [None], [None]]
        assert sample["rewards"] == [*MetricReward("unigram").rewards(samples), 0.0, 0.0]  # " " has no word either
        assert "empty" in sample["errors"][3]
        assert "surrogate" in sample["errors"][4]
        assert sample["errors"][:3] == [None] * 3
    assert (reply["metric"], reply["aspects"]) == ("unigram", ["f1"])


def test_requests_that_are_scored_together_get_their_own_rows_and_reasons() -> None:
    thread = App("unigram", batch_requests=2, batch_wait=5.0).thread
    known, unknown = CaptionSample("A red dog.", None, REFERENCES), CaptionSample("Two dogs run.")
    asked = [[known], [CaptionSample("A star.", None, REFERENCES), unknown]]

    async def ask() -> Any:
        return await asyncio.gather(*(thread.ask("unigram", samples) for samples in asked))

    for table, samples in zip(asyncio.run(ask()), asked, strict=True):
        expected = load_scorer("unigram").score(samples)
        assert table.reward == pytest.approx(expected.reward, nan_ok=True)
        assert table.errors == expected.errors


def test_bodies_that_people_write_first() -> None:
    app = App("vela")
    expected = app.post("/score", {"samples": [{"candidates": ["A star."], "image": {"base64": PNG}}]})
    for image in (PNG, {"base64": PNG}, f"data:image/png;base64,{PNG}"):
        for name, value in (("caption", "A star."), ("candidate", "A star."), ("captions", ["A star."])):
            assert app.post("/score", {"image": image, name: value, "metric": "vela"}) == expected
    refused = app.send("POST", "/score", {}, headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert "with the header Content-Type: application/json" in refused.json()["error"]


def test_weights_of_aspects() -> None:
    asked = {"samples": [{"candidates": ["A star."], "image": {"base64": PNG}}], "weights": {"rel": 3, "flu": 1}}
    app = App("vela")
    sample = app.post("/score", asked)["samples"][0]
    _, relevance, fluency = sample["scores"][0]
    assert sample["rewards"][0] == pytest.approx(0.75 * relevance + 0.25 * fluency)
    assert "unknown aspect" in app.post("/score", {**asked, "weights": {"x": 1}}, 422)["error"]


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ({}, 'samples.0.candidates: Field required. A body that works: {"image": {"base64": '),
        ({"samples": [{"candidates": []}]}, "candidates"),
        ({"samples": [{"candidates": ["a"], "picture": "a.png"}]}, "picture"),
        ({"samples": [{"candidates": ["a"]}], "metric": "vela"}, "metric must be one of unigram"),
        ({"samples": [{"candidates": ["a"] * 1025}]}, "1024 captions"),
        ([1], "dictionary"),
    ],
)
def test_faults_of_requests_are_named(app: App, body: Any, fault: str) -> None:
    assert fault in app.post("/score", body, 422)["error"]


def test_info_names_metrics_and_limits(app: App) -> None:
    info = app.send("GET", "/info").json()
    assert info["metrics"]["unigram"]["aspects"] == ["f1"]
    assert info["metrics"]["unigram"]["identity"] == app.thread.facts["unigram"]["identity"]
    assert info["limits"]["max_candidates"] == 1024


def test_prometheus_counts() -> None:
    app = App("length")
    app.post("/score", {"samples": [{"candidates": ["A star.", " "]}]})
    app.send("GET", "/no/such/path")
    text = app.send("GET", "/metrics").text
    assert 'capreward_captions_total{metric="length",outcome="scored"} 1.0' in text
    assert 'capreward_captions_total{metric="length",outcome="not scored"} 1.0' in text
    assert 'capreward_requests_total{path="/score",status="200"} 1.0' in text
    assert 'capreward_requests_total{path="other",status="404"} 1.0' in text  # a client cannot make up label values


def test_a_metric_that_does_not_answer_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    app = App("length", timeout=0.05)
    score = LengthScorer.score
    late = lambda self, samples, **options: (time.sleep(0.5), score(self, samples, **options))[1]  # noqa: E731
    monkeypatch.setattr(LengthScorer, "score", late)
    app.post("/score", {"samples": [{"candidates": ["A star."]}]}, 504)


@pytest.mark.slow
def test_one_request_that_cannot_be_scored_spoils_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    app, score, together = App("length", batch_wait=1.0), LengthScorer.score, []

    def fail_sometimes(self: Any, samples: Any, **options: Any) -> Any:
        together.append(len(samples))
        if any(sample.candidate == "fail" for sample in samples):
            raise RuntimeError("out of memory")
        return score(self, samples, **options)

    monkeypatch.setattr(LengthScorer, "score", fail_sometimes)

    def ask(text: str) -> Any:
        return app.send("POST", "/score", {"samples": [{"candidates": [text]}]})

    with ThreadPoolExecutor(3) as pool:
        first, second, third = pool.map(ask, ("A star.", "fail", "A red star."))
    assert [reply.json()["samples"][0]["scores"] for reply in (first, third)] == [[[2.0]], [[3.0]]]
    assert (second.status_code, second.json()["error"]) == (500, "RuntimeError: out of memory")
    assert together == [3, 1, 1, 1]


def test_images_of_a_request_are_read_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    app, together = App("length"), threading.Barrier(3)

    def wait_for_the_others(image: Any, settings: ServiceSettings) -> bytes:
        together.wait(20)
        return read_image(image, settings)

    monkeypatch.setattr(scoring, "read_image", wait_for_the_others)
    images = [{"base64": base64.b64encode(png(colour, (8, 8))).decode()} for colour in ("red", "blue")]
    asked = [{"candidates": ["A star."], "image": image} for image in [*images, {"base64": "AAAA"}, images[0]]]
    samples = app.post("/score", {"samples": asked})["samples"]
    assert [sample["scores"] for sample in samples] == [[[2.0]], [[2.0]], [[None]], [[2.0]]]


def test_the_memory_of_bodies_counts_while_they_come() -> None:
    """Four bodies that are half there fill what is set aside; the next is told to come again, and finds room later."""
    guard = Guard(App("length").app, App("length", max_body=100_000_000).settings, Counts())
    guard.most_bytes = 100
    statuses: list[int] = []

    async def request(*parts: bytes, rest: asyncio.Event | None = None) -> None:
        messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]

        async def receive() -> Any:
            if not messages:
                await (rest or asyncio.Event()).wait()
                return {"type": "http.disconnect"}
            return messages.pop(0)

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        await guard({"type": "http", "path": "/score", "method": "POST", "headers": []}, receive, send)

    async def run() -> None:
        end = asyncio.Event()
        slow = [asyncio.create_task(request(b"x" * 20, b"x" * 5, rest=end)) for _ in range(4)]
        await asyncio.sleep(0.05)
        assert guard.held_bytes == 100
        await request(b"x")
        assert statuses == [429]
        end.set()
        await asyncio.gather(*slow)

    asyncio.run(run())
    assert statuses == [429] + [400] * 4
    assert guard.held_bytes == 0


# Settings


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"host": "0.0.0.0"}, "CAPREWARD_TOKEN"),
        ({"host": "::"}, "CAPREWARD_TOKEN"),
        ({"host": "example.org"}, "127.0.0.1"),
        ({"host": "192.0.2.7"}, "CAPREWARD_TOKEN"),
        ({"token": "short"}, "8 characters"),
        ({"token": "with a blank in it"}, "white space"),
        ({"port": 80}, "1024"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        ServiceSettings((MetricSource("length"),), **settings).places()


@pytest.mark.parametrize(("host", "address"), [("localhost", "127.0.0.1"), ("::1", "::1"), ("127.0.0.2", "127.0.0.2")])
def test_this_machine_alone_needs_no_token(host: str, address: str) -> None:
    assert ServiceSettings((MetricSource("length"),), host=host).host == address


def test_metrics_of_the_command_line_and_a_token_that_is_in_no_text() -> None:
    assert "secret-token" not in repr(ServiceSettings((MetricSource("length"),), token="secret-token"))
    with pytest.raises(ConfigError, match="twice"):
        ServiceSettings((MetricSource("vela"), MetricSource("vela", "folder")))
    with pytest.raises(ConfigError, match="at least one"):
        ServiceSettings(())
    with pytest.raises(ConfigError, match="fitted"):
        App("cider")
