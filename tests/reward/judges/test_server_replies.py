"""ServerJudge and what a server may reply: odd values fail their row, and no reply runs on for ever."""

import base64
import gzip
import json
import time

import pytest

from reward import http_client, load_scorer
from reward.errors import JudgeError
from reward.judges import Question, ServerJudge
from reward.judges.base import NoProbabilities
from reward.scoring import score_dataset
from tests.toys.json_lines import read_lines, write_lines
from tests.toys.loopback_http import send, serving

ANSWERS = list("12345")
BOTH = [Question("odd"), Question("good")]


def position(token, logprob=0.0, listed=None, **more):
    """What is told of one token; `listed`: (token, log probability) of the likeliest, by default it and "?"."""
    pairs = [(token, logprob), ("?", -20.0)] if listed is None else listed
    top = [{"token": text, "logprob": value} for text, value in pairs]
    return {"token": token, "logprob": logprob, "top_logprobs": top, **more}


FOUR = position("4", -0.223, [("4", -0.223), ("5", -1.7)])


def completion(*positions, text="4", usage=9, message=None, **choice):
    """A good reply, "4" with probability 0.8, but for what is given."""
    message = {"role": "assistant", "content": text, **(message or {})}
    told = {"content": list(positions or [FOUR])}
    whole = {"index": 0, "finish_reason": "stop", "message": message, "logprobs": told, **choice}
    return {"model": "tiny", "choices": [whole], "usage": {"prompt_tokens": usage, "completion_tokens": 1}}


class Writer:
    """Its replies are written by the test: `reply` gets the handler and the text of the question."""

    def __init__(self):
        self.bodies, self.endpoint = [], ""
        self.odd(completion())

    @property
    def requests(self):
        return len(self.bodies)

    def answer(self, handler, body):
        self.bodies.append(json.loads(body))
        self.reply(handler, self.bodies[-1]["messages"][-1]["content"])

    def odd(self, made):
        """The question "odd" gets this reply, the others a good one."""
        replies = {True: json.dumps(made).encode(), False: json.dumps(completion()).encode()}
        self.reply = lambda handler, text: send(handler, replies[text == "odd"])

    def always(self, body, status=200, **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.reply = lambda handler, text: send(handler, data, status, **headers)

    def judge(self, **settings):
        return ServerJudge("tiny", self.endpoint, **{"timeout": 5.0, "retries": 1, **settings})


@pytest.fixture
def writer():
    made = Writer()
    with serving(made.answer) as address:
        made.endpoint = f"{address}/v1"
        yield made


# Replies that are no answer, and why.
ODD = [
    *((completion(position("4", value)), f"log probability {value!r}") for value in (0.7, float("nan"), "low")),
    (completion(position("4", -0.1, [("4", -0.1), ("5", -0.1)])), "add up to 1.81"),
    (completion(position("4", -0.1, [(4, -1)])), "must be text, got 4"),
    (completion(position(4)), "token of the server's reply must be text, got 4"),
    (completion({**FOUR, "top_logprobs": None}), "cannot be read"),
    (completion({**FOUR, "bytes": "4"}), "cannot be read"),
    (completion(text={"text": "4"}), "must be text, got dict"),
    (completion({**FOUR, "top_logprobs": []}), "no alternatives"),
    (completion(position("4", 0.0, [("4", 0.0), ("5", -9999.0)])), "after sampling"),
    ({"error": {"message": "flagged"}}, "is an error: {'message': 'flagged'}"),
    (completion(text="1"), "tokens of the server's reply spell '4', but its text is '1'"),
    (completion(text=None, message={"refusal": "I cannot give 5."}), "refuses to answer: 'I cannot give 5.'"),
    (completion(text=None, message={"reasoning_content": "4 or 5?"}), "reasoning but no answer"),
    (completion(text="", message={"reasoning": "4 or 5?"}), "reasoning but no answer"),
    (completion(finish_reason="abort"), "is 'abort'"),
    (completion(finish_reason=None), "is None"),
    (completion(logprobs=None), "without the probabilities of its tokens"),
    (completion(text="", logprobs={"content": []}), "reply is empty"),
]


@pytest.mark.parametrize(("reply", "message"), ODD, ids=[message for _, message in ODD])
def test_an_odd_reply_fails_its_row_and_is_not_kept(writer, tmp_path, reply, message):
    writer.odd(reply)
    cache = tmp_path / "answers.sqlite"
    judge = writer.judge(cache=cache, prices=(1.0, 1.0))
    with pytest.raises(JudgeError) as caught:
        judge.answer_distribution(BOTH, ANSWERS)
    assert list(caught.value.failures) == [0]
    assert message in caught.value.failures[0]
    assert caught.value.results[1][3] == pytest.approx(0.8, abs=1e-3)
    assert round(judge.usage.cost * 1e6) == 10, "only what could be read is booked"
    writer.odd(completion())  # a good server at the same address, after a repair
    table = writer.judge(cache=cache).answer_distribution(BOTH, ANSWERS)
    assert table[:, 3] == pytest.approx([0.8, 0.8], abs=1e-3)


THOUGHTS = [position(token) for token in ("<think>", "1", "?", "</think>", "\n")]
AFTER = position(" 4", -0.223)
BLANK = position(" ", -0.1, [(" ", -0.1), ("5", -2.5)])
E_ACUTE = position("\\x", bytes=[32, 0xC3, 0x89])
# Replies that look odd and are answers, and the probabilities of 4 and 5.
FINE = {
    "content in parts": (completion(text=[{"type": "text", "text": "4"}]), 0.8, 0.183),
    "what was written is not listed": (completion(position("4", -0.223, [("5", -3.0)])), 0.8, 0.05),
    "tokens of equal text": (completion(position("4", -0.7, [("4", -0.7), ("4", -2.0), ("?", -9.0)])), 0.632, 0.0),
    "thoughts before": (completion(*THOUGHTS, AFTER, position("<|im_end|>")), 0.8, 0.0),
    "a tokenizer's blank": (completion(position("\u25814", -0.223), position("</s>")), 0.8, 0.0),
    "two blanks before": (completion(BLANK, position("\n", -0.2), AFTER), 0.905 * 0.819 * 0.8, 0.082),
    "half characters": (completion(FOUR, position("\\xc3"), position("\\x89"), text="4 \u00c9"), 0.8, 0.183),
    "bytes": (completion({**FOUR, "bytes": [52]}, E_ACUTE, text="4 \u00c9"), 0.8, 0.183),
}
FINE |= {
    f"ends by {why}": (completion(finish_reason=why), 0.8, 0.183) for why in ("eos", "eos_token", "end_turn", "STOP")
}


@pytest.mark.parametrize(("reply", "four", "five"), FINE.values(), ids=FINE)
def test_what_can_be_read_is_read(writer, reply, four, five):
    writer.odd(reply)
    table = writer.judge().answer_distribution(BOTH[:1], ANSWERS)
    assert table[0, 3:] == pytest.approx([four, five], abs=1e-3)


@pytest.mark.parametrize(("told", "booked"), [(9, 9), ("nine", 0), (-5, 0)])
def test_only_a_number_of_tokens_is_booked(writer, told, booked):
    writer.odd(completion(usage=told))
    judge = writer.judge()
    judge.generate(BOTH[:1])
    assert (judge.usage.input_tokens, judge.usage.output_tokens) == (booked, 1)


def test_json_that_is_called_a_text_and_fewer_alternatives_are_read(writer):
    writer.always(b"\n\n  " + json.dumps(completion()).encode(), Content_Type="text/plain")
    assert writer.judge().answer_distribution(BOTH[:1], ANSWERS)[0, 3] == pytest.approx(0.8, abs=1e-3)
    writer.bodies.clear()

    def at_most_five(handler, text):
        refused = writer.bodies[-1]["top_logprobs"] > 5
        said = {"error": {"message": "top_logprobs must be at most 5"}} if refused else completion()
        send(handler, json.dumps(said).encode(), 400 if refused else 200)

    writer.reply = at_most_five
    table = writer.judge(concurrency=1).answer_distribution(BOTH, ANSWERS)
    assert table[:, 3] == pytest.approx([0.8, 0.8], abs=1e-3)
    assert [body["top_logprobs"] for body in writer.bodies] == [20, 5, 5]


def test_a_redirect_says_what_to_change_and_an_empty_answer_is_not_kept(writer, tmp_path):
    writer.always({}, 307, Location="http://elsewhere.example/v1")
    with pytest.raises(JudgeError, match=r"sends us on to http://elsewhere.example/v1; give that address as base_url"):
        writer.judge().generate(BOTH[:1])
    writer.odd(completion(text="", logprobs=None))
    judge = writer.judge(cache=tmp_path / "answers.sqlite")
    assert [judge.generate(BOTH[:1])[0].text for _ in range(2)] == ["", ""]
    assert judge.usage.cached == 0


PROXY = "http://user:secret@127.0.0.1:9"


@pytest.mark.parametrize("variables", [{"HTTP_PROXY": PROXY}, {"all_proxy": PROXY, "NO_PROXY": "example.org"}])
def test_our_own_machine_is_asked_without_a_proxy(writer, monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for host in ("localhost", "127.0.0.1"):
        address = writer.endpoint.replace("127.0.0.1", host)
        assert ServerJudge("tiny", address).generate(BOTH[:1])[0].text == "4"


@pytest.mark.parametrize("status", [200, 400, 401, 500])
def test_messages_hide_the_key_in_any_case_and_as_base64_and_cannot_steer_a_terminal(writer, monkeypatch, status):
    key = "sk-Not-a-Real-Key-1234567890"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    forms = [key, key.upper(), key.lower(), f"Bearer {key}"]
    for prefix in ("", ":", "Bearer ", "user:"):
        encoded = base64.b64encode(f"{prefix}{key}".encode())
        forms += [encoded.decode(), encoded.decode().lower(), base64.urlsafe_b64encode(encoded).decode()]
    secrets = [key.lower(), *(base64.b64encode(f"{' ' * shift}{key}".encode()).decode()[4:30] for shift in range(3))]
    for form in forms:
        writer.always(
            {"error": {"message": f"you sent {form} \x1b[2J\x1b]0;title\x07 \u202eway\r", "code": None}}, status
        )
        with pytest.raises(JudgeError) as caught:
            writer.judge(retries=0).generate(BOTH[:1])
        errors = (caught.value, caught.value.__cause__, caught.value.__context__)
        assert not any(secret.lower() in repr(error).lower() for error in errors for secret in secrets)
        assert str(caught.value).isprintable()


LACKING = completion(logprobs=None)


def test_a_run_that_reads_what_is_written_goes_on_so(writer, tmp_path, caplog):
    file = tmp_path / "answers.sqlite"
    writer.always(LACKING)
    with pytest.raises(NoProbabilities):
        writer.judge(cache=file, concurrency=1).answer_distribution(BOTH, ANSWERS)
    assert writer.requests == 3, "the second question is not asked"
    writer.odd(completion())
    resumed = writer.judge(cache=file)
    with pytest.raises(NoProbabilities):
        resumed.answer_distribution(BOTH, ANSWERS)
    assert (resumed.reading, writer.requests) == ("text", 3)
    assert "begin anew with another file" in caplog.text
    assert writer.judge(cache=tmp_path / "new.sqlite").answer_distribution(BOTH, ANSWERS)[:, 3] == pytest.approx(
        [0.8] * 2, abs=1e-3
    )


@pytest.mark.slow
def test_a_file_run_that_goes_on_mixes_no_numbers_of_two_kinds(writer, tmp_path):
    data = write_lines(tmp_path / "data.jsonl", [{"caption": f"A dog, {row}."} for row in range(6)])
    output = tmp_path / "scores.jsonl"
    replies = [(200, completion(position("5", -0.22, [("5", -0.22), ("3", -1.6)]), text="5"))] * 3 + [(402, {})] * 3

    def score():
        judge = writer.judge(retries=0, concurrency=1)
        scorer = load_scorer(
            "judge", judge, prompt={"ask": "{caption}", "read": "digit", "scale": "1:5", "system": ""}, sees_image=False
        )
        return score_dataset(data, scorer, output, part_rows=1)

    def reply(handler, text):
        status, made = replies.pop(0) if replies else (200, completion(text="5", logprobs=None))
        send(handler, json.dumps(made).encode(), status)

    writer.reply = reply
    with pytest.raises(JudgeError, match="used up"):
        score()
    replies.clear()
    score()
    scores = [row["grade"] for row in read_lines(output)]
    assert scores[:3] == pytest.approx([0.9] * 3, abs=0.05)
    assert scores[3:] == [None] * 3, "what is written would be 1"


LONE = completion(position("**"), position("4", -0.2, [("4", -0.2)]), text="**4")


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        (LONE, "no alternatives of the answer '4'"),
        (LACKING, "without the probabilities of its tokens, which others had"),
    ],
)
def test_a_reply_that_cannot_be_weighed_is_asked_again_and_then_has_a_reason(writer, odd, message):
    judge = writer.judge(retries=2)
    replies = [json.dumps(reply).encode() for reply in (completion(), odd, completion())]
    writer.reply = lambda handler, text: send(handler, replies.pop())
    for _ in range(2):
        assert judge.answer_distribution(BOTH[:1], ANSWERS)[0, 3] == pytest.approx(0.8, abs=2e-2)
    assert writer.requests == 3
    writer.odd(odd)
    with pytest.raises(JudgeError, match=message) as caught:
        judge.answer_distribution(BOTH, ANSWERS)
    assert (list(caught.value.failures), writer.requests) == ([0], 3 + 3 + 1)


def test_what_was_broken_off_is_no_caption(writer):
    made = completion(finish_reason="abort")
    writer.odd(made)
    with pytest.raises(JudgeError, match="broken off"):
        writer.judge().sample(BOTH[0], 1).result()
    made["choices"] += completion(text="whole")["choices"]
    writer.odd(made)
    assert [caption.text for caption in writer.judge().sample(BOTH[0], 2).result()] == ["whole"]


@pytest.mark.slow
def test_a_reply_that_drips_or_is_nested_too_deeply_is_asked_for_again(writer):
    drops = [b" "] * 40

    def drip(handler, text):
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        while drops:
            handler.wfile.write(drops.pop())
            handler.wfile.flush()
            time.sleep(0.1)

    writer.reply, start = drip, time.monotonic()
    with pytest.raises(JudgeError, match=r"did not answer in 1 tries, last: no answer within 1 s"):
        writer.judge(timeout=1.0, retries=0).generate(BOTH[:1])
    assert time.monotonic() - start < 3
    writer.always(b"[" * 200_000)
    with pytest.raises(JudgeError, match=r"in 2 tries.*cut off"):
        writer.judge().generate(BOTH[:1])


@pytest.mark.parametrize(("status", "packed"), [(200, True), (500, False)])
def test_a_reply_without_end_is_given_up(writer, monkeypatch, status, packed):
    monkeypatch.setattr(http_client, "LARGEST_REPLY", 1_000_000)
    body = json.dumps(completion(text="4" * 1_100_000)).encode()
    headers = {"Content_Encoding": "gzip"} if packed else {}
    writer.always(gzip.compress(body) if packed else body, status, **headers)
    with pytest.raises(JudgeError) as caught:
        writer.judge().generate(BOTH[:1])
    assert caught.value.failures == {0: "the server's reply is larger than 1 MB"}
    assert writer.requests == 1, "it is not asked for again"
