"""A service in its own processes: faults, kills and restarts under load, hostile clients, and its end."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from reward import CaptionSample, RemoteReward, load_scorer
from reward.remote.scorer import RemoteScorer
from tests.toys.loopback_http import free_port
from tests.toys.loopback_service import LoopbackService, loopback_service, send_all

pytestmark = pytest.mark.slow

SERVE = ("--metric", "unigram", "--devices", "cpu")
REFERENCES = ["A red star shines on the grass."]


def samples_of(count: int) -> list[CaptionSample]:
    return [CaptionSample(f"A red star number {number} shines.", None, REFERENCES) for number in range(count)]


def expected(samples: list[CaptionSample]) -> list[float]:
    return [float(score) for score in load_scorer("unigram").score(samples).column("f1")]


def bodies_of(samples: list[CaptionSample]) -> list[bytes]:
    return [
        json.dumps({"samples": [{"candidates": [sample.candidate], "references": REFERENCES}]}).encode()
        for sample in samples
    ]


def until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    """Waits until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def service() -> Iterator[LoopbackService]:
    with loopback_service("--metric", "unigram", "--devices", "cpu,cpu", "--batch-requests", "8") as running:
        until(lambda: ready(running.port + 1))
        yield running


def urls(service: LoopbackService) -> str:
    return f"{service.url},http://127.0.0.1:{service.port + 1}"


def ready(port: int) -> bool:
    with suppress(OSError):
        return b" 200 " in answer_to(port, b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    return False


def test_processes_that_are_killed_under_load_cost_no_answer(service: LoopbackService) -> None:
    samples = samples_of(1500)
    scorer = RemoteScorer(urls(service), patience=120.0, concurrency=32)
    stop = threading.Event()
    killed: list[int] = []

    def kill() -> None:
        while len(killed) < 2 and not stop.wait(0.3):
            children = service.children()
            if children and children[0] not in killed:
                os.kill(children[0], signal.SIGKILL)
                killed.append(children[0])

    killer = threading.Thread(target=kill)
    killer.start()
    found: list[float] = []
    try:
        while len(killed) < 2 or len(found) < 2 * len(samples):
            table = scorer.score(samples)
            assert table.errors == {}
            found += table.column("f1").tolist()
    finally:
        stop.set()
        killer.join()
    assert found == expected(samples) * (len(found) // len(samples))
    until(lambda: len(service.children()) == 2)


def test_a_scorer_and_a_reward_of_the_service(service: LoopbackService) -> None:
    samples = samples_of(40)
    assert RemoteScorer(urls(service)).score(samples).column("f1").tolist() == expected(samples)
    reward = RemoteReward(urls(service).split(","), "unigram")
    called = reward(prompts=["Describe."] * 2, completions=["A red star.", "..."], references=[REFERENCES, REFERENCES])
    assert called == [*expected([CaptionSample("A red star.", None, REFERENCES)]), 0.0]


def test_a_restart_under_load_costs_no_answer() -> None:
    samples = samples_of(600)
    port = free_port()
    service = LoopbackService(*SERVE, port=port)
    service.start()
    try:
        service.wait()
        scorer = RemoteScorer(service.url, patience=120.0, concurrency=4)
        scorer.connect()
        found: dict[int, list[float]] = {}

        def score(part: int) -> None:
            for start in range(part * 300, part * 300 + 300, 2):
                table = scorer.score(samples[start : start + 2])
                assert not table.errors
                found[start] = table.column("f1").tolist()

        threads = [threading.Thread(target=score, args=[part]) for part in range(2)]
        for thread in threads:
            thread.start()
        until(lambda: len(found) > 20)
        assert service.stop() == 0
        service.start()
        service.wait()
        for thread in threads:
            thread.join()
    finally:
        service.kill()
    assert [score for start in sorted(found) for score in found[start]] == expected(samples)


def test_sigterm_finishes_what_is_under_way_and_leaves_no_process() -> None:
    service = LoopbackService(*SERVE, "--batch-wait", "1500")  # every request takes that long
    service.start()
    try:
        service.wait()
        replies: list[Any] = []
        bodies = bodies_of(samples_of(3))
        sending = threading.Thread(target=lambda: replies.extend(send_all(service.port, bodies, clients=3)[0]))
        sending.start()
        time.sleep(0.5)  # the requests wait in a batch
        group = service.processes()
        assert len(group) >= 2
        assert service.stop() == 0
        sending.join()
        assert [status for status, _ in replies] == [200] * 3
        until(lambda: not any(Path(f"/proc/{pid}/stat").exists() for pid in group))
    finally:
        service.kill()


def test_nothing_is_left_when_the_first_process_is_killed() -> None:
    with loopback_service(*SERVE) as service:
        group = service.processes()
        os.kill(service.pid, signal.SIGKILL)
        until(lambda: not set(service.processes()) & (set(group) - {service.pid}))


# Hostile clients

TOKEN = "a-token-of-the-tests"
AUTH = f"Authorization: Bearer {TOKEN}\r\n"


@pytest.fixture(scope="module")
def guarded() -> Iterator[LoopbackService]:
    limits = ("--max-body", "100000", "--body-timeout", "1", "--max-waiting", "8")
    with loopback_service(*SERVE, *limits, environment={"CAPREWARD_TOKEN": TOKEN}) as running:
        yield running


def answer_to(port: int, sent: bytes, seconds: float = 10.0) -> bytes:
    """All that the service answers until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), seconds) as connection:
        connection.sendall(sent)
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize("header", ["", "Authorization: Bearer wrong\r\n", f"Authorization: {TOKEN}\r\n"])
def test_without_the_token_there_is_only_health(guarded: LoopbackService, header: str) -> None:
    for path in ("/score", "/info", "/metrics", "/openapi.json", "/docs", "/no-such"):
        answer = answer_to(
            guarded.port, f"GET {path} HTTP/1.1\r\nHost: x\r\n{header}Connection: close\r\n\r\n".encode()
        )
        assert answer.startswith(b"HTTP/1.1 401 "), path
    assert guarded.is_ready()


@pytest.mark.parametrize("header", [AUTH, AUTH.replace("Bearer", "bearer")])
def test_with_the_token(guarded: LoopbackService, monkeypatch: pytest.MonkeyPatch, header: str) -> None:
    replies, _ = send_all(guarded.port, bodies_of(samples_of(2)), clients=1, headers=header)
    assert [status for status, _ in replies] == [200, 200]
    monkeypatch.setenv("CAPREWARD_TOKEN", TOKEN)
    scorer = RemoteScorer(guarded.url)
    assert scorer.score(samples_of(1)).errors == {}
    assert TOKEN not in repr(scorer) + repr(scorer.__getstate__())


def test_a_body_that_is_too_large_is_refused_before_it_is_read(guarded: LoopbackService) -> None:
    head = f"POST /score HTTP/1.1\r\nHost: x\r\n{AUTH}Content-Type: application/json\r\n"
    start = time.monotonic()
    assert b" 413 " in answer_to(guarded.port, f"{head}Content-Length: 100000000000\r\n\r\n".encode())
    assert time.monotonic() - start < 1.0
    # without a length, the body is cut off where it gets too large
    chunk = b"7530\r\n" + b" " * 30000 + b"\r\n"
    assert b" 413 " in answer_to(guarded.port, f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunk * 4)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"POST /sc",
        f"POST /score HTTP/1.1\r\n{AUTH}X: ".encode(),
    ],
)
def test_a_client_that_does_not_finish_its_head_is_cut_off(guarded: LoopbackService, sent: bytes) -> None:
    start = time.monotonic()
    answer_to(guarded.port, sent)  # raises if the connection stays open
    assert time.monotonic() - start > 0.5


def test_a_client_that_does_not_finish_its_body_is_cut_off(guarded: LoopbackService) -> None:
    head = f"POST /score HTTP/1.1\r\nHost: x\r\n{AUTH}Content-Length: 1000\r\n\r\n"
    assert b" 408 " in answer_to(guarded.port, head.encode() + b"{")


def test_many_requests_at_a_time_are_told_to_come_again(guarded: LoopbackService) -> None:
    head = f"POST /score HTTP/1.1\r\nHost: x\r\n{AUTH}Content-Length: 1000\r\n\r\n"
    slow = [socket.create_connection(("127.0.0.1", guarded.port)) for _ in range(8)]
    for connection in slow:
        connection.sendall(head.encode())
    until(lambda: b" 429 " in answer_to(guarded.port, f"{head}{'x' * 1000}".encode()))
    assert guarded.is_ready()
    for connection in slow:
        connection.close()
    until(lambda: send_all(guarded.port, bodies_of(samples_of(1)), clients=1, headers=AUTH)[0][0][0] == 200)


# Starts that fail


def test_a_checkpoint_that_cannot_be_loaded_and_a_taken_port_end_the_start(tmp_path: Path) -> None:
    bad = LoopbackService("--metric", f"vela={tmp_path}", "--devices", "cpu,cpu")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy = LoopbackService(*SERVE, port=taken.getsockname()[1])
        for service, reason in ((bad, "it has no config.json"), (busy, "already in use; choose another")):
            service.start()
            try:
                with pytest.raises(RuntimeError, match=reason):
                    service.wait()
            finally:
                service.kill()


def test_a_process_whose_port_was_taken_while_it_was_down_ends_the_service() -> None:
    with loopback_service(*SERVE) as service, socket.socket() as taker:
        taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        os.kill(service.children()[0], signal.SIGKILL)

        def is_taken() -> bool:
            with suppress(OSError):
                taker.bind(("127.0.0.1", service.port))
                taker.listen()
                return True
            return False

        until(is_taken)
        assert "already in use" in service.last_words()
