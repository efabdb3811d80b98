"""Requests to the service, and its settings."""

import asyncio
import base64
import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward import CaptionSample, MetricReward, load_scorer
from reward.errors import ConfigError
from reward.metrics.words.scorer import LengthScorer
from reward.registry import MetricSource
from reward.service.settings import ServiceSettings
from tests.reward.service.in_process import App
from tests.toys.pictures import png

CAPTIONS = ["A red star.", "Two dogs run.", "...", " ", "\ud800"]
REFERENCES = ["A red star shines."]
PNG = base64.b64encode(png("red", (32, 32))).decode()


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    return App("unigram", image_root=tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def vela():
    return App("vela")


def test_scores_and_rewards_are_those_in_process(app):
    first, last = ({"candidates": captions, "references": REFERENCES} for captions in (CAPTIONS, CAPTIONS[2::-1]))
    reply = app.post("/score", {"samples": [first, last]})
    samples = [CaptionSample(caption, None, REFERENCES) for caption in CAPTIONS[:3]]
    expected = load_scorer("unigram").score(samples).scores.tolist()
    forward, backward = reply["samples"]
    assert forward["scores"] == [*expected, [None], [None]]
    assert forward["rewards"] == [*MetricReward("unigram").rewards(samples), 0.0, 0.0]  # " " has no word either
    assert forward["errors"][:3] == [None] * 3
    assert ("empty" in forward["errors"][3], "surrogate" in forward["errors"][4]) == (True, True)
    assert backward["scores"] == expected[::-1]
    assert (reply["metric"], reply["aspects"]) == ("unigram", ["f1"])


def test_requests_that_are_scored_together_get_their_own_rows_and_reasons():
    thread = App("unigram", batch_requests=2, batch_wait=5.0).thread
    known, unknown = CaptionSample("A red dog.", None, REFERENCES), CaptionSample("Two dogs run.")
    asked = [[known], [CaptionSample("A star.", None, REFERENCES), unknown]]

    async def ask():
        return await asyncio.gather(*(thread.ask("unigram", samples) for samples in asked))

    for table, samples in zip(asyncio.run(ask()), asked, strict=True):
        expected = load_scorer("unigram").score(samples)
        assert table.reward == pytest.approx(expected.reward, nan_ok=True)
        assert table.errors == expected.errors


def test_one_request_that_cannot_be_scored_spoils_no_other(monkeypatch):
    thread, score, together = App("length", batch_requests=3, batch_wait=5.0).thread, LengthScorer.score, []

    def fail_sometimes(self, samples, **options):
        together.append(len(samples))
        if any(sample.candidate == "fail" for sample in samples):
            raise RuntimeError("out of memory")
        return score(self, samples, **options)

    async def ask():
        asked = [thread.ask("length", [CaptionSample(text)]) for text in ("A star.", "fail", "A red star.")]
        return await asyncio.gather(*asked, return_exceptions=True)

    monkeypatch.setattr(LengthScorer, "score", fail_sometimes)
    first, second, third = asyncio.run(ask())
    assert (first.reward.tolist(), str(second), third.reward.tolist()) == ([2.0], "out of memory", [3.0])
    assert together == [3, 1, 1, 1]
    failed = App("length").send("POST", "/score", json={"caption": "fail"})
    assert (failed.status_code, failed.json()["error"]) == (500, "RuntimeError: out of memory")


def test_a_metric_that_does_not_answer_in_time(monkeypatch):
    app, score = App("length", timeout=0.05), LengthScorer.score
    monkeypatch.setattr(LengthScorer, "score", lambda *given, **options: time.sleep(0.2) or score(*given, **options))
    app.post("/score", {"caption": "A star."}, 504)


def test_bodies_that_people_write_first(vela):
    expected = vela.post("/score", {"samples": [{"candidates": ["A star."], "image": {"base64": PNG}}]})
    for name, value in (("caption", "A star."), ("candidate", "A star."), ("captions", ["A star."])):
        assert vela.post("/score", {"image": PNG, name: value, "metric": "vela"}) == expected
    refused = vela.send("POST", "/score", data={"caption": "A star."})
    assert "with the header Content-Type: application/json" in refused.json()["error"]


def test_weights_of_aspects(vela):
    sample = vela.post("/score", {"caption": "A star.", "image": PNG, "weights": {"rel": 3, "flu": 1}})["samples"][0]
    _, relevance, fluency = sample["scores"][0]
    assert sample["rewards"][0] == pytest.approx(0.75 * relevance + 0.25 * fluency)


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ({}, 'samples.0.candidates: Field required. A body that works: {"image": {"base64": '),
        ({"samples": [{"candidates": []}]}, "candidates"),
        ({"caption": "a", "picture": "a.png"}, "picture"),
        ({"caption": "a", "metric": "vela"}, "metric must be one of unigram"),
        ({"caption": "a", "weights": {"x": 1}}, "unknown aspect"),
        ({"captions": ["a"] * 1025}, "1024 captions"),
        ([1], "dictionary"),
    ],
)
def test_faults_of_requests_are_named(app, body, fault):
    assert fault in app.post("/score", body, 422)["error"]


ANY = st.recursive(
    st.none() | st.booleans() | st.floats(-9, 9) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)
TEXTS = st.text(max_size=9) | st.lists(st.text(max_size=9), max_size=3)
IMAGES = st.text(max_size=9) | st.dictionaries(st.sampled_from(["base64", "path", "url"]), st.text(max_size=9))
REST = {"references": TEXTS | ANY, "image": IMAGES | ANY, "columns": ANY, "weights": ANY, "metric": ANY}


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(ANY | st.fixed_dictionaries({"captions": TEXTS | ANY}, optional=REST))
def test_no_request_makes_the_service_fail(app, body):
    reply = app.send("POST", "/score", content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert reply.status_code in (200, 422)


def test_info_and_counts():
    app = App("length")
    info = app.send("GET", "/info").json()
    assert (info["metrics"]["length"]["aspects"], info["limits"]["max_candidates"]) == (["length"], 1024)
    assert app.post("/score", {"captions": ["A star.", " "]})["identity"] == info["metrics"]["length"]["identity"]
    app.send("GET", "/no/such/path")
    counts = app.send("GET", "/metrics").text
    assert 'capreward_captions_total{metric="length",outcome="scored"} 1.0' in counts
    assert 'capreward_captions_total{metric="length",outcome="not scored"} 1.0' in counts
    assert 'capreward_requests_total{path="/score",status="200"} 1.0' in counts
    assert 'capreward_requests_total{path="other",status="404"} 1.0' in counts  # a client cannot make up label values


@pytest.mark.parametrize(
    ("metrics", "options", "fault"),
    [
        (["length"], {"host": "0.0.0.0"}, "CAPREWARD_TOKEN"),
        (["length"], {"host": "192.0.2.7"}, "CAPREWARD_TOKEN"),
        (["length"], {"host": "example.org"}, "127.0.0.1"),
        (["length"], {"token": "short"}, "8 characters"),
        (["length"], {"token": "with a blank in it"}, "white space"),
        (["length"], {"port": 80}, "1024"),
        (["length"], {"devices": "gpu"}, "device 'gpu' cannot be used"),
        (["vela", "vela=folder"], {}, "twice"),
        ([], {}, "at least one"),
    ],
)
def test_settings_that_cannot_be(metrics, options, fault):
    with pytest.raises(ConfigError, match=fault):
        ServiceSettings(tuple(map(MetricSource.parse, metrics)), **options).places()


def test_a_metric_of_a_corpus_is_served_fitted():
    with pytest.raises(ConfigError, match="fitted"):
        App("cider")


@pytest.mark.parametrize(("host", "address"), [("localhost", "127.0.0.1"), ("::1", "::1"), ("127.0.0.2", "127.0.0.2")])
def test_this_machine_alone_needs_no_token(host, address):
    assert ServiceSettings((MetricSource("length"),), host=host).host == address
