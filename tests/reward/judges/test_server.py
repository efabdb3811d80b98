"""ServerJudge through the real client: right numbers, the rule for unlisted tokens, cache, bill, async, keys."""

from __future__ import annotations

import asyncio
import logging
import math
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reward.errors import ConfigError, JudgeError, OutputError
from reward.judges import Judge, Question, ServerJudge
from reward.judges.local import LocalJudge
from tests.loopback_judge import LoopbackJudge, loopback_judge
from tests.toy_judges import pictures

ANSWERS = list("12345")
RUBRIC = "Rate how well the caption fits, from 1 to 5.\nCaption: "
PROBE = 2  # requests by which a session finds out whether system messages arrive
KEY = "sk-not-a-real-key-1234567890"


def questions() -> list[Question]:
    captions = ["A red star.", "Two blue circles on the left of a star.", "Hm."]
    return [
        Question(RUBRIC + caption, image=image, system="You rate captions.")
        for image in [*pictures(2), None]
        for caption in captions
    ]


def judge_at(server: LoopbackJudge, **settings: Any) -> ServerJudge:
    return ServerJudge("tiny", server.endpoint, **{"timeout": 20.0, "retries": 2, **settings})


def test_scores_equal_the_local_model_where_the_server_lists_them(
    server: LoopbackJudge, model: tuple[Any, Any]
) -> None:
    local = LocalJudge(*model)
    judge = judge_at(server)
    assert isinstance(judge, Judge)
    exact = local.answer_distribution(questions(), ANSWERS)
    given = judge.answer_distribution(questions(), ANSWERS)
    writer, floors, listed = local.writer, [], []
    for row, answer in enumerate(local.generate(questions(), max_new_tokens=1, top_logprobs=20)):
        logprobs = answer.logprobs[0]
        floors.append(math.exp(min(logprobs.values())))
        # both spellings of a digit must be listed for its probability to be whole
        listed.append([{digit, f" {digit}"} <= set(logprobs) for digit in ANSWERS])
        assert given[row].sum() <= 1
    listed_, floor = np.array(listed), np.array(floors)[:, None]
    assert listed_.any()
    assert (given == 0).any(), "the rule for unlisted tokens was not exercised"
    np.testing.assert_allclose(given[listed_], exact[listed_], atol=1e-5)
    # what a server hides of an answer is at most the least listed probability, once for each spelling
    spellings = np.array([len(ids) for ids in writer.answer_ids(ANSWERS)])
    assert (given <= exact + 1e-6).all()
    assert (exact - given <= floor * spellings + 1e-6).all()


def test_written_answers_equal_the_local_ones(server: LoopbackJudge, model: tuple[Any, Any]) -> None:
    asked = [*questions(), Question("Why?", history=(("user", "Rate it."), ("assistant", "4")), image=pictures(1)[0])]
    remote = judge_at(server).generate(asked, max_new_tokens=6, top_logprobs=5)
    local = LocalJudge(*model).generate(asked, max_new_tokens=6, top_logprobs=5)
    for ours, expected in zip(remote, local, strict=True):
        assert (ours.text, ours.tokens, ours.truncated) == (expected.text, expected.tokens, expected.truncated)
    assert judge_at(server).generate(asked[:1], max_new_tokens=2)[0].logprobs == ()


def test_a_rerun_costs_no_calls(server: LoopbackJudge, tmp_path: Path) -> None:
    cache = tmp_path / "answers.sqlite"
    first = judge_at(server, cache=cache, prices=(2.0, 8.0))
    table = first.answer_distribution(questions(), ANSWERS)
    calls = len(server.requests)
    assert calls - PROBE == len(questions()) == first.usage.answered
    read, written = first.usage.input_tokens, first.usage.output_tokens
    assert read > 100 * len(questions())
    assert written == 3 * len(questions()) + PROBE
    assert first.usage.cost == pytest.approx((2.0 * read + 8.0 * written) / 1e6)
    first.close()
    for again in (judge_at(server, cache=cache, prices=(2.0, 8.0)), pickle.loads(pickle.dumps(first))):
        answered, cached = again.usage.answered, again.usage.cached
        np.testing.assert_array_equal(again.answer_distribution(questions(), ANSWERS), table)
        assert len(server.requests) == calls
        assert (again.usage.answered - answered, again.usage.cached - cached) == (0, len(questions()))
    assert judge_at(server, cache=cache, prices=(2.0, 8.0)).usage.cost == 0.0


def test_equal_questions_are_asked_once(server: LoopbackJudge) -> None:
    judge = judge_at(server)
    server.delay = 0.2
    twins = [questions()[0]] * 5
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(judge.answer_distribution, [twins] * 2, [ANSWERS, ["5", "1"]])
    assert len(server.requests) == 1 + PROBE
    assert judge.usage.cached == 9
    assert (one == one[0]).all()
    np.testing.assert_array_equal(one[:, [4, 0]], other)


def test_a_cancelled_call_leaves_its_question_to_the_twin(server: LoopbackJudge) -> None:
    session = judge_at(server)._open([])
    server.delay = 0.4
    first, second = (session.loop.submit(session.ask_all(questions()[:1], max_tokens=1, top=0)) for _ in range(2))
    time.sleep(0.1)
    first.cancel()  # as Ctrl-C does
    answers, failures = second.result()
    assert (answers[0] is None, failures) == (False, {})


def test_calls_work_inside_a_running_loop(server: LoopbackJudge) -> None:
    async def as_a_trainers_synchronous_reward() -> Any:
        return judge_at(server).answer_distribution(questions()[:2], ANSWERS)

    assert np.isfinite(asyncio.run(as_a_trainers_synchronous_reward())).all()


def test_no_more_than_the_limit_at_once(server: LoopbackJudge) -> None:
    judge = judge_at(server, concurrency=2)
    server.delay = 0.05
    with ThreadPoolExecutor(3) as pool:
        groups = [questions()[start : start + 3] for start in (0, 3, 6)]
        list(pool.map(judge.answer_distribution, groups, [ANSWERS] * 3))
    assert server.most_at_once == 2


def test_a_question_that_cannot_be_answered_does_not_stop_the_others(server: LoopbackJudge, tmp_path: Path) -> None:
    server.refuse = "forbidden"
    asked = [*questions()[:2], Question("forbidden"), Question("Look.", image=tmp_path / "no.png"), Question("Is it?")]
    with pytest.raises(JudgeError) as caught:
        judge_at(server).answer_distribution(asked, ANSWERS)
    assert sorted(caught.value.failures) == [2, 3]
    assert "400" in caught.value.failures[2]
    assert "does not exist" in caught.value.failures[3]
    assert np.isnan(caught.value.results[[2, 3]]).all()
    expected = judge_at(server).answer_distribution([asked[0], asked[1], asked[4]], ANSWERS)
    np.testing.assert_allclose(caught.value.results[[0, 1, 4]], expected)
    assert sum("forbidden" in str(request["messages"]) for request in server.requests) == 1, "a refusal was retried"


def test_unknown_models_and_answers_without_log_probabilities_are_errors(
    server: LoopbackJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = server.complete
    monkeypatch.setattr(server, "complete", lambda body: complete({**body, "logprobs": False}))
    with pytest.raises(JudgeError, match="no log probabilities"):
        judge_at(server).answer_distribution(questions()[:1], ANSWERS)
    server.requests.clear()
    with pytest.raises(JudgeError, match=r"no model 'huge' at http.*base_url"):
        ServerJudge("huge", server.endpoint, concurrency=1).generate(questions())
    assert len(server.requests) == 1


def test_a_wrong_key_is_named_by_its_variable_and_shown_nowhere(
    model: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("JUDGE_KEY", KEY)
    cache = tmp_path / "answers.sqlite"
    with loopback_judge(*model, key=KEY) as server:
        judge = judge_at(server, api_key_env="JUDGE_KEY", cache=cache)
        judge.generate(questions()[:2], max_new_tokens=2)
        server.refuse = "Hm"
        with pytest.raises(JudgeError) as refused:
            judge.generate(questions()[2:3])
        assert KEY.encode() not in pickle.dumps(judge)
        monkeypatch.setenv("JUDGE_KEY", KEY + "-old")
        with pytest.raises(JudgeError, match=r"\$JUDGE_KEY.*401") as caught:
            judge_at(server, api_key_env="JUDGE_KEY").generate(questions()[:1])
        judge.close()
    errors = [repr((error.value, error.value.__cause__, error.value.__context__)) for error in (refused, caught)]
    assert not any(KEY in shown for shown in (*errors, repr(judge), str(vars(judge)), caplog.text))
    assert len(caplog.records) > 0
    for file in tmp_path.iterdir():
        content = file.read_bytes()
        assert KEY.encode() not in content
        assert b"red star" not in content, "prompts are not kept either"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"concurrency": 0}, "concurrency"),
        ({"retries": -1}, "retries"),
        ({"timeout": 0.0}, "timeout"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"base_url": "http://user:secret@localhost/v1"}, "base_url"),
        ({"base_url": None}, "OPENAI_API_KEY"),
    ],
)
def test_settings_out_of_range(settings: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ConfigError, match=message) as caught:
        ServerJudge("tiny", **{"base_url": "http://localhost:1/v1", **settings})
    assert "secret" not in str(caught.value)


def test_what_a_server_cannot_do_is_refused(server: LoopbackJudge) -> None:
    judge = judge_at(server, top_logprobs=5)
    with pytest.raises(ValueError, match="at most 5"):
        judge.generate([Question("Rate.")], top_logprobs=6)
    assert judge.pieces("0.85") is None
    assert server.requests == []


def test_a_cache_that_is_no_cache(server: LoopbackJudge, tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("Not a cache. " * 100)
    with pytest.raises(OutputError, match=r"notes\.txt"):
        judge_at(server, cache=other).generate(questions()[:1])
    assert other.read_text().startswith("Not a cache.")
