"""Replies as judges write them, and what every judged metric makes of them, whichever way the judge is asked.

The table is `replies.yaml`. A scripted judge, a network on this machine and one behind a server give the same replies
with the same probabilities, so that the numbers and the reasons must be the same.
"""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from reward import CaptionSample, load_scorer
from reward.errors import JudgeError
from reward.judges import Answer, Question
from reward.judges.pairwise import JudgePair, PairwiseJudge
from reward.judges.replies import weigh_reply
from tests.toys.writing_judges import Replies

RED = Image.new("RGB", (8, 8), "red")
COLUMNS = {"rubric": ["It is short."], "questions": [{"question": "q", "answer": "B", "choices": ["cat", "dog"]}]}
TABLE = yaml.safe_load(Path(__file__).with_name("replies.yaml").read_text(encoding="utf-8"))
ROWS = [(reply, expected) for group in TABLE.values() for reply, expected in group]
TEXTS = [reply for reply, _ in ROWS]
CAPTIONS = [f"Reply {number}." for number in range(len(ROWS))]


def scores(metric, judge, *, scale=(0.0, 1.0), **options):
    """The score of each reply, on another scale from 0 to 1; or why there is none."""
    samples = [CaptionSample(caption, RED, ["A dog runs."], columns=COLUMNS) for caption in CAPTIONS]
    table = load_scorer(metric, judge, **options).score(samples)
    low, high = scale
    values = low + (high - low) * table.scores[:, 0]
    return [table.errors.get(row) or float(value) for row, value in enumerate(values)]


def points(judge, *, reasons):
    """What the first caption wins in each comparison, from 0 to 1; or why there is no verdict."""
    pairs = [JudgePair(caption, "b", RED) for caption in CAPTIONS]
    verdicts = PairwiseJudge(judge, reasons=reasons, both_orders=False).compare(pairs)
    return [verdict.error or verdict.points for verdict in verdicts]


METRICS = {  # name: (kind of answer, how it is asked)
    "judge": ("grade", partial(scores, "judge", scale=(1, 5))),
    "harmoniceval": ("grade", partial(scores, "harmoniceval", criteria=["fluency"])),
    "judge, grade100": ("hundred", partial(scores, "judge", prompt="grade100")),
    "clair": ("json", partial(scores, "clair")),
    "vqascore": ("word", partial(scores, "vqascore")),
    "rubric": ("word", partial(scores, "rubric")),
    "claims": ("word", partial(scores, "claims")),
    "judge, yes": ("word", partial(scores, "judge", prompt="yes")),
    "questions": ("letter", partial(scores, "questions")),
    "fleur": ("decimal", partial(scores, "fleur", max_new_tokens=64)),
    "tournament": ("choice", partial(points, reasons=False)),
    "arena": ("verdict", partial(points, reasons=True)),
}


@pytest.fixture(scope="module")
def judges():
    replies = Replies(TEXTS)
    with replies.served() as server:
        yield {"scripted": replies.scripted(), "local": replies.local(), "server": server}


# Of the metrics that read one kind of answer, one is asked in every way.
ONE_OF_A_KIND = {kind: metric for metric, (kind, _) in METRICS.items()}.values()
CASES = [(metric, "scripted") for metric in METRICS]
CASES += [(metric, way) for metric in ONE_OF_A_KIND for way in ("local", "server")]


@pytest.mark.parametrize(("metric", "way"), CASES)
def test_every_metric_reads_the_answer_where_it_stands(metric, way, judges):
    kind, ask = METRICS[metric]
    results = ask(judges[way])
    wrong = {}
    for (text, row), result in zip(ROWS, results, strict=True):
        expected = row.get(kind, "")
        if isinstance(expected, str):
            is_right = isinstance(result, str) and expected in result
        else:
            is_right = result == pytest.approx(expected, abs=1e-6)
        if not is_right:
            wrong[text] = (expected, result)
    assert wrong == {}
    if way != "scripted":
        numbers_or_reasons = [value if isinstance(value, str) else pytest.approx(value) for value in results]
        assert ask(judges["scripted"]) == numbers_or_reasons


THOUGHT = "<think>Is it 1? " + "It may be 2, but then there is a dog. " * 12 + "</think>"


@pytest.mark.parametrize("mark", ["think>", "thinking>"])  # special tokens of these replies, and plain text
def test_a_thought_is_let_to_its_end_before_the_answer_is_read(mark):
    thought = THOUGHT.replace("think>", mark)
    judge = Replies([f"{thought}\n\n«4»", f"{thought}\n\nGrade: «4»"]).local()
    questions = [Question("Reply 0."), Question("Reply 1.")]
    table = judge.answer_distribution(questions, list("12345"))
    assert table == pytest.approx(np.array([[0, 0.2, 0, 0.8, 0]] * 2))
    answers = judge.generate(questions, max_new_tokens=4)
    assert [answer.text.removeprefix(thought).strip() for answer in answers] == ["4", "Grade:"]
    assert [answer.truncated for answer in answers] == [False, True]


def test_a_thought_without_end_is_no_answer_and_says_which_option_to_set():
    judge = Replies([f"{THOUGHT}«4»", "«4»"]).local(max_thinking=50)
    with pytest.raises(JudgeError) as caught:
        judge.answer_distribution([Question("Reply 0."), Question("Reply 1.")], list("12345"))
    assert caught.value.failures == {
        0: "the judge thought for 50 tokens without an answer: give max_thinking=100 (by --set)"
    }
    assert caught.value.results[1] == pytest.approx([0, 0.2, 0, 0.8, 0])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<think>It is a", "thought for 32 tokens without an answer: turn thinking off"),
        ("Let me look", "holds no number: 'Let me look' (cut after 32 tokens: have the prompt ask"),
        ("Grade: 4", "was cut at a number: 'Grade: 4' (cut after 32 tokens"),
    ],
)
def test_a_reply_that_a_limit_has_cut_says_what_helps(text, reason):
    tokens = tuple(text.split())
    answer = Answer(text, tokens, tuple({token: 0.0} for token in tokens), truncated=True)
    assert reason in weigh_reply(answer, list("12345"))
