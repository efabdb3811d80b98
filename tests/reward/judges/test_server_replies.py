"""ServerJudge and what a server may reply: odd values fail their row, and no reply runs on for ever."""

from __future__ import annotations

import copy
import gzip
import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reward import http_client
from reward.errors import JudgeError
from reward.judges import Question, ServerJudge, session
from tests.loopback_http import send, serving

RATINGS = list("12345")
Reply = Callable[[BaseHTTPRequestHandler, str], None]


def completion(**changes: Any) -> dict[str, Any]:
    """A good reply: "4", with probability 0.8."""
    listed = [{"token": "4", "logprob": -0.223}, {"token": "5", "logprob": -1.7}]
    position = {"token": "4", "logprob": -0.223, "top_logprobs": listed, **changes.pop("position", {})}
    message = {"role": "assistant", "content": "4", **changes.pop("message", {})}
    choice = {"index": 0, "finish_reason": "stop", "message": message, "logprobs": {"content": [position]}}
    choice |= changes.pop("choice", {})
    usage = {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10, **changes.pop("usage", {})}
    assert not changes
    return {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}


class Server:
    """Its replies are written by the test: `reply` gets the handler and the text of the question."""

    def __init__(self) -> None:
        self.requests, self.address = 0, ""
        self.odd()

    def answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        self.requests += 1
        self.reply(handler, json.loads(body)["messages"][-1]["content"])

    def odd(self, **changes: Any) -> None:
        """Questions with the word "odd" get a changed reply, the others a good one."""

        def reply(handler: BaseHTTPRequestHandler, text: str) -> None:
            made = completion(**copy.deepcopy(changes)) if "odd" in text else completion()
            send(handler, json.dumps(made).encode())

        self.reply: Reply = reply


@contextmanager
def running() -> Iterator[Server]:
    server = Server()
    with serving(server.answer) as address:
        server.address = f"{address}/v1"
        yield server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(session, "_FIRST_WAIT", 0.02)
    with running() as server:
        yield server


def judge_at(server: Server, **settings: Any) -> ServerJudge:
    return ServerJudge("m", server.address, **{"timeout": 5.0, "retries": 1, **settings})


BOTH = [Question("odd"), Question("good")]
ODD: list[tuple[dict[str, Any], str]] = [
    *(
        ({"position": {"top_logprobs": [{"token": "4", "logprob": value}]}}, f"log probability {value!r}")
        for value in (0.7, 1e6, float("nan"), "low")
    ),
    ({"position": {"top_logprobs": [{"token": t, "logprob": -0.1} for t in "45"]}}, "add up to 1.81"),
    ({"position": {"token": 4}}, "token of the server's reply must be text, got 4"),
    ({"position": {"top_logprobs": [{"token": 4, "logprob": -1}]}}, "must be text, got 4"),
    ({"position": {"top_logprobs": None}}, "cannot be read"),
    ({"message": {"content": [{"type": "text", "text": "4"}]}}, "must be text, got list"),
    ({"message": {"content": 4}}, "must be text, got int"),
    *(
        ({"choice": {"finish_reason": reason}}, f"is {reason!r}")
        for reason in ("abort", "content_filter", "error", None)
    ),
    ({"message": {"content": "1"}}, "tokens of the server's reply spell '4', but its text is '1'"),
    ({"message": {"content": ""}}, "spell '4', but its text is ''"),
    ({"position": {"bytes": "4"}}, "bytes of a token"),
    ({"message": {"content": None, "refusal": "I cannot give 5."}}, "refuses to answer: 'I cannot give 5.'"),
    ({"message": {"content": None, "reasoning_content": "4 or 5?"}}, "reasoning but no answer"),
    ({"message": {"content": "", "reasoning": "4 or 5?"}}, "reasoning but no answer"),
]


@pytest.mark.parametrize(("changes", "message"), ODD)
def test_an_odd_reply_fails_its_row_and_is_not_kept(
    server: Server, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    server.odd(**changes)
    cache = tmp_path / "answers.sqlite"
    judge = judge_at(server, cache=cache, prices=(1.0, 1.0))
    with pytest.raises(JudgeError) as caught:
        judge.answer_distribution(BOTH, RATINGS)
    assert list(caught.value.failures) == [0]
    assert message in caught.value.failures[0]
    assert caught.value.results[1][3] == pytest.approx(0.8, abs=1e-3)
    assert judge.usage.cost == pytest.approx(10 / 1e6), "only what could be read is booked"
    # a good server at the same address, after a repair: the row is asked again
    server.odd()
    table = judge_at(server, cache=cache).answer_distribution(BOTH, RATINGS)
    assert table[:, 3] == pytest.approx([0.8, 0.8], abs=1e-3)


@pytest.mark.parametrize("listed", [[], [{"token": "5", "logprob": -3.0}]])
def test_the_token_that_was_written_has_its_probability_also_where_it_is_not_listed(
    server: Server, listed: Any
) -> None:
    server.odd(position={"top_logprobs": listed})
    table = judge_at(server).answer_distribution(BOTH[:1], RATINGS)
    assert table[0, 3:] == pytest.approx([0.8, 0.05 if listed else 0.0], abs=1e-3)


def position(token: str, logprob: float = 0.0, **more: Any) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "top_logprobs": [{"token": token, "logprob": logprob}], **more}


THOUGHTS = [position(token) for token in ("<think>", "1", "?", "</think>", "\n")]


@pytest.mark.parametrize(
    ("text", "positions"),
    [
        ("4", [*THOUGHTS, position(" 4", -0.223), position("<|im_end|>")]),
        ("4", [position("\u25814", -0.223), position("</s>")]),
        ("4 \u00e9", [position("4", -0.223), position("\\xc3", bytes=None), position("\\xa9")]),
        ("4 \u00e9", [position("4", -0.223, bytes=[52]), position("\\x", bytes=[32, 0xC3, 0xA9])]),
    ],
)
def test_tokens_are_those_that_spell_the_text(server: Server, text: str, positions: list[dict[str, Any]]) -> None:
    server.odd(message={"content": text}, choice={"logprobs": {"content": positions}})
    assert judge_at(server).answer_distribution(BOTH[:1], RATINGS)[0, 3] == pytest.approx(0.8, abs=1e-3)


@pytest.mark.parametrize("usage", [{"prompt_tokens": "nine"}, {"prompt_tokens": None}, {"prompt_tokens": -5}])
def test_a_bill_that_cannot_be_read_throws_no_answer_away(server: Server, usage: dict[str, Any]) -> None:
    server.odd(usage=usage)
    judge = judge_at(server, prices=(1.0, 1.0))
    assert judge.answer_distribution(BOTH[:1], RATINGS)[0, 3] == pytest.approx(0.8, abs=1e-3)
    assert (judge.usage.input_tokens, judge.usage.output_tokens) == (0, 1)


@pytest.mark.parametrize("reason", ["abort", "content_filter", "error", None])
def test_what_was_broken_off_is_no_caption(server: Server, reason: str | None) -> None:
    def reply(handler: BaseHTTPRequestHandler, text: str) -> None:
        made = completion(choice={"finish_reason": reason})
        made["choices"] += completion(message={"content": "whole"})["choices"] * ("odd" not in text)
        send(handler, json.dumps(made).encode())

    server.reply = reply
    judge = judge_at(server)
    assert [caption.text for caption in judge.sample(Question("good"), 2).result()] == ["whole"]
    with pytest.raises(JudgeError, match="broken off"):
        judge.sample(Question("odd"), 1).result()


def test_tokens_of_equal_text_are_added_up(server: Server) -> None:
    listed = [{"token": "4", "logprob": -0.7}, {"token": "5", "logprob": -2.0}, {"token": "4", "logprob": -9.0}]
    server.odd(position={"top_logprobs": listed})
    table = judge_at(server).answer_distribution(BOTH[:1], RATINGS)
    assert table[0, 3] == pytest.approx(np.exp(-0.7) + np.exp(-9.0))


GOOD_ROW = {"text": "4", "tokens": [], "logprobs": [], "truncated": False}
DAMAGED = {
    "not JSON": "{",
    "of another kind": "[1, 2]",
    "content is a list": json.dumps({**GOOD_ROW, "text": ["4"]}),
    "no log probabilities": json.dumps(GOOD_ROW),
    "unequal lengths": json.dumps({**GOOD_ROW, "tokens": ["4"]}),
    "unknown field": json.dumps({**GOOD_ROW, "more": 1}),
    "not UTF-8": b"\xff\xfe{",
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_row_of_the_cache_is_asked_again(server: Server, tmp_path: Path, content: str | bytes) -> None:
    cache = tmp_path / "answers.sqlite"
    first = judge_at(server, cache=cache)
    expected = first.answer_distribution(BOTH, RATINGS)
    first.close()
    with sqlite3.connect(cache) as file:
        file.execute("UPDATE answers SET answer = CAST(? AS TEXT)", [content])
    before = server.requests
    for _ in range(2):  # what was asked again is kept in its place
        np.testing.assert_array_equal(judge_at(server, cache=cache).answer_distribution(BOTH, RATINGS), expected)
        assert server.requests == before + len(BOTH)


def test_the_cache_knows_the_server(server: Server, tmp_path: Path) -> None:
    cache = tmp_path / "answers.sqlite"
    judge_at(server, cache=cache).answer_distribution(BOTH, RATINGS)
    with running() as other:
        judge_at(other, cache=cache).answer_distribution(BOTH, RATINGS)
        assert other.requests == len(BOTH)


def test_a_reply_that_drips_and_one_that_is_nested_too_deeply_are_given_up(server: Server) -> None:
    def drip(handler: BaseHTTPRequestHandler, text: str) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        for _ in range(40):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.2)

    server.reply = drip
    start = time.monotonic()
    with pytest.raises(JudgeError, match=r"did not answer in 1 tries, last: no answer within 1 s"):
        judge_at(server, timeout=1.0, retries=0).generate(BOTH[:1])
    assert time.monotonic() - start < 5
    server.reply = lambda handler, text: send(handler, b"[" * 200_000)  # JSON that is nested too deeply
    with pytest.raises(JudgeError, match="cut off"):
        judge_at(server, retries=0).generate(BOTH[:1])


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("status", [200, 500])
def test_a_reply_without_end_is_given_up(
    server: Server, monkeypatch: pytest.MonkeyPatch, packed: bool, status: int
) -> None:
    monkeypatch.setattr(http_client, "LARGEST_REPLY", 1_000_000)

    def reply(handler: BaseHTTPRequestHandler, text: str) -> None:
        odd = "odd" in text
        body = json.dumps(completion(message={"content": "4" * 1_100_000} if odd else {})).encode()
        if packed or not odd:
            send(handler, gzip.compress(body), status if odd else 200, Content_Encoding="gzip")
        else:
            send(handler, body, status)

    server.reply = reply
    with pytest.raises(JudgeError) as caught:
        judge_at(server).generate(BOTH)
    assert caught.value.failures == {0: "the server's reply is larger than 1 MB"}
    assert caught.value.results[1].text == "4"
    assert server.requests == 2, "it is not asked for again"


@pytest.mark.parametrize("status", [400, 401, 500])
def test_a_server_cannot_write_to_the_terminal(server: Server, status: int) -> None:
    said = "no\x1b[2J\x1b]0;title\x07 \x9b31m\u202eway\r\x08"
    body = json.dumps({"error": {"message": said, "code": None}}).encode()
    server.reply = lambda handler, text: send(handler, body, status)
    with pytest.raises(JudgeError) as caught:
        judge_at(server, retries=0).generate(BOTH[:1])
    assert "no" in str(caught.value)
    assert str(caught.value).isprintable()
