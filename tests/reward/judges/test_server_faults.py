"""ServerJudge and a bad server: nothing is lost, nothing is paid for twice, and it gives up with a reason."""

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
from reward.judges import Question, ServerJudge, connection
from tests.toys.loopback_judge import Fault, LoopbackJudge
from tests.toys.toy_judges import pictures

pytestmark = pytest.mark.slow

ANSWERS = list("12345")
LIMITED = Fault("status", 429)
TIMEOUT = Fault("hang", seconds=4.0)
# What one try may meet; the next one is answered.
FAULTS = {
    "429": LIMITED,
    "429 with Retry-After": Fault("status", 429, headers={"Retry-After": "0.2"}),
    "500": Fault("status", 500),
    "503 that is no JSON": Fault("status", 503, body="<html>busy</html>"),
    "truncated JSON": Fault("truncate"),
    "cut off reply": Fault("cut"),
    "empty JSON": Fault("status", 200, body="{}"),
    "JSON of another kind": Fault("status", 200, body="[1, 2]"),
    "not JSON": Fault("status", 200, body="OK"),
    "dropped connection": Fault("drop"),
    "timeout": TIMEOUT,
}
NO_QUOTA = '{"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}'
# What waiting does not mend: (fault, the reason given).
ENDS = {
    "a wait of hours": (Fault("status", 429, headers={"Retry-After": "7200"}), "wait 7200 s"),
    "an empty account": (Fault("status", 429, body=NO_QUOTA), "used up"),
    "another model": (Fault("status", 404), r"no model 'tiny' at http.*base_url"),
    "a wrong key": (Fault("status", 403), r"refuses the key in \$OPENAI_API_KEY"),
}


def questions(count: int = 12) -> list[Question]:
    images = pictures(3)
    return [Question(f"Rate the caption: {index} red stars.", image=images[index % 3]) for index in range(count)]


def judge_at(server: LoopbackJudge, **settings: Any) -> ServerJudge:
    return ServerJudge("tiny", server.endpoint, **{"timeout": 20.0, "concurrency": 4, **settings})


def test_a_storm_of_faults_loses_nothing_and_asks_nothing_twice(server: LoopbackJudge, tmp_path: Path) -> None:
    expected = judge_at(server).answer_distribution(questions(), ANSWERS)
    server.served.clear()
    server.requests.clear()
    quick = [fault for fault in FAULTS.values() if fault is not TIMEOUT]
    server.faults.extend([*quick, None, *quick, None, TIMEOUT])
    cache = tmp_path / "answers.sqlite"
    judge = judge_at(server, cache=cache, retries=10, timeout=3.0)  # shorter than the silence
    np.testing.assert_array_equal(judge.answer_distribution(questions(), ANSWERS), expected)
    assert not server.faults, "not every fault was met"
    assert sorted(server.served.values()) == [1] * len(questions())
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
    server.faults.extend([None] * 3 + [Fault("status", 500)])
    server.delay = 0.3
    judge = judge_at(server, cache=cache, retries=0, concurrency=4)
    with pytest.raises(JudgeError, match="500"):
        judge.answer_distribution(questions(), ANSWERS)
    assert judge.usage.answered == 3, "what runs beside a failure is finished and kept"
    judge = judge_at(server, cache=cache)
    assert np.isfinite(judge.answer_distribution(questions(), ANSWERS)).all()
    assert (judge.usage.answered, judge.usage.cached) == (len(questions()) - 8, 8)
    assert set(server.served.values()) == {1}


@pytest.mark.parametrize(("fault", "message"), ENDS.values(), ids=ENDS)
def test_what_waiting_does_not_mend_is_not_asked_again(server: LoopbackJudge, fault: Fault, message: str) -> None:
    server.faults.extend([fault] * 9)
    with pytest.raises(JudgeError, match=message):
        judge_at(server, concurrency=1).answer_distribution(questions(), ANSWERS)
    assert len(server.requests) == 1


def test_a_question_that_cannot_be_answered_does_not_stop_the_others(server: LoopbackJudge, tmp_path: Path) -> None:
    server.refuse = "forbidden"
    asked = [*questions(2), Question("forbidden"), Question("Look.", image=tmp_path / "no.png"), Question("Is it?")]
    with pytest.raises(JudgeError) as caught:
        judge_at(server).answer_distribution(asked, ANSWERS)
    assert sorted(caught.value.failures) == [2, 3]
    assert "400" in caught.value.failures[2]
    assert "does not exist" in caught.value.failures[3]
    assert np.isnan(caught.value.results[[2, 3]]).all()
    expected = judge_at(server).answer_distribution([asked[0], asked[1], asked[4]], ANSWERS)
    np.testing.assert_allclose(caught.value.results[[0, 1, 4]], expected)
    assert sum("forbidden" in str(request["messages"]) for request in server.requests) == 1, "a refusal was retried"
    server.faults.append(Fault("status", 422, body='{"detail": "Unexpected fields"}'))  # as FastAPI's servers say it
    with pytest.raises(JudgeError, match=r"the server refuses the question \(Error code: 422 - Unexpected fields\)"):
        judge_at(server).generate(questions(1))


@pytest.mark.parametrize("form", ["seconds", "date", "none"])
def test_waits_are_those_that_the_server_says_and_grow(
    server: LoopbackJudge, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(connection, "_FIRST_WAIT", 0.1)
    date = formatdate(time.time() + 2.0, usegmt=True)  # a date has whole seconds
    headers = {} if form == "none" else {"Retry-After": "0.5" if form == "seconds" else date}
    server.faults.extend([Fault("status", 429, headers=headers), LIMITED, LIMITED])
    judge_at(server).answer_distribution(questions(1), ANSWERS)
    least = {"seconds": 0.5, "date": 0.9, "none": 0.05}[form]
    assert (np.diff(server.arrivals) >= [least, 0.1, 0.2]).all()


def test_a_server_that_loads_its_model_is_waited_for(server: LoopbackJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    server.loading = 3
    assert judge_at(server).models() == ["tiny"]
    monkeypatch.setattr(connection, "_PATIENCE_WITH_LOADING", 0.1)
    server.loading = 1_000
    with pytest.raises(JudgeError, match=r"is not ready \(Error code: 503 - .*Loading model.*\); run again when it is"):
        judge_at(server).models()


def test_nobody_listens() -> None:
    judge = ServerJudge("tiny", "http://127.0.0.1:9/v1", retries=1, timeout=1.0)
    with pytest.raises(JudgeError, match=r"did not answer in 2 tries.*no connection.*are lost; give `cache`"):
        judge.generate(questions(1))
    with pytest.raises(JudgeError, match=r"no server can be asked at http://127\.0\.0\.1:9/v1: no connection"):
        judge.models()


OTHERS = ["other", "tiny-mini", "tiny-AWQ", "ti", "tiny-q4_k_m.gguf"]
SAME = ["tiny-2026-11-25", "tiny-0613", "TINY", "folder/tiny", "tiny:latest", None]


@pytest.mark.parametrize("told", [*OTHERS, *SAME])
def test_another_model_than_was_asked_for_is_told_of_once(
    server: LoopbackJudge, caplog: pytest.LogCaptureFixture, told: str | None
) -> None:
    server.answers_as = told
    judge_at(server).generate(questions(2), max_new_tokens=1)
    messages = [record.message for record in caplog.records if "was asked for" in record.message]
    assert len(messages) == (told in OTHERS)
    assert all(f"'tiny' was asked for, and {told!r} answers, by its own word" in message for message in messages)


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
    command = [sys.executable, "-c", INTERRUPTED, server.endpoint, str(cache)]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
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
    judge.answer_distribution([Question(f"Rate the caption: {index} stars.") for index in range(60)], ANSWERS)
    assert judge.usage.cached >= answered - 2, "finished answers were lost"  # two may have been on their way
    assert judge.usage.answered + judge.usage.cached == 60
