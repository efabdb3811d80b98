"""What holds of every question and every judge, of answers that are kept, and of a judge that loads late."""

import functools
import pickle
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from reward.errors import InvalidSampleError
from reward.judges import Answer, Judge, LocalJudge, Question, ScriptedJudge, ServerJudge
from reward.judges.base import read_each, weigh_answers
from reward.judges.cache import AnswerCache
from reward.judges.chat import request_key
from reward.judges.loading import LazyJudge
from tests.toys.toy_judges import llava

GOOD = Question("good")
JUDGES = {
    "scripted": lambda: ScriptedJudge(str, dict),
    "server": lambda: ServerJudge("tiny", "http://127.0.0.1:9/v1"),
    "local": lambda: LocalJudge(*llava()),
}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"text": " \u200b"}, "must not be blank"),
        ({"text": None}, "text of a question must be a string"),
        ({"text": "a\ud800"}, "text.*Unicode"),
        ({"text": "a", "history": (("assistant", "b"), ("user", "c"))}, "alternate"),
        ({"text": "a", "history": (("user", "b"), ("assistant", None))}, r"history\[1\]"),
    ],
)
def test_impossible_questions(fields, message):
    with pytest.raises(InvalidSampleError, match=message):
        Question(**fields)


@pytest.mark.parametrize("make", JUDGES.values(), ids=JUDGES)
def test_no_questions_have_no_answers_and_what_cannot_be_asked_is_refused(make):
    judge = make()
    assert isinstance(judge, Judge)
    assert judge.answer_distribution([], ["1", "2"]).shape == (0, 2)
    assert judge.generate([]) == []
    with pytest.raises(InvalidSampleError, match=r"questions\[1\] must be a Question, got str"):
        judge.generate([GOOD, "bad"])
    for answers in ([], "12", ["1", "1"], [" 1"], [1]):
        with pytest.raises(ValueError, match="answers must be a list of different tokens"):
            judge.answer_distribution([GOOD], answers)


def test_two_processes_may_share_a_cache_which_gives_back_what_it_was_given(tmp_path):
    file = tmp_path / "deep" / "c.sqlite"
    one, other = AnswerCache(file), AnswerCache(file)
    odd = Answer("\ud83d \x00\u00df", ("\u00df", ""), ({" b": -2.5, "\u00df": -0.1}, {}), truncated=True)
    one.put("a", Answer("1"))
    other.put("b", odd)
    other.put("a", Answer("1"))
    assert (one.get("b"), other.get("a"), one.get("c")) == (odd, Answer("1"), None)
    assert [cache.settle("judge", way) for cache, way in ((one, "text"), (other, "probabilities"))] == ["text"] * 2
    with sqlite3.connect(file) as rows:
        assert rows.execute("SELECT count(*) FROM kept WHERE owner = 'answers'").fetchone() == (2,)


def test_an_answer_belongs_to_all_that_decides_it():
    def key(question=GOOD, image="k", **body):
        return request_key(question, image, {"model": "m", "top": 20, **body})

    others = [key(model="n"), key(top=5), key(image="l"), key(image=None), key(Question("b"))]
    others += [
        key(Question("good", system="You rate.")),
        key(Question("good", history=(("user", "b"), ("assistant", "c")))),
    ]
    others += [key(Question("good", temperature=1.0, seed=seed)) for seed in (1, 2)]
    assert len({key(), *others}) == 1 + len(others)
    assert key(Question("good", seed=1)) == key(), "nothing is sampled"


def slow_load(loads):
    loads.append(1)
    Event().wait(0.01)  # gives another thread the chance to come in
    return ScriptedJudge(str, lambda question: {"1": 0.5})


def test_a_lazy_judge_loads_once_when_asked_and_stays_out_of_pickles():
    loads = []
    judge = LazyJudge(functools.partial(slow_load, loads), "later")
    assert (judge.name, judge.usage.answered, loads) == ("later", 0, [])
    with ThreadPoolExecutor(4) as pool:
        rows = list(pool.map(lambda _: judge.answer_distribution([GOOD], ["1"]).tolist(), range(4)))
    assert (rows, loads, judge.usage.answered) == ([[[0.5]]] * 4, [1], 4)
    weigh_answers(judge, [GOOD] * 3, ["1"])
    read_each(judge, [GOOD] * 2, str)
    assert judge.usage.readings == {"probabilities": 3, "text": 2}
    copy = pickle.loads(pickle.dumps(judge))
    assert (copy.name, copy.usage.answered) == ("later", 0)
    assert len(copy.generate([GOOD])) == 1
