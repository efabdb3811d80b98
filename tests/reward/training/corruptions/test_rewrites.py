"""Rewrites by a language model: prompts, answers, where these are kept; text-only models that write them."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward.errors import ConfigError, JudgeError, OutputError
from reward.judges import Answer, ScriptedJudge
from reward.scenes.error_pairs import CATEGORIES
from reward.training.corruptions.rewrite_prompts import load_prompts
from reward.training.corruptions.rewrites import read_answer, rewrite_captions
from reward.training.corruptions.sampler import Negative
from tests.toys.toy_judges import RecordingJudge

CAPTIONS = [f"There are {number} red stars on the left." for number in range(40)]


def in_blue(question):
    """The caption, which is the JSON string at the end of the request, in blue."""
    return question.text.strip().splitlines()[-1].replace("red", "blue")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "answers.sqlite"


def test_a_judge_is_asked_once_for_each_category_and_its_rewrites_are_negatives(path):
    prompts, judge = load_prompts(), RecordingJudge(in_blue)
    found = rewrite_captions(["A red star.", "A ring."], judge, path, categories=["attribute", "noun"])
    assert found.negatives == [[Negative("A blue star.", "attribute"), Negative("A blue star.", "noun")], []]
    assert found.counts == {name: {"kept": 1, "unchanged": 1} for name in ("attribute", "noun")}
    assert {question.system for question in judge.asked} == {prompts.system}
    for question, name in zip(judge.asked, ("attribute", "attribute", "noun", "noun"), strict=True):
        assert question.text.startswith(prompts.changes[name])
    assert set(prompts.changes) == {*CATEGORIES, "noun_attribute"}  # the paper's own has both in one
    more = RecordingJudge(in_blue)
    rewrite_captions(["A red star.", "A red box."], more, path, categories=["noun", "count"])
    assert len(more.asked) == 1 + 2


def test_answers_of_other_prompts_or_judge_are_refused(path, tmp_path):
    rewrite_captions(CAPTIONS, ScriptedJudge(in_blue), path, categories=["noun"])
    with pytest.raises(OutputError, match="judge was 'scripted', now 'other'"):
        rewrite_captions(CAPTIONS, ScriptedJudge(in_blue, name="other"), path)
    ours, file = load_prompts(), tmp_path / "mine.yaml"
    mine = {"version": 1, "system": ours.system, "request": ours.request}
    file.write_text(json.dumps({**mine, "changes": {**ours.changes, "noun": "Replace a noun. Be bold."}}))
    with pytest.raises(OutputError, match="prompts was"):
        rewrite_captions(CAPTIONS, ScriptedJudge(in_blue), path, prompts=load_prompts(file))
    file.write_text(json.dumps({**mine, "changes": {}}))
    with pytest.raises(ConfigError, match="changes"):
        load_prompts(file)


def test_failed_questions_are_warned_of_and_asked_again(path):
    def answer(question):
        if "7 red" in question.text and len(judge.asked) <= 40:
            raise JudgeError("timed out")
        return "There are 9 red stars on the left."

    judge = RecordingJudge(answer)
    with pytest.warns(UserWarning, match=r"4 rewrites have no answer.*timed out"):
        found = rewrite_captions(CAPTIONS, judge, path, categories=["count"])
    assert found.counts["count"] == {"kept": 35, "unchanged": 1, "failed": 4}
    assert found.negatives[7] == []
    assert rewrite_captions(CAPTIONS, judge, path, categories=["count"]).counts["count"]["kept"] == 39
    assert len(judge.asked) == 44


def test_a_judge_that_fails_on_everything_stops_the_run(path):
    def answer(question):
        raise JudgeError("server down")

    judge = RecordingJudge(answer)
    with pytest.raises(JudgeError, match="server down"):
        rewrite_captions(CAPTIONS, judge, path)
    assert (len(judge.asked), path.exists()) == (32, False)  # one call's worth


def test_the_length_limit_grows_with_the_caption_and_cut_answers_are_none(path):
    class Cut(ScriptedJudge):
        def generate(self, questions, **how):
            limits.append(how["max_new_tokens"])
            return [Answer("", truncated=True)] * len(questions)

    limits = []
    for caption in ("A star.", "star " * 500):
        found = rewrite_captions([caption], Cut(), path, categories=["noun"])
        assert found.counts["noun"] == {"cut": 1}
    assert limits == [67, 1314]


@given(st.text(min_size=1).filter(str.strip))
@settings(max_examples=100, deadline=None)
def test_a_caption_cannot_break_out_of_its_place(caption):
    prompts = load_prompts()
    start, end = prompts.fill("noun", "\ue000").split('"\ue000"')
    filled = prompts.fill("noun", caption)
    assert filled.startswith(start)
    assert filled.endswith(end)
    inside = filled[len(start) : len(filled) - len(end)]
    assert json.loads(inside) == caption
    assert len(inside.splitlines()) == 1


CAPTION = 'Two red stars lie beside a sign that says "OPEN".'
EDITED = 'Two blue stars lie beside a sign that says "OPEN".'
ESCAPED = "A \\u003cb\\u003e sign \\u005bblue\\u005d lies."


@pytest.mark.parametrize(
    ("caption", "answer", "expected", "reason"),
    [
        (CAPTION, EDITED, EDITED, ""),
        (CAPTION, f"```json\n{json.dumps(EDITED)}\n```", EDITED, ""),
        (CAPTION, f"<think>\nLet me see.\n</think>\n\n{json.dumps(EDITED)}", EDITED, ""),
        (CAPTION, f" “{EDITED}”\n", EDITED, ""),
        (CAPTION, f'"{EDITED}"', EDITED, ""),  # quotes inside not escaped: no JSON
        (CAPTION, EDITED.replace('"', '\\"'), EDITED, ""),
        ("The girl feeds the goat.", "The goat feeds the girl.", "The goat feeds the girl.", ""),
        ("Dogs", "Cats", "Cats", ""),
        ("两颗红色的星星。", "三颗红色的星星。", "三颗红色的星星。", ""),
        ("A <b> sign [red] lies.", f'"{ESCAPED}"', "A <b> sign [blue] lies.", ""),
        ("A <b> sign [red] lies.", ESCAPED, "A <b> sign [blue] lies.", ""),
        (CAPTION, '""', None, "empty"),
        (CAPTION, "<think>Hmm, let me", None, "empty"),
        (CAPTION, '"\\ud83d half"', None, "empty"),
        (CAPTION, json.dumps(CAPTION), None, "unchanged"),
        (CAPTION, f"'{CAPTION.upper()}' \n", None, "unchanged"),
        (CAPTION, f"{EDITED}\n\nI changed the colour.", None, "lines"),
        (CAPTION, "No.", None, "length"),
        (CAPTION, "I am sorry, but I cannot help with that request. " * 3, None, "length"),
        (CAPTION, "I'm sorry, but I can't assist with that request.", None, "unlike"),
    ],
)
def test_ways_to_answer(caption, answer, expected, reason):
    assert read_answer(caption, answer) == (expected, reason)
    assert read_answer(caption, answer, cut=True) == (None, "cut")
