"""Questions, answers, the scripted judge, the lazy one, the cache, and code that lies in a judge's folder."""

from __future__ import annotations

import functools
import json
import math
import pickle
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from threading import Event
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest
from PIL import Image

from reward.errors import CapRewardError, InvalidSampleError, JudgeError
from reward.judges import Answer, Judge, LocalJudge, Question, ScriptedJudge, ServerJudge
from reward.judges.base import answer_mass
from reward.judges.cache import AnswerCache
from reward.judges.chat import chat_messages, data_url, request_key
from reward.judges.lazy import LazyJudge
from reward.metrics.fleur.scorer import FleurScorer
from tests.toys.toy_judges import llava, pictures


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"text": ""}, "text"),
        ({"text": " \u200b"}, "text"),
        ({"text": None}, "text"),
        ({"text": "a\ud800"}, "text.*Unicode"),
        ({"text": "a", "system": 3}, "system"),
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
    image = pictures(1, size=size)[0]
    with urlopen(data_url(image)) as sent:
        assert sent.headers["Content-Type"] == f"image/{kind}"
        back = Image.open(BytesIO(sent.read()))
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


def test_no_questions_and_items_that_are_none() -> None:
    for judge in (ScriptedJudge(str, dict), ServerJudge("tiny", "http://127.0.0.1:9/v1"), LocalJudge(*llava())):
        assert judge.answer_distribution([], ["1", "2"]).shape == (0, 2)
        assert judge.generate([]) == []
        with pytest.raises(InvalidSampleError, match=r"questions\[1\] must be a Question, got str"):
            judge.generate([Question("good"), "bad"])  # type: ignore[list-item]


def test_mass_of_an_answer_is_that_of_its_spellings() -> None:
    logprobs = {"1": -1.0, " 1": -2.0, "\u25811": -3.0, "\u01201\n": -4.0, "12": -0.1, "a1": -0.2, " 2": -5.0}
    masses = answer_mass(logprobs, ["1", "2", "3"])
    assert masses == pytest.approx([sum(map(math.exp, (-1, -2, -3, -4))), math.exp(-5), 0.0])


def test_two_processes_may_share_a_cache_which_gives_back_what_it_was_given(tmp_path: Path) -> None:
    one, other = AnswerCache(tmp_path / "deep" / "c.sqlite"), AnswerCache(tmp_path / "deep" / "c.sqlite")
    odd = Answer("\ud83d \x00\u00df", ("\u00df", ""), ({" b": -2.5, "\u00df": -0.1}, {}), truncated=True)
    one.put("a", Answer("1"))
    other.put("b", odd)
    other.put("a", Answer("1"))
    assert (one.get("b"), other.get("a"), one.get("c")) == (odd, Answer("1"), None)
    one.close()
    with sqlite3.connect(tmp_path / "deep" / "c.sqlite") as file:
        assert file.execute("SELECT count(*) FROM answers").fetchone() == (2,)


def test_an_answer_belongs_to_all_that_decides_it() -> None:
    body = {"model": "m", "max_tokens": 1, "top": 20}
    first = request_key(Question("a"), "k", body)
    assert first == request_key(Question("a"), "k", dict(reversed(body.items())))
    others = [request_key(Question("a"), "k", {**body, **each}) for each in ({"model": "n"}, {"top": 5}, {"seed": 1})]
    pair = (("user", "b"), ("assistant", "c"))
    asked = [Question("b"), Question("a", system="You rate."), Question("a", history=pair), Question("a", seed=1)]
    asked += [Question("a", temperature=1.0, seed=seed) for seed in (1, 2)]
    others += [request_key(question, "k", body) for question in asked]
    others += [request_key(Question("a"), image, body) for image in ("l", None)]
    assert len({first, *others}) == 1 + len(others) - 1, "only the seed of what is not sampled does not count"


# Code that lies in a judge's folder.
CODE = """
from pathlib import Path
Path({marker!r}).touch()
from transformers import LlavaConfig, LlavaProcessor
class Config(LlavaConfig):
    model_type = "unheard-of"
class Processor(LlavaProcessor):
    pass
"""
NAMES_CODE = {
    "config.json": {"model_type": "unheard-of", "auto_map": {"AutoConfig": "mine.Config"}},
    "processor_config.json": {"processor_class": "UnheardOf", "auto_map": {"AutoProcessor": "mine.Processor"}},
}


@pytest.mark.slow
@pytest.mark.parametrize("file", NAMES_CODE)
def test_code_of_a_checkpoint_runs_only_where_python_says_so(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in llava():
        part.save_pretrained(tmp_path)
    (tmp_path / "mine.py").write_text(CODE.format(marker=str(tmp_path / "ran")))
    (tmp_path / file).write_text(json.dumps({**json.loads((tmp_path / file).read_text()), **NAMES_CODE[file]}))
    monkeypatch.setattr("builtins.input", lambda *_: "y")  # what transformers asks is answered with yes
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    for load in (LocalJudge.from_pretrained, FleurScorer.from_pretrained):
        with pytest.raises(CapRewardError):
            load(tmp_path, device="cpu")
    assert not (tmp_path / "ran").exists()
    with suppress(CapRewardError):  # the code has no model of its own
        LocalJudge.from_pretrained(tmp_path, device="cpu", trust_remote_code=True)
    assert (tmp_path / "ran").exists()


def upper(question: Question) -> str:
    return question.text.upper()


def slow_load(loads: list[int]) -> Judge:
    loads.append(1)
    Event().wait(0.01)  # gives another thread the chance to come in
    return ScriptedJudge(upper, lambda question: {"1": 0.5})


def test_a_lazy_judge_loads_once_when_asked_and_stays_out_of_pickles() -> None:
    loads: list[int] = []
    judge = LazyJudge(functools.partial(slow_load, loads), "later")
    assert isinstance(judge, Judge)
    assert (judge.name, judge.usage.answered, loads) == ("later", 0, [])
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda text: judge.generate([Question(text)])[0].text, ["a", "b", "c", "d"]))
    assert answers == ["A", "B", "C", "D"]
    assert judge.answer_distribution([Question("a")], ["1"]).tolist() == [[0.5]]
    assert judge.pieces("12") == ("1", "2")
    assert (loads, judge.usage.answered) == ([1], 5)
    copy = pickle.loads(pickle.dumps(judge))
    assert (copy.usage.answered, copy.name) == (0, "later")
    assert copy.generate([Question("b")])[0].text == "B"
