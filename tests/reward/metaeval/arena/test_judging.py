"""Judging battles: the file that comes out, and that nothing is asked twice."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from PIL import Image

from reward.errors import DataError, JudgeError, OutputError
from reward.judges import ScriptedJudge
from reward.judges.pairwise import PairPrompt, PairwiseJudge
from reward.metaeval.arena import judging as module
from reward.metaeval.arena.judging import judge_battles
from reward.scoring.runs import ScoringInterrupted
from tests.toys.toy_judges import shown_captions


class Counting:
    """Prefers the caption with more words, keeps the questions, and gives no answer to those that hold a mark."""

    def __init__(self, fail=(), name="counting"):
        self.fail = fail
        self.texts = []
        self.judge = PairwiseJudge(ScriptedJudge(self.answer, name=name))

    def answer(self, question):
        self.texts.append(question.text)
        for mark in self.fail:
            if mark in question.text:
                raise JudgeError("timed out")
        first, second = (len(caption.split()) for caption in shown_captions(question))
        return f"Reason: {first}:{second}\nVerdict: {'tie' if first == second else 1 if first > second else 2}"


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(20):
        Image.new("RGB", (4, 4), (number, 0, 0)).save(folder / f"{number}.png")
    return folder


def make(count=20):
    return [{**entry(number), "judge": "Tie.", "judge_reason": "An earlier one."} for number in range(count)]


def entry(number):
    captions = {"caption1": f"c{number} word", "caption2": f"c{number} two words", "ref": f"person {number}"}
    return {"img": f"{number}.png", "source1": "short", "source2": "long", **captions, "winner": "long", "cluster": "1"}


def test_the_file_has_the_battles_with_verdicts(images, tmp_path):
    counting = Counting()
    output = tmp_path / "judged.json"
    summary = judge_battles(make(), counting.judge, output, image_root=images)
    records = json.loads(output.read_text())
    assert [record["img"] for record in records] == [f"{number}.png" for number in range(20)]
    assert records[3] == {
        **entry(3),
        "judge": "Caption 2 is better.",
        "judge_reason": "2:3\nWith the captions exchanged: 3:2",
        "judge_probabilities": [0.0, 1.0, 0.0],
        "judge_orders": ["Caption 2 is better.", "Caption 2 is better."],
    }
    assert (summary.battles, summary.unanswered) == (records, 0)
    assert len(counting.texts) == 40
    assert all("> person" in text for text in counting.texts)
    assert not (tmp_path / "judged.json.partial").exists()
    facts = json.loads((tmp_path / "judged.json.summary.json").read_text())
    assert facts["run"]["judge"] == "counting"
    assert facts["usage"]["answered"] == 40
    summary = judge_battles(make(), counting.judge, output, image_root=images)
    assert (summary.already_done, summary.battles, len(counting.texts)) == (True, records, 40)


@pytest.mark.parametrize("error", [KeyboardInterrupt, JudgeError("the server is down"), RuntimeError("boom")])
def test_a_stopped_run_goes_on_where_it_was(images, tmp_path, monkeypatch, error):
    monkeypatch.setattr(module, "CHUNK", 2)
    output = tmp_path / "o.json"
    whole = judge_battles(make(), Counting().judge, tmp_path / "whole.json", image_root=images).battles

    class Stopping(ScriptedJudge):
        def generate(self, questions, **options):
            if len(first.texts) >= 12:
                raise error
            return super().generate(questions, **options)

    first = Counting()
    first.judge.judge = Stopping(first.answer, name="counting")
    expected = ScoringInterrupted if error is KeyboardInterrupt else type(error)
    with pytest.raises(expected, match="6 rows are saved in .*o.json.partial" if error is KeyboardInterrupt else None):
        judge_battles(make(), first.judge, output, image_root=images)
    assert not output.exists()

    second = Counting()
    summary = judge_battles(make(), second.judge, output, image_root=images)
    assert summary.resumed == 6
    assert summary.battles == whole
    assert len(first.texts) + len(second.texts) == 40
    assert not set(first.texts) & set(second.texts)


def test_battles_without_answer_are_asked_again_and_only_these(images, tmp_path):
    output = tmp_path / "o.json"
    first = Counting(fail=["c3 word", "c7 word"])
    summary = judge_battles(make(), first.judge, output, image_root=images)
    assert (sum("judge" in battle for battle in summary.battles), summary.unanswered) == (18, 2)
    records = json.loads(output.read_text())
    assert records[3]["judge_error"] == "timed out"
    assert "judge" not in records[3]

    second = Counting()
    summary = judge_battles(make(), second.judge, output, image_root=images)
    assert (summary.unanswered, summary.resumed) == (0, 18)
    assert len(second.texts) == 4
    assert "judge_error" not in json.loads(output.read_text())[3]
    assert not (tmp_path / "o.json.partial").exists()


def test_human_battles_stay_without_a_verdict_and_a_broken_image_fails_alone(images, tmp_path):
    (images / "2.png").write_bytes(b"not an image")
    battles = make(3)
    battles[1]["source1"] = "human"
    counting = Counting()
    summary = judge_battles(battles, counting.judge, tmp_path / "o.json", image_root=images, references=False)
    assert "judge" in summary.battles[0]
    assert not {"judge", "judge_error"} & set(summary.battles[1])
    assert "is not an image" in summary.battles[2]["judge_error"]
    assert len(counting.texts) == 2
    assert not any("person" in text for text in counting.texts)  # for want of references


HUMAN, OUTSIDE = {"source1": "human"}, "leads out of the folder of the images"


@pytest.mark.parametrize(
    ("first", "second", "output", "error", "message"),
    [
        ({}, {"img": "../secret.png"}, "o.json", DataError, OUTSIDE),
        ({}, {"img": "a/../../secret.png"}, "o.json", DataError, OUTSIDE),
        ({}, {"img": "/secret.png"}, "o.json", DataError, OUTSIDE),
        (HUMAN, HUMAN, "o.json", DataError, "no battle to judge but those with the source 'human'"),
        ({}, {}, "o.jsonl", OutputError, "must end in .json"),
        ({}, {}, "folder.json", OutputError, "is a folder"),
    ],
)
def test_faults_are_found_before_anything_is_asked(first, second, output, error, message, images, tmp_path):
    Image.new("RGB", (4, 4)).save(tmp_path / "secret.png")
    (tmp_path / "folder.json").mkdir()
    before = sorted(tmp_path.rglob("*"))
    battles = [{**entry(number), **changes} for number, changes in enumerate((first, second))]
    counting = Counting()
    with pytest.raises(error, match=message):
        judge_battles(battles, counting.judge, tmp_path / output, image_root=images)
    assert (counting.texts, sorted(tmp_path.rglob("*"))) == ([], before)


def test_an_output_of_another_run_is_not_touched(images, tmp_path):
    done, unfinished = tmp_path / "o.json", tmp_path / "p.json"
    judge_battles(make(3), Counting().judge, done, image_root=images)
    judge_battles(make(3), Counting(fail=["c1 word"]).judge, unfinished, image_root=images)
    before = done.read_bytes()
    other, changed = Counting(name="another model"), Counting()
    changed.judge.prompt = replace(PairPrompt.of(), ask_reason="Now tell.\nWhich?")
    for count, judge, output, message in (
        (3, other.judge, done, "other battles, judge or settings"),
        (4, Counting().judge, done, "other battles"),
        (3, changed.judge, unfinished, "prompt was 'caparena-pair-1 "),
    ):
        with pytest.raises(OutputError, match=message):
            judge_battles(make(count), judge, output, image_root=images)
    assert done.read_bytes() == before
    assert judge_battles(make(4), other.judge, done, image_root=images, overwrite=True).resumed == 0
