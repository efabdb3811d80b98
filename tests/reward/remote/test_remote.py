"""RemoteScorer and RemoteReward against a service with faults on demand."""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from reward import AsyncReward, CaptionSample, MetricReward, RemoteReward, load_scorer
from reward.errors import ConfigError, OutputError, ServiceError, WeightsError
from reward.metaeval.benchmarks import load_benchmark
from reward.metaeval.scoring import score_benchmark
from reward.remote.scorer import RemoteScorer
from reward.scoring.dataset import score_dataset
from tests.reward.service.in_process import App
from tests.toys.fake_service import FakeService, Fault, fake_service
from tests.toys.json_lines import read_lines
from tests.toys.loopback_http import certificate, serving

pytestmark = pytest.mark.slow

WIDE = Image.new("RGB", (5, 2), "red")


@pytest.fixture
def service() -> Iterator[FakeService]:
    with fake_service() as fake:
        yield fake


def scorer_of(*services: FakeService, **settings: Any) -> RemoteScorer:
    return RemoteScorer([service.url for service in services], **{"timeout": 0.5, "patience": 10.0, **settings})


def samples_of(*captions: str, image: Any = WIDE) -> list[CaptionSample]:
    return [CaptionSample(caption, image) for caption in captions]


def test_captions_of_an_image_go_together_and_the_image_goes_once(service: FakeService) -> None:
    other = Image.new("RGB", (7, 2))
    samples = [*samples_of("a", "a b"), CaptionSample("a", other), *samples_of("a", image=WIDE.copy())]
    table = scorer_of(service).score(samples)
    assert table.scores.tolist() == [[1, 5], [2, 5], [1, 7], [1, 5]]
    assert sorted(request["samples"][0]["candidates"] for request in service.requests) == [["a"], ["a", "a b"]]
    assert table.aliases == {"w": "words"}


def test_requests_are_split_at_the_limit_of_the_service(service: FakeService) -> None:
    captions = [" ".join("a" * count) for count in range(1, 9)]
    assert scorer_of(service).score(samples_of(*captions)).column("w").tolist() == list(range(1, 9))
    assert sorted(len(request["samples"][0]["candidates"]) for request in service.requests) == [2, 3, 3]
    noise = Image.effect_noise((400, 400), 90).convert("RGB")
    assert "--max-body" in scorer_of(service).score(samples_of("a", image=noise)).errors[0]


def test_an_image_below_the_shared_root_goes_by_path(service: FakeService, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    WIDE.save(tmp_path / "in" / "a.png")
    scorer_of(service, image_root=tmp_path).score(samples_of("a", image=tmp_path / "in" / "a.png"))
    assert service.requests[0]["samples"][0]["image"] == {"path": "in/a.png"}
    sent = scorer_of(service, image_root=tmp_path / "in").score(samples_of("a", image=WIDE))
    assert sent.scores.tolist() == [[1, 5]]


def test_what_cannot_be_scored_says_why(service: FakeService) -> None:
    samples = [*samples_of("bad", "a long one"), CaptionSample("a", "no-such.png")]
    table = scorer_of(service).score(samples)
    assert np.isnan(table.scores).all(axis=1).tolist() == [True, False, True]
    assert (table.errors[0], "does not exist" in table.errors[2]) == ("a bad caption", True)
    assert table.truncated.tolist() == [False, True, False]


@pytest.mark.parametrize("fault", ["drop", "hang", "garble", (500, "x"), (502, "<html>"), (503, "full"), (429, "full")])
def test_a_passing_fault_is_tried_again(service: FakeService, fault: Fault) -> None:
    service.faults.extend([fault, fault])
    assert scorer_of(service).score(samples_of("a")).scores.tolist() == [[1, 5]]


def test_waiting_behind_our_own_requests_does_not_count_as_down_time(service: FakeService) -> None:
    answer = service.answer

    def slow(request: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.1)
        return answer(request)

    service.answer = slow  # type: ignore[method-assign]
    scorer = scorer_of(service, timeout=5.0, patience=0.5, concurrency=2)
    samples = [CaptionSample("a", Image.new("RGB", (width, 2))) for width in range(1, 21)]
    assert scorer.score(samples).errors == {}


def test_a_request_that_three_services_died_of_is_given_up_and_harms_no_other(service: FakeService) -> None:
    """A service that dies breaks all connections; a request whose connection broke is sent again by itself."""
    inside, answer, most, deaths = [0], service.answer, [0], [0]

    def answer_or_die(request: dict[str, Any]) -> dict[str, Any]:
        inside[0] += 1
        time.sleep(0.05)
        is_deadly = "die" in str(request)
        if is_deadly:
            deaths[0] += 1
            most[0] = max(most[0], inside[0]) if deaths[0] > 1 else 0
        with_it = is_deadly or (deaths[0] == 1 and inside[0] > 1)
        inside[0] -= 1
        if with_it:
            raise OSError  # the connection breaks
        return answer(request)

    service.answer = answer_or_die  # type: ignore[method-assign]
    samples = [CaptionSample("die" if width == 3 else "a", Image.new("RGB", (width, 2))) for width in range(1, 7)]
    table = scorer_of(service, timeout=5.0, patience=60.0).score(samples)
    assert table.errors == {
        2: "the service refuses: 3 services died, one after another, while they scored this request"
    }
    assert table.scores[:, 1].tolist()[3:] == [4, 5, 6]
    assert (deaths, most) == ([3], [1])


def test_a_connection_that_breaks_before_a_service_is_well_is_no_death(service: FakeService) -> None:
    scorer = scorer_of(service, timeout=5.0, patience=60.0)
    scorer.connect()
    service.faults.append("drop")  # then two checks of its health fail: a port that is open, and nothing behind it
    service.is_sick = 2
    assert scorer.score(samples_of("a")).errors == {}
    assert service.is_sick == 0


def test_a_refusal_is_not_tried_again(service: FakeService) -> None:
    service.faults.append((422, '{"error": "too many \\u001b[2Jpixels"}'))
    table = scorer_of(service).score(samples_of("a"))
    assert "the service refuses" in table.errors[0]
    assert "pixels" in table.errors[0]
    assert not service.requests
    service.faults.append((200, '{"identity": "first", "samples": [{"scores": [[1]], "errors": [], "truncated": []}]}'))
    assert "cannot be read" in scorer_of(service).score(samples_of("a")).errors[0]


def test_a_wrong_token_stops_the_run(service: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPREWARD_TOKEN", "secret-token")
    service.faults.append((401, "no secret-token here"))
    with pytest.raises(ServiceError, match=r"CAPREWARD_TOKEN") as caught:
        scorer_of(service).score(samples_of("a"))
    assert "secret-token" not in str(caught.value)
    assert service.tokens == ["Bearer secret-token"]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_certificate_of_ones_own_is_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake, file = FakeService(), certificate(tmp_path)
    with serving(fake.reply, file) as fake.url:
        with pytest.raises(ServiceError, match="certificate verify failed"):
            scorer_of(fake, patience=0.5).connect()
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        assert scorer_of(fake).score(samples_of("a b")).column("words").tolist() == [2.0]


def test_after_its_patience_a_row_has_no_score_and_the_next_call_does_not_wait_again(service: FakeService) -> None:
    scorer = scorer_of(service, patience=1.5)
    scorer.connect()
    service.is_down = True
    assert "cannot be reached" in scorer.score(samples_of("a")).errors[0]
    start = time.monotonic()
    assert "cannot be reached" in scorer.score(samples_of("a", "b", "c", "d")).errors[0]
    assert time.monotonic() - start < 1.4
    service.is_down = False

    def answered() -> bool:
        return not scorer.score(samples_of("a")).errors

    end = time.monotonic() + 30
    while not answered():  # it is asked again after its rest
        assert time.monotonic() < end


def test_another_replica_answers_for_one_that_is_down() -> None:
    with fake_service() as first, fake_service() as second:
        scorer = scorer_of(first, second)
        scorer.connect()
        first.is_down = True
        for number in range(6):
            image = Image.new("RGB", (number + 1, 1))
            assert scorer.score(samples_of("a", image=image)).scores.tolist() == [[1, number + 1]]
        assert len(second.requests) == 6
        assert len(first.tokens) < 6  # it is left alone between tries


def test_requests_for_one_image_go_to_one_replica() -> None:
    with fake_service() as first, fake_service() as second:
        scorer = scorer_of(first, second)
        for caption in "abcdef":
            scorer.score(samples_of(caption))
        assert sorted([len(first.requests), len(second.requests)]) == [0, 6]


def test_replicas_must_serve_the_same() -> None:
    with fake_service() as first, fake_service() as second:
        second.facts["identity"] = "second"
        with pytest.raises(ServiceError, match="second, not first"):
            scorer_of(first, second).connect()


@pytest.mark.parametrize("pickled", [False, True])
def test_a_service_that_comes_back_with_another_checkpoint_is_refused(service: FakeService, pickled: bool) -> None:
    scorer = scorer_of(service)
    assert scorer.score(samples_of("a")).errors == {}
    if pickled:
        scorer = pickle.loads(pickle.dumps(scorer))
    service.facts["identity"] = "second"
    with pytest.raises(ServiceError, match="must not be mixed"):
        scorer.score(samples_of("a"))
    with pytest.raises(ServiceError, match="must not be mixed"):
        scorer_of(service, identity="first").connect()


def test_the_metric_is_found_or_named(service: FakeService) -> None:
    loaded = load_scorer("made-up", service.url)
    assert loaded.spec.name == "made-up"
    assert loaded.spec.range == (0.0, float("inf"))
    assert load_scorer(service.url).score(samples_of("a")).scores.tolist() == [[1, 5]]
    with pytest.raises(ServiceError, match="serves made-up, and not 'vela'"):
        load_scorer("vela", service.url)
    with pytest.raises(ServiceError, match="no reward service at"):
        RemoteScorer("http://127.0.0.1:9", patience=0.3).connect()


@pytest.mark.parametrize("url", ["127.0.0.1:8123", "ftp://x", "http://user:word@x", "http://x?token=1", ""])
def test_addresses_that_cannot_be(url: str) -> None:
    with pytest.raises(ConfigError):
        RemoteScorer(url)


def score_in_child(scorer: RemoteScorer, connection: Any) -> None:
    connection.send(scorer.score(samples_of("a b")).scores.tolist())


def test_other_processes_connect_anew(service: FakeService) -> None:
    scorer = scorer_of(service, timeout=10.0, patience=60.0)
    scorer.score(samples_of("a"))
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=score_in_child, args=[scorer, theirs])
    child.start()
    try:
        assert ours.poll(60)
        assert ours.recv() == [[2, 5]]
    finally:
        child.join(20)
        child.kill()


# As a reward


def call(reward: Any, *captions: str) -> Any:
    return reward(prompts=["Describe."] * len(captions), completions=list(captions), image=[WIDE] * len(captions))


def test_a_reward_of_a_service(service: FakeService) -> None:
    reward = RemoteReward(service.url, weights={"w": 3, "width": 1}, patience=1.0, timeout=0.5)
    assert call(reward, "a b", "...", "bad") == [0.75 * 2 + 0.25 * 5, 0.0, None]
    assert dict(reward.failures) == {"empty caption": 1, "not scored by the metric": 1}
    service.is_down = True
    assert call(pickle.loads(pickle.dumps(reward)), "a b") == [None]
    service.is_down = False
    assert asyncio.run(AsyncReward(reward)(prompts=["D"], completions=["a b"], image=[WIDE])) == [2.75]
    assert [aspect.__name__ for aspect in reward.aspects()] == ["made-up_w3_width1_words", "made-up_w3_width1_width"]


def test_calls_of_threads_go_on_beside_each_other(service: FakeService) -> None:
    reward = RemoteReward(service.url, weights={"w": 1}, timeout=20.0)
    call(reward, "a")
    together, answer = threading.Barrier(6), service.answer

    def answer_together(request: dict[str, Any]) -> dict[str, Any]:
        together.wait(20)
        return answer(request)

    service.answer = answer_together  # type: ignore[method-assign]
    with ThreadPoolExecutor(6) as pool:
        rewards = list(pool.map(lambda number: call(reward, " ".join("a" * number)), range(1, 7)))
    assert rewards == [[1.0], [2.0], [3.0], [4.0], [5.0], [6.0]]


def test_the_first_call_raises_where_there_is_no_service() -> None:
    reward = RemoteReward("http://127.0.0.1:9", "vela", {"rel": 1}, patience=0.5)
    assert reward.__name__ == "vela_rel"
    for ask in (reward.load, lambda: call(reward, "a")):
        with pytest.raises(ServiceError, match="no reward service"):
            ask()
    with pytest.raises(WeightsError, match="unknown aspect"):
        RemoteReward("http://127.0.0.1:9", "vela", {"no": 1})


def test_offline_scoring_resumes_only_with_the_same_checkpoint(service: FakeService, tmp_path: Path) -> None:
    benchmark = load_benchmark("scenes", limit=2)
    assert score_benchmark(benchmark, "made-up", source=service.url).aspects == ("words", "width")
    (tmp_path / "data.jsonl").write_text('{"candidate": "a b"}\n')
    output = tmp_path / "scores.jsonl"
    score_dataset(tmp_path / "data.jsonl", "made-up", output, source=service.url)
    assert read_lines(output)[0]["words"] == 2.0
    service.facts["identity"] = "second"
    with pytest.raises(OutputError, match="other input, metric or settings"):
        score_dataset(tmp_path / "data.jsonl", "made-up", output, source=service.url)


def test_rewards_equal_those_in_process() -> None:
    app = App("vela")
    with fake_service() as fake:
        fake.facts = app.thread.facts["vela"]
        fake.answer = lambda request: app.post("/score", request)  # type: ignore[method-assign]
        images = [Image.effect_noise((40, 30), 90).convert("RGB") for _ in range(2)]
        samples = [CaptionSample(text, image) for image in images for text in ("A red star.", "Two dogs.")]
        remote = RemoteReward(fake.url, "vela", timeout=30.0).rewards(samples)
        assert remote == pytest.approx(MetricReward("vela").rewards(samples), abs=1e-6)
