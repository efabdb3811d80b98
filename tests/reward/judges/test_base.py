"""Questions, answers, the scripted judge and the cache."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward.errors import InvalidSampleError, JudgeError
from reward.judges import Answer, Judge, Question, ScriptedJudge
from reward.judges.base import answer_mass
from reward.judges.cache import AnswerCache
from reward.judges.chat import chat_messages, data_url, request_key
from tests.toy_judges import pictures


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"text": ""}, "text"),
        ({"text": " \u200b"}, "text"),
        ({"text": None}, "text"),
        ({"text": "a\ud800"}, "text.*Unicode"),
        ({"text": "a", "system": 3}, "system"),
        ({"text": "a", "prefill": None}, "prefill"),
        ({"text": "a", "history": (("user", "b"),)}, "history"),
        ({"text": "a", "history": (("assistant", "b"), ("user", "c"))}, "alternate"),
        ({"text": "a", "history": (("user", "b"), ("assistant", None))}, r"history\[1\]"),
        ({"text": "a", "history": ("user", "assistant")}, "history"),
    ],
)
def test_impossible_questions(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSampleError, match=message):
        Question(**fields)


def test_the_image_goes_before_the_first_words_of_the_user() -> None:
    image = pictures(1)[0]
    url = data_url(image)
    asked = Question("Why?", image, system="You judge.", history=[("user", "Rate."), ("assistant", "4")])
    messages = chat_messages(asked, url)
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert [part["type"] for part in messages[1]["content"]] == ["image_url", "text"]
    assert messages[3]["content"] == "Why?"


@pytest.mark.parametrize(("size", "kind"), [((64, 48), "png"), ((1200, 1000), "jpeg")])
def test_images_are_sent_whole(size: tuple[int, int], kind: str) -> None:
    import base64
    from io import BytesIO

    from PIL import Image

    image = pictures(1, size=size)[0]
    head, encoded = data_url(image).split(",")
    assert head == f"data:image/{kind};base64"
    back = Image.open(BytesIO(base64.b64decode(encoded)))
    assert back.size == size
    if kind == "png":
        assert back.tobytes() == image.tobytes()


def test_scripted_judge_reports_failures_beside_results() -> None:
    def rate(question: Question) -> dict[str, float]:
        if "bad" in question.text:
            raise JudgeError("cannot say")
        return {"5": 0.5}

    judge = ScriptedJudge(lambda question: question.text.upper(), rate)
    assert isinstance(judge, Judge)
    with pytest.raises(JudgeError, match=r"1 of 3 .* questions\[1\]: cannot say") as caught:
        judge.answer_distribution([Question("good"), Question("bad"), Question("fine")], ["5", "1"])
    np.testing.assert_array_equal(caught.value.results, [[0.5, 0], [np.nan, np.nan], [0.5, 0]])
    assert judge.generate([Question("good")]) == [Answer("GOOD")]
    assert judge.usage.answered == 3
    assert judge.pieces("0. 8") == ("0", ".", "8")
    with pytest.raises(JudgeError, match="distribution"):
        ScriptedJudge().answer_distribution([Question("good")], ["5"])


@pytest.mark.parametrize("answers", [[], "12", ["1", "1"], [" 1"], [""], [1]])
def test_answers_that_are_no_tokens(answers: Any) -> None:
    with pytest.raises(ValueError, match="answer"):
        ScriptedJudge(distribution=lambda question: {}).answer_distribution([Question("good")], answers)


def test_items_that_are_no_questions() -> None:
    with pytest.raises(InvalidSampleError, match=r"questions\[1\] must be a Question, got str"):
        ScriptedJudge(lambda question: "a").generate([Question("good"), "bad"])  # type: ignore[list-item]


_TOKENS = st.dictionaries(st.text(alphabet="12 \n\u2581\u0120ab", max_size=3), st.floats(-30, -1), max_size=8)


@given(_TOKENS)
@settings(max_examples=50, deadline=None)
def test_mass_of_an_answer_is_that_of_its_spellings(logprobs: dict[str, float]) -> None:
    one, two = answer_mass(logprobs, ["1", "2"])
    bare = {token: token.strip(" \n\u2581\u0120") for token in logprobs}
    assert one == pytest.approx(sum(math.exp(value) for token, value in logprobs.items() if bare[token] == "1"))
    assert two == pytest.approx(sum(math.exp(value) for token, value in logprobs.items() if bare[token] == "2"))


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
_POSITIONS = st.tuples(_TEXTS, st.dictionaries(st.sampled_from(["a", " b", "ß"]), st.floats(-50, -2)))
_ANSWERS = st.builds(
    lambda text, positions, truncated: (
        Answer(text, *zip(*positions, strict=True), truncated=truncated)
        if positions
        else Answer(text, truncated=truncated)
    ),
    _TEXTS,
    st.lists(_POSITIONS, max_size=3),
    st.booleans(),
)


@given(_ANSWERS)
@settings(max_examples=30, deadline=None)
def test_the_cache_gives_back_what_it_was_given(answer: Answer) -> None:
    cache = AnswerCache(":memory:")
    cache.put("key", answer)
    assert cache.get("key") == answer
    assert cache.get("other") is None


def test_two_processes_may_share_a_cache(tmp_path: Path) -> None:
    one, other = AnswerCache(tmp_path / "deep" / "c.sqlite"), AnswerCache(tmp_path / "deep" / "c.sqlite")
    one.put("a", Answer("1"))
    other.put("b", Answer("2"))
    other.put("a", Answer("1"))
    assert (one.get("b"), other.get("a")) == (Answer("2"), Answer("1"))
    one.close()
    with sqlite3.connect(tmp_path / "deep" / "c.sqlite") as file:
        assert file.execute("SELECT count(*) FROM answers").fetchone() == (2,)


def test_keys_of_requests() -> None:
    body = {"model": "m", "max_tokens": 1, "top": 20}
    first = request_key(Question("a"), "k", body)
    assert first == request_key(Question("a"), "k", dict(reversed(body.items())))
    others = [
        request_key(Question("b"), "k", body),
        request_key(Question("a"), "l", body),
        request_key(Question("a"), "k", {**body, "model": "n"}),
        request_key(Question("a"), "k", {**body, "max_tokens": 2}),
        request_key(Question("a"), "k", {**body, "top": 5}),
        request_key(Question("a"), "k", {**body, "seed": 1}),
    ]
    assert len({first, *others}) == 7
