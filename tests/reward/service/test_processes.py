"""A service in its own processes: kills and restarts under load, clients that do not finish, starts that fail."""

import os
import signal
import socket
import threading
import time

import pytest

from reward import CaptionSample, load_scorer
from reward.errors import ServiceError
from reward.http_client import http_library
from reward.registry import MetricSource
from reward.remote.scorer import RemoteScorer
from reward.service.processes import serve
from reward.service.settings import ServiceSettings
from tests.toys.loopback_service import loopback_service

pytestmark = pytest.mark.slow

SERVE = ("--metric", "unigram", "--devices", "cpu")
TOKEN = "a-token-of-the-tests"


def samples_of(count):
    """Captions with references of their own, so that each is a request."""
    return [
        CaptionSample(f"A red star {number} shines.", None, [f"Star {number} on the grass."]) for number in range(count)
    ]


def expected(samples):
    return [float(score) for score in load_scorer("unigram").score(samples).column("f1")]


def until(condition, seconds=60.0):
    """Waits until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def service():
    """Two processes behind a token."""
    options = ("--metric", "unigram", "--devices", "cpu,cpu", "--body-timeout", "1")
    with loopback_service(*options, environment={"CAPREWARD_TOKEN": TOKEN}) as running:
        yield running


@pytest.fixture
def scorer(service, monkeypatch):
    monkeypatch.setenv("CAPREWARD_TOKEN", TOKEN)
    urls = [service.url, f"http://127.0.0.1:{service.port + 1}"]
    return RemoteScorer(urls, patience=120.0, concurrency=32)


def test_a_client_that_does_not_finish_its_head_is_cut_off(service):
    start = time.monotonic()
    connections = [socket.create_connection(("127.0.0.1", service.port), 20) for _ in range(3)]
    for connection, head in zip(connections, (b"", b"POST /sc", b"POST /score HTTP/1.1\r\nX: "), strict=True):
        connection.sendall(head)
    for connection in connections:
        while connection.recv(65536):  # raises if it stays open
            pass
        connection.close()
    assert time.monotonic() - start > 0.5


def test_processes_that_are_killed_under_load_cost_no_answer(service, scorer):
    samples, found, killed = samples_of(200), [], []

    def kill():
        while len(killed) < 2:
            time.sleep(0.2)
            if (children := service.children()) and children[0] not in killed:
                os.kill(children[0], signal.SIGKILL)
                killed.append(children[0])

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    while killer.is_alive() or len(found) < 2 * len(samples):
        table = scorer.score(samples)
        assert table.errors == {}
        found += table.column("f1").tolist()
    assert found == expected(samples) * (len(found) // len(samples))
    until(lambda: len(service.children()) == 2)


def test_a_restart_under_load_finishes_what_is_under_way_and_costs_no_answer():
    samples, found, replies = samples_of(2), [], []
    with loopback_service(*SERVE, "--batch-wait", "1000") as service:  # every request takes that long

        def score():
            scorer = RemoteScorer(service.url, patience=120.0)
            for sample in samples:
                found.extend(scorer.score([sample]).column("f1"))

        def send():
            body = {"caption": "A star.", "references": "A star."}
            replies.append(http_library().post(f"{service.url}/score", json=body, timeout=120).status_code)

        threads = [threading.Thread(target=score), *(threading.Thread(target=send) for _ in range(3))]
        for thread in threads:
            thread.start()
        # They wait in a batch: three, the scorer's, and the one that asks for this number.
        until(lambda: "requests_under_way 5.0" in http_library().get(f"{service.url}/metrics").text)
        assert service.stop() == 0
        service.start()
        service.wait()
        for thread in threads:
            thread.join()
        assert replies == [200] * 3
        assert found == expected(samples)


def test_nothing_is_left_when_the_first_process_is_killed():
    with loopback_service(*SERVE) as service:
        children = service.children()
        os.kill(service.pid, signal.SIGKILL)
        until(lambda: not set(service.children()) & set(children))
        assert f"ready at {service.url} in " in service.last_words()


def test_a_port_that_is_taken_and_a_checkpoint_that_cannot_be_loaded_end_the_start(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ServiceError, match="already in use; choose another"):
            serve(ServiceSettings((MetricSource("length"),), port=taken.getsockname()[1]))
    bad = loopback_service("--metric", f"vela={tmp_path}", "--devices", "cpu")
    bad.start()
    assert ("no config.json" in bad.last_words(), bad.stop()) == (True, 1)
