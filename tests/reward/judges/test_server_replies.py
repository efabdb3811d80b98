"""ServerJudge and what a server may reply: odd values fail their row, and no reply runs on for ever."""

from __future__ import annotations

import copy
import gzip
import json
import sqlite3
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reward import http_client
from reward.errors import JudgeError
from reward.judges import Question, ServerJudge
from tests.toys.loopback_http import send, serving

ANSWERS = list("12345")


def judge_at(server: Any, **settings: Any) -> ServerJudge:
    return ServerJudge("tiny", server.endpoint, **{"timeout": 5.0, "retries": 1, **settings})


def completion(**changes: Any) -> dict[str, Any]:
    """A good reply: "4", with probability 0.8."""
    listed = [{"token": "4", "logprob": -0.223}, {"token": "5", "logprob": -1.7}]
    position = {"token": "4", "logprob": -0.223, "top_logprobs": listed, **changes.pop("position", {})}
    message = {"role": "assistant", "content": "4", **changes.pop("message", {})}
    choice = {"index": 0, "finish_reason": "stop", "message": message, "logprobs": {"content": [position]}}
    choice |= changes.pop("choice", {})
    usage = {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10, **changes.pop("usage", {})}
    assert not changes
    return {"id": "1", "object": "chat.completion", "created": 0, "model": "tiny", "choices": [choice], "usage": usage}


class Writer:
    """Its replies are written by the test: `reply` gets the handler and the text of the question."""

    def __init__(self) -> None:
        self.requests, self.endpoint = 0, ""
        self.odd()

    def answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        self.requests += 1
        self.reply(handler, json.loads(body)["messages"][-1]["content"])

    def odd(self, **changes: Any) -> None:
        """Questions with the word "odd" get a changed reply, the others a good one."""

        def reply(handler: BaseHTTPRequestHandler, text: str) -> None:
            made = completion(**copy.deepcopy(changes)) if "odd" in text else completion()
            send(handler, json.dumps(made).encode())

        self.reply: Any = reply


@pytest.fixture
def writer() -> Iterator[Any]:
    made = Writer()
    with serving(made.answer) as address:
        made.endpoint = f"{address}/v1"
        yield made


BOTH = [Question("odd"), Question("good")]


def listed(*tokens: Any) -> dict[str, Any]:
    return {"position": {"top_logprobs": [{"token": token, "logprob": logprob} for token, logprob in tokens]}}


# Replies that are no answer, and why.
ODD: list[tuple[dict[str, Any], str]] = [
    *((listed(("4", value)), f"log probability {value!r}") for value in (0.7, 1e6, float("nan"), "low")),
    (listed(("4", -0.1), ("5", -0.1)), "add up to 1.81"),
    (listed((4, -1)), "must be text, got 4"),
    ({"position": {"top_logprobs": None}}, "cannot be read"),
    ({"position": {"token": 4}}, "token of the server's reply must be text, got 4"),
    ({"position": {"bytes": "4"}}, "cannot be read"),
    ({"message": {"content": [{"type": "text", "text": "4"}]}}, "must be text, got list"),
    ({"message": {"content": 4}}, "must be text, got int"),
    ({"message": {"content": "1"}}, "tokens of the server's reply spell '4', but its text is '1'"),
    ({"message": {"content": ""}}, "spell '4', but its text is ''"),
    ({"message": {"content": None, "refusal": "I cannot give 5."}}, "refuses to answer: 'I cannot give 5.'"),
    ({"message": {"content": None, "reasoning_content": "4 or 5?"}}, "reasoning but no answer"),
    ({"message": {"content": "", "reasoning": "4 or 5?"}}, "reasoning but no answer"),
    ({"choice": {"logprobs": None}}, "no log probabilities"),
    *(({"choice": {"finish_reason": each}}, f"is {each!r}") for each in ("abort", "content_filter", "error", None)),
]


@pytest.mark.parametrize(("changes", "message"), ODD)
def test_an_odd_reply_fails_its_row_and_is_not_kept(
    writer: Any, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    writer.odd(**changes)
    cache = tmp_path / "answers.sqlite"
    judge = judge_at(writer, cache=cache, prices=(1.0, 1.0))
    with pytest.raises(JudgeError) as caught:
        judge.answer_distribution(BOTH, ANSWERS)
    assert list(caught.value.failures) == [0]
    assert message in caught.value.failures[0]
    assert caught.value.results[1][3] == pytest.approx(0.8, abs=1e-3)
    is_read = message == "no log probabilities"
    assert judge.usage.cost == pytest.approx((20 if is_read else 10) / 1e6), "only what could be read is booked"
    # a good server at the same address, after a repair: the row is asked again
    writer.odd()
    table = judge_at(writer, cache=cache).answer_distribution(BOTH, ANSWERS)
    assert table[:, 3] == pytest.approx([0.8, 0.8], abs=1e-3)


def position(token: str, logprob: float = 0.0, **more: Any) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "top_logprobs": [{"token": token, "logprob": logprob}], **more}


def written(text: str, *positions: dict[str, Any]) -> dict[str, Any]:
    return {"message": {"content": text}, "choice": {"logprobs": {"content": list(positions)}}}


THOUGHTS = [position(token) for token in ("<think>", "1", "?", "</think>", "\n")]
# Replies that look odd and are answers; the probabilities of 4 and 5, and the tokens that are booked as read.
FINE: dict[str, tuple[dict[str, Any], float, float, int]] = {
    "nothing listed": (listed(), 0.8, 0.0, 9),
    "what was written is not listed": (listed(("5", -3.0)), 0.8, 0.05, 9),
    "tokens of equal text": (listed(("4", -0.7), ("5", -2.0), ("4", -9.0)), np.exp(-0.7) + np.exp(-9), np.exp(-2), 9),
    "thoughts before": (written("4", *THOUGHTS, position(" 4", -0.223), position("<|im_end|>")), 0.8, 0.0, 9),
    "a tokenizer's blank": (written("4", position("\u25814", -0.223), position("</s>")), 0.8, 0.0, 9),
    "half characters": (written("4 \u00e9", position("4", -0.223), position("\\xc3"), position("\\xa9")), 0.8, 0.0, 9),
    "bytes": (
        written("4 \u00e9", position("4", -0.223, bytes=[52]), position("\\x", bytes=[32, 0xC3, 0xA9])),
        0.8,
        0.0,
        9,
    ),
    "a bill in words": ({"usage": {"prompt_tokens": "nine"}}, 0.8, 0.183, 0),
    "no bill": ({"usage": {"prompt_tokens": None}}, 0.8, 0.183, 0),
    "a bill below 0": ({"usage": {"prompt_tokens": -5}}, 0.8, 0.183, 0),
}


@pytest.mark.parametrize(("changes", "four", "five", "bill"), FINE.values(), ids=FINE)
def test_what_can_be_read_is_read(writer: Any, changes: dict[str, Any], four: float, five: float, bill: int) -> None:
    writer.odd(**changes)
    judge = judge_at(writer, prices=(1.0, 1.0))
    assert judge.answer_distribution(BOTH[:1], ANSWERS)[0, 3:] == pytest.approx([four, five], abs=1e-3)
    assert (judge.usage.input_tokens, judge.usage.output_tokens) == (bill, 1)


@pytest.mark.parametrize("reason", ["abort", "content_filter", "error", None])
def test_what_was_broken_off_is_no_caption(writer: Any, reason: str | None) -> None:
    def reply(handler: BaseHTTPRequestHandler, text: str) -> None:
        made = completion(choice={"finish_reason": reason})
        made["choices"] += completion(message={"content": "whole"})["choices"] * ("odd" not in text)
        send(handler, json.dumps(made).encode())

    writer.reply = reply
    judge = judge_at(writer)
    assert [caption.text for caption in judge.sample(Question("good"), 2).result()] == ["whole"]
    with pytest.raises(JudgeError, match="broken off"):
        judge.sample(Question("odd"), 1).result()


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


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_row_of_the_cache_is_asked_again(writer: Any, tmp_path: Path, content: str | bytes) -> None:
    cache = tmp_path / "answers.sqlite"
    first = judge_at(writer, cache=cache)
    expected = first.answer_distribution(BOTH, ANSWERS)
    first.close()
    with sqlite3.connect(cache) as file:
        file.execute("UPDATE answers SET answer = CAST(? AS TEXT)", [content])
    before = writer.requests
    for _ in range(2):  # what was asked again is kept in its place
        np.testing.assert_array_equal(judge_at(writer, cache=cache).answer_distribution(BOTH, ANSWERS), expected)
        assert writer.requests == before + len(BOTH)


@pytest.mark.slow
def test_a_reply_that_drips_and_one_that_is_nested_too_deeply_are_given_up(writer: Any) -> None:
    def drip(handler: BaseHTTPRequestHandler, text: str) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        for _ in range(40):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.1)

    writer.reply = drip
    start = time.monotonic()
    with pytest.raises(JudgeError, match=r"did not answer in 1 tries, last: no answer within 1 s"):
        judge_at(writer, timeout=1.0, retries=0).generate(BOTH[:1])
    assert time.monotonic() - start < 3
    writer.reply = lambda handler, text: send(handler, b"[" * 200_000)
    with pytest.raises(JudgeError, match="cut off"):
        judge_at(writer, retries=0).generate(BOTH[:1])


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("status", [200, 500])
def test_a_reply_without_end_is_given_up(
    writer: Any, monkeypatch: pytest.MonkeyPatch, packed: bool, status: int
) -> None:
    monkeypatch.setattr(http_client, "LARGEST_REPLY", 1_000_000)

    def reply(handler: BaseHTTPRequestHandler, text: str) -> None:
        odd = "odd" in text
        body = json.dumps(completion(message={"content": "4" * 1_100_000} if odd else {})).encode()
        if packed or not odd:
            send(handler, gzip.compress(body), status if odd else 200, Content_Encoding="gzip")
        else:
            send(handler, body, status)

    writer.reply = reply
    with pytest.raises(JudgeError) as caught:
        judge_at(writer).generate(BOTH)
    assert caught.value.failures == {0: "the server's reply is larger than 1 MB"}
    assert caught.value.results[1].text == "4"
    assert writer.requests == 2, "it is not asked for again"


@pytest.mark.parametrize("status", [400, 401, 500])
def test_a_server_cannot_write_to_the_terminal(writer: Any, status: int) -> None:
    said = "no\x1b[2J\x1b]0;title\x07 \x9b31m\u202eway\r\x08"
    body = json.dumps({"error": {"message": said, "code": None}}).encode()
    writer.reply = lambda handler, text: send(handler, body, status)
    with pytest.raises(JudgeError) as caught:
        judge_at(writer, retries=0).generate(BOTH[:1])
    assert "no" in str(caught.value)
    assert str(caught.value).isprintable()
