"""ServerJudge against a bad server: nothing is lost, nothing is paid for twice, and it gives up with a reason."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from email.utils import formatdate
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reward.errors import JudgeError
from reward.judges import Question, ServerJudge, session
from tests.loopback_judge import Fault, LoopbackJudge
from tests.toy_judges import pictures

ANSWERS = list("12345")
LIMITED = Fault("status", 429)
FAULTS = {
    "429": LIMITED,
    "429 with Retry-After": Fault("status", 429, headers={"Retry-After": "0.2"}),
    "500": Fault("status", 500),
    "503 that is no JSON": Fault("status", 503, body="<html>busy</html>"),
    "timeout": Fault("hang", seconds=4.0),
    "truncated JSON": Fault("truncate"),
    "cut off reply": Fault("cut"),
    "empty JSON": Fault("status", 200, body="{}"),
    "JSON of another kind": Fault("status", 200, body="[1, 2]"),
    "not JSON": Fault("status", 200, body="OK"),
    "dropped connection": Fault("drop"),
}


@pytest.fixture(autouse=True)
def short_first_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_FIRST_WAIT", 0.02)


def questions(count: int = 12) -> list[Question]:
    images = pictures(3)
    return [Question(f"Rate the caption: {index} red stars.", image=images[index % 3]) for index in range(count)]


def judge_at(server: LoopbackJudge, **settings: Any) -> ServerJudge:
    return ServerJudge("tiny", server.endpoint, **{"timeout": 20.0, "concurrency": 4, **settings})


def test_a_storm_of_faults_loses_nothing_and_asks_nothing_twice(server: LoopbackJudge, tmp_path: Path) -> None:
    expected = judge_at(server).answer_distribution(questions(), ANSWERS)
    server.served.clear()
    server.requests.clear()
    quick = [fault for name, fault in FAULTS.items() if name != "timeout"]
    server.faults.extend([*quick, None, *quick, None, FAULTS["timeout"]])
    cache = tmp_path / "answers.sqlite"
    judge = judge_at(server, cache=cache, retries=10, timeout=3.0)  # shorter than the silence
    np.testing.assert_array_equal(judge.answer_distribution(questions(), ANSWERS), expected)
    assert not server.faults, "not every fault was met"
    assert len(server.served) == len(questions())
    assert set(server.served.values()) == {1}
    assert judge.usage.answered == len(questions())
    calls = len(server.requests)
    again = judge_at(server, cache=cache)
    np.testing.assert_array_equal(again.answer_distribution(questions(), ANSWERS), expected)
    assert len(server.requests) == calls


def test_a_server_that_stays_down_is_given_up_and_a_later_run_goes_on(server: LoopbackJudge, tmp_path: Path) -> None:
    cache = tmp_path / "answers.sqlite"
    server.faults.extend([None] * 5 + [Fault("status", 500)] * 100)
    with pytest.raises(JudgeError, match=r"did not answer in 3 tries.*500.*are kept; run again") as caught:
        judge_at(server, cache=cache, retries=2, concurrency=1).answer_distribution(questions(), ANSWERS)
    assert not caught.value.failures
    assert len(server.requests) == 5 + 3, "questions after the one that found the server down are not asked"
    server.faults.clear()
    judge = judge_at(server, cache=cache)
    table = judge.answer_distribution(questions(), ANSWERS)
    assert np.isfinite(table).all()
    assert (judge.usage.answered, judge.usage.cached) == (len(questions()) - 5, 5)
    assert set(server.served.values()) == {1}


def test_what_runs_beside_a_failure_is_finished_and_kept(server: LoopbackJudge, tmp_path: Path) -> None:
    server.delay = 0.3
    server.faults.extend([Fault("status", 500)])
    judge = judge_at(server, cache=tmp_path / "c.sqlite", retries=0, concurrency=4)
    with pytest.raises(JudgeError, match="500"):
        judge.answer_distribution(questions(), ANSWERS)
    assert len(server.requests) == 4
    assert judge.usage.answered == 3


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_respected(server: LoopbackJudge, form: str) -> None:
    said = "0.5" if form == "seconds" else formatdate(time.time() + 2.0, usegmt=True)  # a date has whole seconds
    server.faults.append(Fault("status", 429, headers={"Retry-After": said}))
    judge_at(server).answer_distribution(questions(1), ANSWERS)
    first, second = server.arrivals
    assert second - first >= (0.5 if form == "seconds" else 0.9)


NO_QUOTA = '{"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}'


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault("status", 429, headers={"Retry-After": "7200"}), "wait 7200 s"),
        (Fault("status", 429, body=NO_QUOTA), "used up"),
    ],
    ids=["a wait of hours", "an empty account"],
)
def test_what_waiting_does_not_mend_is_not_asked_again(server: LoopbackJudge, fault: Fault, message: str) -> None:
    server.faults.extend([fault] * 9)
    with pytest.raises(JudgeError, match=message):
        judge_at(server, concurrency=1).answer_distribution(questions(), ANSWERS)
    assert len(server.requests) == 1


def test_a_refusal_says_why(server: LoopbackJudge) -> None:
    server.faults.append(Fault("status", 422, body='{"detail": "Unexpected fields"}'))  # as FastAPI's servers say it
    with pytest.raises(JudgeError, match=r"the server refuses the question \(Error code: 422 - Unexpected fields\)"):
        judge_at(server).generate(questions(1))


def test_a_server_that_loads_its_model_is_waited_for(server: LoopbackJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    server.loading = 3
    assert judge_at(server).models() == ["tiny"]
    monkeypatch.setattr(session, "_PATIENCE_WITH_LOADING", 0.1)
    server.loading = 1_000
    with pytest.raises(JudgeError, match=r"is not ready \(Error code: 503 - .*Loading model.*\); run again when it is"):
        judge_at(server).models()


@pytest.mark.parametrize("told", ["other", "tiny-mini", "tiny-AWQ", "ti", "tiny-q4_k_m.gguf", None])
def test_another_model_than_was_asked_for(
    server: LoopbackJudge, caplog: pytest.LogCaptureFixture, told: str | None
) -> None:
    server.answers_as = told
    judge_at(server).generate(questions(3), max_new_tokens=1)
    messages = [record.message for record in caplog.records if "was asked for" in record.message]
    assert len(messages) == (told is not None), "once, not once a question"
    if told:
        assert f"'tiny' was asked for, and {told!r} answers, by its own word" in messages[0]


@pytest.mark.parametrize("told", ["tiny-2026-11-25", "tiny-0613", "TINY", "folder/tiny", "tiny:latest"])
def test_another_name_of_the_same_model(server: LoopbackJudge, caplog: pytest.LogCaptureFixture, told: str) -> None:
    server.answers_as = told
    judge_at(server).generate(questions(1), max_new_tokens=1)
    assert not caplog.records


def test_waits_grow(server: LoopbackJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_FIRST_WAIT", 0.1)
    server.faults.extend([LIMITED] * 3)
    judge_at(server).answer_distribution(questions(1), ANSWERS)
    assert (np.diff(server.arrivals) >= [0.05, 0.1, 0.2]).all()


def test_nobody_listens() -> None:
    judge = ServerJudge("tiny", "http://127.0.0.1:9/v1", retries=1, timeout=1.0)
    with pytest.raises(JudgeError, match=r"did not answer in 2 tries.*no connection.*are lost; give `cache`"):
        judge.generate(questions(1))


SIXTY = [Question(f"Rate the caption: {index} stars.") for index in range(60)]
INTERRUPTED = """
import sys
from reward.judges import Question, ServerJudge
judge = ServerJudge("tiny", sys.argv[1], cache=sys.argv[2], concurrency=2)
try:
    judge.answer_distribution([Question(f"Rate the caption: {index} stars.") for index in range(60)], list("12345"))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_keeps_what_was_answered(server: LoopbackJudge, tmp_path: Path) -> None:
    cache = tmp_path / "answers.sqlite"
    server.delay = 0.05
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-c", INTERRUPTED, server.endpoint, str(cache)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        while sum(server.served.values()) < 10 and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=30)
    assert "interrupted" in output
    time.sleep(0.3)  # what the server was just writing
    answered = sum(server.served.values())
    assert 10 <= answered < 60
    server.delay = 0.0
    judge = judge_at(server, cache=cache)
    judge.answer_distribution(SIXTY, ANSWERS)
    assert judge.usage.cached >= answered - 2, "finished answers were lost"  # two may have been on their way
    assert judge.usage.answered + judge.usage.cached == 60
