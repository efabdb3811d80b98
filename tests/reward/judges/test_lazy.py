"""LazyJudge: loads once, when asked, and stays out of pickles."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from reward.judges import Judge, Question, ScriptedJudge
from reward.judges.lazy import LazyJudge

loads: list[int] = []


def answer(question: Question) -> str:
    return question.text.upper()


def load() -> Judge:
    loads.append(1)
    Event().wait(0.01)  # gives another thread the chance to come in
    return ScriptedJudge(answer, lambda question: {"1": 0.5})


def test_it_loads_once_and_when_asked() -> None:
    loads.clear()
    judge = LazyJudge(load, "later")
    assert isinstance(judge, Judge)
    assert (judge.name, judge.usage.answered, loads) == ("later", 0, [])
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda text: judge.generate([Question(text)])[0].text, ["a", "b", "c", "d"]))
    assert answers == ["A", "B", "C", "D"]
    assert judge.answer_distribution([Question("a")], ["1"]).tolist() == [[0.5]]
    assert judge.pieces("12") == ("1", "2")
    assert loads == [1]
    assert judge.usage.answered == 5


def test_a_pickle_holds_no_model() -> None:
    loads.clear()
    judge = LazyJudge(load, "later")
    judge.generate([Question("a")])
    copy = pickle.loads(pickle.dumps(judge))
    assert (copy.loaded, copy.name) == (False, "later")
    assert copy.generate([Question("b")])[0].text == "B"
    assert len(loads) == 2
