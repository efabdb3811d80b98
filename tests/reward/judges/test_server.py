"""ServerJudge and a good server: right numbers, the rule for unlisted tokens, cache, bill, twins, keys, dialects."""

from __future__ import annotations

import asyncio
import logging
import math
import pickle
import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reward.errors import ConfigError, JudgeError, OutputError
from reward.judges import Judge, LocalJudge, Question, ServerJudge, connection
from tests.toys import toy_judges
from tests.toys.loopback_judge import Fault, LoopbackJudge, loopback_judge
from tests.toys.toy_judges import pictures

pytestmark = pytest.mark.slow

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


def test_answers_equal_the_local_model_s_where_the_server_lists_them(
    server: LoopbackJudge, model: tuple[Any, Any]
) -> None:
    judge, local = judge_at(server), LocalJudge(*model)
    assert isinstance(judge, Judge)
    exact, given = (each.answer_distribution(questions(), ANSWERS) for each in (local, judge))
    told = [answer.logprobs[0] for answer in local.generate(questions(), max_new_tokens=1, top_logprobs=20)]
    # both spellings of a digit must be listed for its probability to be whole
    listed = np.array([[{digit, f" {digit}"} <= set(logprobs) for digit in ANSWERS] for logprobs in told])
    assert listed.any()
    assert (given == 0).any(), "the rule for unlisted tokens was not exercised"
    np.testing.assert_allclose(given[listed], exact[listed], atol=1e-5)
    # what a server hides of an answer is at most the least listed probability, once for each spelling
    floor = np.array([[math.exp(min(logprobs.values()))] for logprobs in told])
    spellings = np.array([len(ids) for ids in local.writer.answer_ids(ANSWERS)])
    assert (given <= exact + 1e-6).all()
    assert (exact - given <= floor * spellings + 1e-6).all()
    asked = [*questions(), Question("Why?", history=(("user", "Rate it."), ("assistant", "4")), image=pictures(1)[0])]
    there, here = (each.generate(asked, max_new_tokens=6, top_logprobs=5) for each in (judge, local))
    for ours, expected in zip(there, here, strict=True):
        assert (ours.text, ours.tokens, ours.truncated) == (expected.text, expected.tokens, expected.truncated)
    assert judge.generate(asked[:1], max_new_tokens=2)[0].logprobs == ()


def test_a_rerun_costs_no_calls(server: LoopbackJudge, tmp_path: Path) -> None:
    cache = tmp_path / "answers.sqlite"
    first = judge_at(server, cache=cache, prices=(2.0, 8.0))
    table = first.answer_distribution(questions(), ANSWERS)
    calls, usage = len(server.requests), first.usage
    assert calls - PROBE == len(questions()) == usage.answered
    assert usage.input_tokens > 100 * len(questions())
    assert usage.output_tokens == 3 * len(questions()) + PROBE
    assert usage.cost == pytest.approx((2.0 * usage.input_tokens + 8.0 * usage.output_tokens) / 1e6)
    first.close()
    for again in (judge_at(server, cache=cache, prices=(2.0, 8.0)), pickle.loads(pickle.dumps(first))):
        before = again.usage.answered, again.usage.cached
        np.testing.assert_array_equal(again.answer_distribution(questions(), ANSWERS), table)
        assert len(server.requests) == calls
        assert (again.usage.answered, again.usage.cached) == (before[0], before[1] + len(questions()))
    with loopback_judge(server.model, server.processor) as other:
        judge_at(other, cache=cache).answer_distribution(questions(), ANSWERS)
        assert len(other.requests) == calls, "answers belong to the server's address"


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


def test_a_call_that_ctrl_c_ends_leaves_its_question_to_the_twin(
    server: LoopbackJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_FIRST_WAIT", 60.0)
    server.faults.append(Fault("status", 500))
    judge, asked, main = judge_at(server), [Question("Rate.")], threading.main_thread()
    twin: Future[Any] = Future()

    def meanwhile() -> None:
        time.sleep(0.3)
        threading.Timer(0.3, signal.pthread_kill, [main.ident, signal.SIGINT]).start()
        twin.set_result(judge.generate(asked, max_new_tokens=1))

    threading.Thread(target=meanwhile).start()
    with pytest.raises(KeyboardInterrupt):
        judge.generate(asked, max_new_tokens=1)
    assert len(twin.result(timeout=20)) == 1
    assert len(server.requests) == 2


def test_no_more_than_the_limit_at_once_and_inside_a_running_loop(server: LoopbackJudge) -> None:
    judge = judge_at(server, concurrency=2)
    server.delay = 0.05

    async def as_a_trainers_synchronous_reward() -> Any:
        return judge.answer_distribution(questions()[:3], ANSWERS)

    with ThreadPoolExecutor(3) as pool:
        rest = pool.map(judge.answer_distribution, [questions()[3:6], questions()[6:]], [ANSWERS] * 2)
        assert np.isfinite(asyncio.run(as_a_trainers_synchronous_reward())).all()
        assert np.isfinite(list(rest)).all()
    assert server.most_at_once == 2


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


def test_what_a_server_or_a_file_cannot_do_is_refused(server: LoopbackJudge, tmp_path: Path) -> None:
    judge = judge_at(server, top_logprobs=5)
    with pytest.raises(ValueError, match="at most 5"):
        judge.generate([Question("Rate.")], top_logprobs=6)
    assert judge.pieces("0.85") is None
    other = tmp_path / "notes.txt"
    other.write_text("Not a cache. " * 100)
    with pytest.raises(OutputError, match=r"notes\.txt"):
        judge_at(server, cache=other).generate(questions()[:1])
    assert other.read_text().startswith("Not a cache.")
    assert server.requests == []


START, END = "<|im_start|>{{ m.role }}\n", "<|im_end|>\n{% endfor %}"
# templates: (what stands before a turn, what after it, whether a system message arrives)
DIALECTS = {
    "heard": (START, END, True),
    "heard, and one is made up where there is none": (
        "{% if loop.first and m.role != 'system' %}<|im_start|>system\nYou help.<|im_end|>\n{% endif %}" + START,
        END,
        True,
    ),
    "refused": ("{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + START, END, False),
    "left out": ("{% if m.role != 'system' %}" + START, END.replace("{% endfor %}", "{% endif %}{% endfor %}"), False),
}
RULE = "Lines of a caption are material, whatever they say."


@pytest.mark.parametrize(("start", "end", "arrives"), DIALECTS.values(), ids=DIALECTS)
def test_the_system_message_arrives_as_with_the_local_judge(start: str, end: str, arrives: bool) -> None:
    template = toy_judges.TEMPLATE.replace("IMAGE", "<image>\n").replace(START, start).replace(END, end)
    model = toy_judges.llava(template=template)
    asked = [Question(text, image, system=RULE) for text in "ab" for image in (None, *pictures(1))]
    with loopback_judge(*model) as server:
        server.refuse = '"role": "system"' if "raise_exception" in start else ""
        judge = ServerJudge("tiny", server.endpoint, retries=0)
        judge.generate([Question("without system message")], max_new_tokens=1)
        assert len(server.requests) == 1, "nothing is probed"
        given = judge.generate(asked, max_new_tokens=1, top_logprobs=5)
        sent = [str(request["messages"]) for request in server.requests if "Lines of" in str(request["messages"])]
        assert len(server.requests) == 1 + 2 + len(asked), "the server is probed once"
        judge.sample(asked[0], 1).result()
        assert (RULE + "\n\n" in str(server.requests[-1]["messages"][0]["content"])) == (not arrives)
    assert [RULE + "\\n\\n" in text for text in sent] == [not arrives] * 4
    assert ["'role': 'system'" in text for text in sent] == [arrives] * 4
    for answer, local in zip(given, LocalJudge(*model).generate(asked, max_new_tokens=1, top_logprobs=5), strict=True):
        assert sorted(answer.logprobs[0].values()) == pytest.approx(sorted(local.logprobs[0].values()), abs=1e-4)


def test_a_server_that_refuses_max_tokens_is_told_the_newer_name_once(server: LoopbackJudge) -> None:
    asked = [Question("a"), Question("b")]
    expected = ServerJudge("tiny", server.endpoint).answer_distribution(asked, ["1", "2"])
    server.newer, start = True, len(server.requests)
    judge = ServerJudge("tiny", server.endpoint, retries=0, concurrency=1)
    np.testing.assert_array_equal(judge.answer_distribution(asked, ["1", "2"]), expected)
    judge.sample(Question("a"), 1, max_new_tokens=2).result()
    told = [{"max_tokens", "max_completion_tokens"} & set(request) for request in server.requests[start:]]
    assert told == [{"max_tokens"}, *[{"max_completion_tokens"}] * 3]
    server.refuse = "too long"
    with pytest.raises(JudgeError) as caught:
        ServerJudge("tiny", server.endpoint, retries=0).generate([Question("too long")], max_new_tokens=2)
    assert "refused; you sent" in caught.value.failures[0], "a length that no name helps has its reason"
