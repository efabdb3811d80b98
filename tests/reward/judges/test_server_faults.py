"""ServerJudge and a bad server: nothing is lost, nothing is paid for twice, and it gives up with a reason."""

import re
import signal
import threading
import time
from email.utils import formatdate

import numpy as np
import pytest

from reward import FleurReward, MetricReward, TournamentReward
from reward.errors import JudgeError
from reward.judges import Question, ServerJudge, connection
from tests.toys.loopback_judge import Fault, loopback_judge
from tests.toys.toy_judges import pictures, strict_llava

pytestmark = pytest.mark.slow

ANSWERS = list("12345")
LIMITED, DOWN = Fault("status", 429), Fault("status", 500)
# What one try may meet; the next one is answered.
PASSING = [
    LIMITED,
    DOWN,
    Fault("status", 503, body="<html>busy</html>"),
    Fault("truncate"),
    Fault("cut"),
    Fault("drop"),
    *(Fault("status", 200, body=body) for body in ("{}", "[1, 2]", "OK")),
]
NO_QUOTA = '{"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}'
# What waiting does not mend: (fault, the reason given).
ENDS = {
    "a wait of hours": (Fault("status", 429, headers={"Retry-After": "7200"}), "wait 7200 s"),
    "an empty account": (Fault("status", 429, body=NO_QUOTA), "used up"),
    "no credits": (Fault("status", 402), "used up"),
    "a wrong key": (Fault("status", 401), r"refuses the key in \$OPENAI_API_KEY"),
}


def questions(count=12):
    images = pictures(3)
    return [Question(f"Rate the caption: {index} red stars.", images[index % 3]) for index in range(count)]


def judge_at(server, **settings):
    return ServerJudge("tiny", server.endpoint, **{"timeout": 20.0, "concurrency": 4, **settings})


def test_a_storm_of_faults_loses_nothing_and_asks_nothing_twice(server):
    expected = judge_at(server).answer_distribution(questions(), ANSWERS)
    server.served.clear()
    server.faults.extend([*PASSING, None] * 2)
    judge = judge_at(server, retries=10)
    np.testing.assert_array_equal(judge.answer_distribution(questions(), ANSWERS), expected)
    assert not server.faults, "not every fault was met"
    assert sorted(server.served.values()) == [1] * len(questions())
    assert judge.usage.answered == len(questions())


def test_a_server_that_stays_down_is_given_up_and_a_later_run_goes_on(server, tmp_path):
    cache = tmp_path / "answers.sqlite"
    server.faults.extend([None] * 5 + [DOWN] * 9)
    with pytest.raises(JudgeError, match=r"did not answer in 3 tries.*500.*are kept; run again") as caught:
        judge_at(server, cache=cache, retries=2, concurrency=1).answer_distribution(questions(), ANSWERS)
    assert not caught.value.failures
    assert len(server.requests) == 5 + 9, "questions after three that found the server down are not asked"
    judge = judge_at(server, cache=cache)
    assert np.isfinite(judge.answer_distribution(questions(), ANSWERS)).all()
    assert (judge.usage.answered, judge.usage.cached) == (len(questions()) - 5, 5)
    assert set(server.served.values()) == {1}


def test_ctrl_c_keeps_what_was_answered(server, tmp_path):
    asked, cache, main = questions(40), tmp_path / "answers.sqlite", threading.main_thread()
    server.delay = 0.05

    def interrupt():
        while sum(server.served.values()) < 10:
            time.sleep(0.01)
        signal.pthread_kill(main.ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        judge_at(server, cache=cache).answer_distribution(asked, ANSWERS)
    for thread in threading.enumerate():
        if thread.name == "judge":  # what is under way is finished
            thread.join()
    answered = sum(server.served.values())
    assert 10 <= answered < 40
    judge = judge_at(server, cache=cache)
    judge.answer_distribution(asked, ANSWERS)
    assert judge.usage.cached >= answered, "finished answers were lost"
    assert judge.usage.answered + judge.usage.cached == 40


@pytest.mark.parametrize(("fault", "message"), ENDS.values(), ids=ENDS)
def test_what_waiting_does_not_mend_is_not_asked_again(server, fault, message):
    server.faults.append(fault)
    with pytest.raises(JudgeError, match=message):
        judge_at(server, concurrency=1).answer_distribution(questions(), ANSWERS)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "fault", [Fault("status", 403), Fault("status", 404), DOWN, Fault("status", 200, body='{"error": {"code": 451}}')]
)
def test_a_question_that_always_fails_is_one_row_and_all_of_them_are_the_server(server, fault):
    server.faults.append(fault)
    with pytest.raises(JudgeError) as caught:
        judge_at(server, concurrency=1, retries=0).answer_distribution(questions(), ANSWERS)
    assert list(caught.value.failures) == [0]
    assert np.isfinite(caught.value.results[1:]).all()
    server.faults.extend([fault] * 3)
    with pytest.raises(JudgeError) as caught:
        judge_at(server, concurrency=1, retries=0).answer_distribution(questions(), ANSWERS)
    assert not caught.value.failures
    assert not server.faults


def test_a_question_that_cannot_be_answered_does_not_stop_the_others(server, tmp_path):
    server.refuse = "forbidden"
    asked = [*questions(2), Question("forbidden"), Question("Look.", image=tmp_path / "no.png"), Question("Is it?")]
    with pytest.raises(JudgeError) as caught:
        judge_at(server).answer_distribution(asked, ANSWERS)
    assert sorted(caught.value.failures) == [2, 3]
    assert "400" in caught.value.failures[2]
    assert "does not exist" in caught.value.failures[3]
    assert np.isnan(caught.value.results).all(axis=1).tolist() == [False, False, True, True, False]
    assert sum("forbidden" in str(request["messages"]) for request in server.requests) == 1, "a refusal was retried"
    server.faults.append(Fault("status", 422, body='{"detail": "Unexpected fields"}'))  # as FastAPI's servers say it
    with pytest.raises(JudgeError, match=r"the server refuses the question \(Error code: 422 - .*Unexpected fields"):
        judge_at(server).generate(questions(1))


def test_waits_are_those_that_the_server_says_and_grow(server, monkeypatch):
    monkeypatch.setattr(connection, "_FIRST_WAIT", 0.05)
    server.faults.extend([Fault("status", 429, headers={"Retry-After": "0.3"}), LIMITED, LIMITED])
    judge_at(server).answer_distribution(questions(1), ANSWERS)
    assert (np.diff(server.arrivals) >= [0.3, 0.05, 0.1]).all()
    until = int(time.time() + 1.5)  # a date has whole seconds
    server.faults.append(Fault("status", 429, headers={"Retry-After": formatdate(until, usegmt=True)}))
    judge_at(server).answer_distribution(questions(1), ANSWERS)
    assert time.time() >= until


def test_a_server_lists_its_models_or_says_why_not(server):
    absent = ServerJudge("tiny", "http://127.0.0.1:9/v1", timeout=1.0)
    with pytest.raises(JudgeError, match=r"no server can be asked at http://127\.0\.0\.1:9/v1: no connection"):
        absent.models()
    assert judge_at(server).models() == ["tiny"]
    server.loading = 1
    with pytest.raises(JudgeError, match=r"is not ready \(Error code: 503 - .*Loading model.*\); run again when it is"):
        judge_at(server).models()


def test_a_trainer_waits_for_a_judge_that_restarts_and_others_end_after_their_tries(monkeypatch, caplog):
    monkeypatch.setattr(connection, "_QUIET_WAIT", 0.1)
    with loopback_judge(*strict_llava("12345")) as server:
        judge = judge_at(server, retries=1, concurrency=2)
        server.faults.extend([Fault("drop")] * 10)
        with pytest.raises(JudgeError, match=f"at {server.endpoint} did not answer in 2 tries, last: no connection"):
            judge.generate(questions(4))
        server.faults.clear()
        caplog.clear()  # on a busy machine, even a first try may have been slow
        server.faults.extend([Fault("drop"), Fault("status", 503), Fault("status", 502)] * 2)
        reward = MetricReward("judge", judge)
        assert None not in reward(["Describe."] * 2, ["A dog.", "A cat."], image=pictures(2))
        assert not server.faults
    waits = [record.getMessage() for record in caplog.records if "waiting" in record.getMessage()]
    form = rf"'Grade how .*'\.\.\.: waiting \d+ s to ask tiny at {server.endpoint} again \(\d+ s so far"
    assert 1 <= len(waits) < 6, "of questions that wait at the same time, one is told of"
    assert all(re.match(form, wait) for wait in waits)


@pytest.mark.parametrize(("patience", "expected"), [(None, 300.0), (5.0, 5.0)])
@pytest.mark.parametrize("make", [TournamentReward, FleurReward], ids=["tournament", "fleur"])
def test_a_judge_of_a_trainer_has_the_patience_of_remote_rewards(make, patience, expected):
    judge = ServerJudge("tiny", "http://127.0.0.1:9/v1", patience=patience)
    make(judge)(["Describe."], ["..."], image=pictures(1))  # nothing is asked about it
    assert judge.patience == expected
