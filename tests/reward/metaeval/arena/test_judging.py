"""Judging battles: the file that comes out, and that nothing is asked twice."""

import json
from dataclasses import replace

import pytest
from PIL import Image

from reward.errors import DataError, JudgeError, OutputError
from reward.judges import ScriptedJudge
from reward.judges.pairwise import PairPrompt, PairwiseJudge
from reward.metaeval.arena.judging import judge_battles
from reward.scoring.runs import ScoringInterrupted
from tests.toys.toy_judges import shown_captions


class Counting(ScriptedJudge):
    """Prefers the caption with more words, keeps what it has answered, and fails on texts with {mark: error}."""

    def __init__(self, failures=None, name="counting"):
        super().__init__(self.answer, name=name)
        self.failures = failures or {}
        self.texts = []

    def answer(self, question):
        for mark, error in self.failures.items():
            if mark in question.text:
                raise error
        self.texts.append(question.text)
        first, second = (len(caption.split()) for caption in shown_captions(question))
        verdict = "tie" if first == second else 1 + (first < second)
        return f"Reason: {first}:{second}\nVerdict: {verdict}"


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(20):
        Image.new("RGB", (4, 4), (number, 0, 0)).save(folder / f"{number}.png")
    return folder


def entry(number):
    captions = {"caption1": f"c{number} word", "caption2": f"c{number} two words", "ref": f"person {number}"}
    return {"img": f"{number}.png", "source1": "short", "source2": "long", **captions, "winner": "long", "cluster": "1"}


def make(count=20):
    return [{**entry(number), "judge": "Tie.", "judge_reason": "An earlier one."} for number in range(count)]


def decide(images, judge, output="o.json", count=20, **options):
    return judge_battles(make(count), PairwiseJudge(judge), images.parent / output, image_root=images, **options)


def test_the_file_has_the_battles_with_verdicts_and_is_complete(images, tmp_path):
    judge, output = Counting(), tmp_path / "o.json"
    summary = decide(images, judge)
    records = json.loads(output.read_text())
    assert [record["img"] for record in records] == [f"{number}.png" for number in range(20)]
    assert records[3] == {
        **entry(3),
        "judge": "Caption 2 is better.",
        "judge_reason": "2:3\nWith the captions exchanged: 3:2",
        "judge_probabilities": [0.0, 1.0, 0.0],
        "judge_orders": ["Caption 2 is better.", "Caption 2 is better."],
    }
    assert (summary.battles, summary.unanswered, len(judge.texts)) == (records, 0, 40)
    assert all("> person" in text for text in judge.texts)
    facts = json.loads((tmp_path / "o.json.summary.json").read_text())
    assert (facts["run"]["judge"], facts["usage"]["answered"]) == ("counting", 40)
    again = decide(images, judge)
    assert (again.already_done, again.battles, len(judge.texts)) == (True, records, 40)
    # Another run does not touch it.
    prompt = replace(PairPrompt.of(), ask_reason="Now tell.\nWhich?")
    others = [(20, PairwiseJudge(Counting(name="another"))), (20, PairwiseJudge(Counting(), prompt=prompt))]
    for count, other in [*others, (4, PairwiseJudge(Counting()))]:
        with pytest.raises(OutputError, match="other battles, judge or settings"):
            judge_battles(make(count), other, output, image_root=images)
    assert json.loads(output.read_text()) == records
    assert len(decide(images, Counting(), count=4, overwrite=True).battles) == 4


def test_a_stopped_run_goes_on_where_it_was(images, monkeypatch):
    monkeypatch.setattr("reward.metaeval.arena.judging.CHUNK", 2)
    whole = decide(images, Counting(), "whole.json").battles
    first, second = Counting({"c6 word": KeyboardInterrupt()}), Counting()
    with pytest.raises(ScoringInterrupted, match=r"6 rows are saved in .*o\.json\.partial"):
        decide(images, first)
    assert not (images.parent / "o.json").exists()
    summary = decide(images, second)
    assert (summary.resumed, summary.battles) == (6, whole)
    assert len(first.texts) + len(second.texts) == len({*first.texts, *second.texts}) == 40


def test_what_fails_fails_alone_and_only_what_has_no_answer_is_asked_again(images, tmp_path):
    """A battle of a person stays without a verdict; nothing can be asked about a broken image."""
    (images / "2.png").write_bytes(b"not an image")
    battles, output = make(6), tmp_path / "o.json"
    battles[1]["source1"] = "human"
    judge = PairwiseJudge(Counting(dict.fromkeys(["c3 word", "c5 word"], JudgeError("timed out"))))
    summary = judge_battles(battles, judge, output, image_root=images, references=False)
    first, human, broken, lost = json.loads(output.read_text())[:4]
    assert "judge" in first
    assert not {"judge", "judge_error"} & set(human)
    assert "is not an image" in broken["judge_error"]
    assert (summary.unanswered, lost["judge_error"], lost.get("judge")) == (2, "timed out", None)
    asked = Counting()
    summary = judge_battles(battles, PairwiseJudge(asked), output, image_root=images, references=False)
    assert (summary.unanswered, summary.resumed, len(asked.texts)) == (0, 3, 4)
    assert not any("person" in text for text in asked.texts)  # for want of references
    assert "judge_error" not in summary.battles[3]
    assert not (tmp_path / "o.json.partial").exists()


OUTSIDE = "leads out of the folder of the images"


@pytest.mark.parametrize(
    ("changes", "output", "error", "message"),
    [
        ({"img": "a/../../secret.png"}, "o.json", DataError, OUTSIDE),
        ({"img": "/secret.png"}, "o.json", DataError, OUTSIDE),
        ({"source1": "human"}, "o.json", DataError, "no battle to judge but those with the source 'human'"),
        ({}, "o.jsonl", OutputError, "must end in .json"),
    ],
)
def test_faults_are_found_before_anything_is_asked(changes, output, error, message, images, tmp_path):
    before, judge = sorted(tmp_path.rglob("*")), Counting()
    with pytest.raises(error, match=message):
        judge_battles([{**entry(0), **changes}], PairwiseJudge(judge), tmp_path / output, image_root=images)
    assert (judge.texts, sorted(tmp_path.rglob("*"))) == ([], before)
