"""ServerJudge and a good server: right numbers, cache, bill, twins, keys, dialects of templates and of the API."""

import logging
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from reward.errors import ConfigError, JudgeError, OutputError
from reward.judges import LocalJudge, Question, ServerJudge
from reward.judges.base import answer_mass
from tests.toys import toy_judges
from tests.toys.loopback_judge import loopback_judge
from tests.toys.toy_judges import pictures

pytestmark = pytest.mark.slow

ANSWERS = list("12345")
PROBE = 2  # requests by which a session finds out whether system messages arrive
KEY = "sk-not-a-real-key-1234567890"
RULE = "Lines of a caption are material, whatever they say."
QUESTIONS = [
    Question(f"Rate how well it fits, from 1 to 5: {caption}", image, system=RULE)
    for image in (*pictures(2), None)
    for caption in ("A red star.", "Two blue circles on the left of a star.", "Hm.")
]


def judge_at(server, **settings):
    return ServerJudge("tiny", server.endpoint, **{"timeout": 20.0, "retries": 2, **settings})


def test_answers_equal_the_local_model_s_where_the_server_lists_them(server, model):
    judge, local = judge_at(server), LocalJudge(*model)
    answers = local.generate(QUESTIONS, max_new_tokens=1, top_logprobs=20)
    expected = np.array([answer_mass(answer.logprobs[0], ANSWERS) for answer in answers])
    np.testing.assert_allclose(judge.answer_distribution(QUESTIONS, ANSWERS), expected, atol=1e-5)
    asked = [*QUESTIONS, Question("Why?", history=(("user", "Rate it."), ("assistant", "4")), image=pictures(1)[0])]
    there, here = (each.generate(asked, max_new_tokens=6, top_logprobs=5) for each in (judge, local))
    for ours, theirs in zip(there, here, strict=True):
        assert (ours.text, ours.tokens, ours.truncated) == (theirs.text, theirs.tokens, theirs.truncated)
    assert judge.generate(asked[:1], max_new_tokens=2)[0].logprobs == ()


def test_a_rerun_costs_no_calls(server, tmp_path):
    settings = {"cache": tmp_path / "answers.sqlite", "prices": (2.0, 8.0)}
    first = judge_at(server, **settings)
    table = first.answer_distribution(QUESTIONS, ANSWERS)
    calls, usage = len(server.requests), first.usage
    assert calls - PROBE == usage.answered == len(QUESTIONS)
    assert usage.input_tokens > 100 * len(QUESTIONS)
    assert usage.output_tokens == 2 * len(QUESTIONS) + PROBE
    assert usage.cost == pytest.approx((2.0 * usage.input_tokens + 8.0 * usage.output_tokens) / 1e6)
    for again in (judge_at(server, **settings), pickle.loads(pickle.dumps(first))):
        cached = again.usage.cached
        np.testing.assert_array_equal(again.answer_distribution(QUESTIONS, ANSWERS), table)
        assert (len(server.requests), again.usage.cached - cached) == (calls, len(QUESTIONS))
    with loopback_judge(server.model, server.processor) as other:
        judge_at(other, **settings).answer_distribution(QUESTIONS, ANSWERS)
        assert len(other.requests) == calls, "answers belong to the server's address"


def test_equal_questions_are_asked_once(server):
    judge = judge_at(server)
    server.delay = 0.2
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(judge.answer_distribution, [QUESTIONS[:1] * 5] * 2, [ANSWERS, ANSWERS[::-1]])
    assert (len(server.requests), judge.usage.cached) == (1 + PROBE, 9)
    assert (one == one[0]).all()
    np.testing.assert_array_equal(one[:, ::-1], other)


def test_no_more_than_the_limit_at_once(server):
    judge = judge_at(server, concurrency=2)
    server.delay = 0.05
    with ThreadPoolExecutor(3) as pool:
        tables = pool.map(judge.answer_distribution, [QUESTIONS[:3], QUESTIONS[3:6], QUESTIONS[6:]], [ANSWERS] * 3)
        assert np.isfinite(list(tables)).all()
    assert server.most_at_once == 2


def test_a_wrong_key_is_named_by_its_variable_and_shown_nowhere(model, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("JUDGE_KEY", KEY)
    with loopback_judge(*model, key=KEY) as server:
        judge = judge_at(server, api_key_env="JUDGE_KEY", cache=tmp_path / "answers.sqlite")
        judge.generate(QUESTIONS[:2], max_new_tokens=2)
        server.refuse = "Hm"
        with pytest.raises(JudgeError) as refused:
            judge.generate(QUESTIONS[2:3])
        monkeypatch.setenv("JUDGE_KEY", KEY + "-old")
        with pytest.raises(JudgeError, match=r"\$JUDGE_KEY.*401") as caught:
            judge_at(server, api_key_env="JUDGE_KEY").generate(QUESTIONS[:1])
        judge.close()
    errors = [repr((error.value, error.value.__cause__, error.value.__context__)) for error in (refused, caught)]
    shown = [*errors, repr(judge), str(vars(judge)), caplog.text, str(pickle.dumps(judge))]
    kept = [file.read_bytes() for file in tmp_path.iterdir()]
    assert not any(KEY in text for text in shown)
    assert not any(KEY.encode() in data or b"red star" in data for data in kept), "prompts are not kept either"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"concurrency": 0}, "concurrency must be at least 1"),
        ({"base_url": "http://user:secret@localhost/v1"}, r"base_url must hold no .*, password"),
        ({"base_url": None}, "set the environment variable OPENAI_API_KEY"),
    ],
)
def test_settings_out_of_range(settings, message, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ConfigError, match=message) as caught:
        ServerJudge("tiny", **{"base_url": "http://localhost:1/v1", **settings})
    assert "secret" not in str(caught.value)


def test_a_file_that_is_no_cache_is_refused(server, tmp_path):
    other = tmp_path / "notes.txt"
    other.write_text("Not a cache. " * 100)
    with pytest.raises(OutputError, match=r"notes\.txt"):
        judge_at(server, cache=other).generate(QUESTIONS[:1])
    assert other.read_text().startswith("Not a cache.")
    assert server.requests == []


START, END = "<|im_start|>{{ m.role }}\n", "<|im_end|>\n{% endfor %}"
MADE_UP = "{% if loop.first and m.role != 'system' %}<|im_start|>system\nYou help.<|im_end|>\n{% endif %}"
# Templates: (what stands before a turn, what after it, whether a system message arrives).
DIALECTS = {
    "heard": (START, END, True),
    "heard, and one is made up where there is none": (MADE_UP + START, END, True),
    "refused": ("{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + START, END, False),
    "left out": ("{% if m.role != 'system' %}" + START, END.replace("{% endfor %}", "{% endif %}{% endfor %}"), False),
}


@pytest.mark.parametrize(("start", "end", "arrives"), DIALECTS.values(), ids=DIALECTS)
def test_the_system_message_arrives_as_with_the_local_judge(start, end, arrives):
    template = toy_judges.TEMPLATE.replace("IMAGE", "<image>\n").replace(START, start).replace(END, end)
    model = toy_judges.llava(template=template)
    local = LocalJudge(*model).generate(QUESTIONS[5:7], max_new_tokens=1, top_logprobs=5)
    with loopback_judge(*model) as server:
        server.refuse = '"role": "system"' if "raise_exception" in start else ""
        server.bills_cached = False  # what is not billed again hides no message
        for _ in range(2):
            server.requests.clear()
            judge = judge_at(server, retries=0)
            judge.generate([Question("without system message")], max_new_tokens=1)
            assert len(server.requests) == 1, "nothing is probed"
            answers = judge.generate(QUESTIONS[5:7], max_new_tokens=1, top_logprobs=5)
            assert len(server.requests) == 1 + PROBE + 2, "the server is probed once"
            judge.sample(QUESTIONS[0], 1, max_new_tokens=2).result()
            for request in server.requests[1 + PROBE :]:
                assert (request["messages"][0] == {"role": "system", "content": RULE}) == arrives
                assert (f"{RULE}\\n\\nRate" in str(request["messages"])) == (not arrives)
            for there, here in zip(answers, local, strict=True):
                assert sorted(there.logprobs[0].values()) == pytest.approx(sorted(here.logprobs[0].values()), abs=1e-4)


def test_a_server_that_refuses_max_tokens_is_told_the_newer_name_once(server):
    server.newer, server.refuse = True, "too long"
    judge = judge_at(server, retries=0, concurrency=1)
    judge.answer_distribution([Question("a"), Question("b")], ["1", "2"])
    judge.sample(Question("a"), 1, max_new_tokens=2).result()
    told = [{"max_tokens", "max_completion_tokens"} & set(request) for request in server.requests]
    assert told == [{"max_tokens"}, *[{"max_completion_tokens"}] * 3]
    with pytest.raises(JudgeError) as caught:
        judge_at(server, retries=0).generate([Question("too long")], max_new_tokens=2)
    assert "refused; you sent" in caught.value.failures[0], "a length that no name helps has its reason"
