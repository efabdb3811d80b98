"""Judging battles: the file that comes out, and that nothing is asked twice."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from PIL import Image

from reward.arena import judging as module
from reward.arena.judging import judge_battles
from reward.arena.pairwise import PairPrompt, PairwiseJudge
from reward.battles import Battle
from reward.errors import DataError, JudgeError, OutputError
from reward.judges import ScriptedJudge
from reward.scoring.dataset import ScoringInterrupted
from tests.reward.scoring.test_damage import DAMAGE, damaged, each_damage


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
        parts = re.search(r"Caption 1:\n(.*?)\n\nCaption 2:\n(.*?)\n\nWhich", question.text, re.DOTALL).groups()
        first, second = (len(part.split()) for part in parts)
        return f"Reason: {first}:{second}\nVerdict: {'tie' if first == second else 1 if first > second else 2}"


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(20):
        Image.new("RGB", (4, 4), (number, 0, 0)).save(folder / f"{number}.png")
    return folder


def make(count=20):
    return [
        Battle.from_json(
            {
                "img": f"{number}.png",
                "source1": "short",
                "source2": "long",
                "caption1": f"c{number} word",
                "caption2": f"c{number} two words",
                "ref": f"person {number}",
                "winner": "long",
                "cluster": "level 1",
                "judge": "Tie.",
            }
        )
        for number in range(count)
    ]


def test_the_file_has_the_battles_with_verdicts(images, tmp_path):
    counting = Counting()
    output = tmp_path / "judged.json"
    summary = judge_battles(make(), counting.judge, output, image_root=images)
    records = json.loads(output.read_text())
    assert [record["img"] for record in records] == [f"{number}.png" for number in range(20)]
    assert records[3] == {
        "img": "3.png",
        "source1": "short",
        "source2": "long",
        "caption1": "c3 word",
        "caption2": "c3 two words",
        "ref": "person 3",
        "winner": "long",
        "cluster": "level 1",
        "judge": "Caption 2 is better.",
        "judge_reason": "3:4\nWith the captions exchanged: 4:3",
        "judge_probabilities": [0.0, 1.0, 0.0],
        "judge_orders": ["Caption 2 is better.", "Caption 2 is better."],
    }
    assert summary.records == records
    assert (summary.judged, summary.human, summary.unreadable, summary.unanswered) == (20, 0, 0, 0)
    assert summary.sources["long"] == {"wins": 20, "ties": 0, "losses": 0, "unjudged": 0}
    assert (summary.bias.first_share, summary.bias.inconsistency) == (0.5, 0.0)
    assert len(counting.texts) == 40
    assert all("> person" in text for text in counting.texts)
    assert not (tmp_path / "judged.json.partial").exists()
    facts = json.loads((tmp_path / "judged.json.summary.json").read_text())
    assert facts["run"]["judge"] == "counting"
    assert facts["position_bias"]["first_share"] == 0.5
    assert facts["usage"]["answered"] == 40


def test_without_references(images, tmp_path):
    counting = Counting()
    judge_battles(make(2), counting.judge, tmp_path / "o.json", image_root=images, references=False)
    assert not any("person" in text for text in counting.texts)


def test_a_finished_run_asks_nothing_again(images, tmp_path):
    output = tmp_path / "o.json"
    judge_battles(make(), Counting().judge, output, image_root=images)
    again = Counting()
    summary = judge_battles(make(), again.judge, output, image_root=images)
    assert summary.already_done
    assert summary.judged == 20
    assert again.texts == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, JudgeError("the server is down"), RuntimeError("boom")])
def test_a_stopped_run_goes_on_where_it_was(images, tmp_path, monkeypatch, error):
    monkeypatch.setattr(module, "FIRST_CHUNK", 2)
    monkeypatch.setattr(module, "LARGEST_CHUNK", 2)
    output = tmp_path / "o.json"
    whole = judge_battles(make(), Counting().judge, tmp_path / "whole.json", image_root=images).records

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
    assert summary.records == whole
    assert len(first.texts) + len(second.texts) == 40
    assert not set(first.texts) & set(second.texts)


def test_battles_without_answer_are_asked_again_and_only_these(images, tmp_path):
    output = tmp_path / "o.json"
    first = Counting(fail=["c3 word", "c7 word"])
    summary = judge_battles(make(), first.judge, output, image_root=images)
    assert (summary.judged, summary.unanswered) == (18, 2)
    assert summary.examples == {"unanswered": "timed out"}
    records = json.loads(output.read_text())
    assert records[3]["judge_error"] == "timed out"
    assert "judge" not in records[3]

    second = Counting()
    summary = judge_battles(make(), second.judge, output, image_root=images)
    assert (summary.judged, summary.unanswered, summary.resumed) == (20, 0, 18)
    assert len(second.texts) == 4
    assert "judge_error" not in json.loads(output.read_text())[3]
    assert not (tmp_path / "o.json.partial").exists()


@each_damage
@pytest.mark.filterwarnings("ignore:.*is damaged in line")
def test_a_damaged_journal_costs_only_the_damaged_verdicts(images, tmp_path, monkeypatch, kind):
    whole = judge_battles(make(5), Counting().judge, tmp_path / "whole.json", image_root=images).records
    output, journal = tmp_path / "o.json", tmp_path / "o.json.partial"
    with monkeypatch.context() as patch:
        patch.setattr(module, "_summarise", lambda *given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            judge_battles(make(5), Counting().judge, output, image_root=images)
    content = journal.read_bytes()
    for place in range(1, 5):
        journal.write_bytes(damaged(content, kind, place))
        counting = Counting()
        assert judge_battles(make(5), counting.judge, output, image_root=images).records == whole
        assert len(counting.texts) == 2 * DAMAGE[kind][1]
        output.unlink()


def test_a_finished_file_that_was_damaged_is_not_taken_as_finished(images, tmp_path):
    output = tmp_path / "o.json"
    judge_battles(make(2), Counting().judge, output, image_root=images)
    output.write_text(output.read_text().replace("Caption 2 is better.", "Caption 1 is better.", 1))
    with pytest.raises(OutputError, match=r"does not hold what it held when it was finished.* with --overwrite"):
        judge_battles(make(2), Counting().judge, output, image_root=images)


def test_human_battles_stay_without_a_verdict(images, tmp_path):
    battles = make(3)
    battles[1] = Battle.from_json({**battles[1].to_json(), "source1": "human"})
    counting = Counting()
    summary = judge_battles(battles, counting.judge, tmp_path / "o.json", image_root=images)
    assert (summary.human, summary.judged) == (1, 2)
    assert not {"judge", "judge_error"} & set(summary.records[1])
    assert len(counting.texts) == 4
    with pytest.raises(DataError, match="no battle to judge but those with the source 'human'"):
        judge_battles([battles[1]], counting.judge, tmp_path / "p.json", image_root=images)


def test_a_broken_image_fails_alone(images, tmp_path):
    (images / "1.png").write_bytes(b"not an image")
    summary = judge_battles(make(3), Counting().judge, tmp_path / "o.json", image_root=images)
    assert (summary.judged, summary.unreadable) == (2, 1)
    assert "is not an image" in summary.examples["unreadable"]


def test_missing_images_are_found_before_anything_is_asked(images, tmp_path):
    for name in ("1.png", "2.png"):
        (images / name).unlink()
    counting = Counting()
    with pytest.raises(DataError, match=r"2 of 5 images are not in the folder .*: 1\.png, 2\.png"):
        judge_battles(make(5), counting.judge, tmp_path / "o.json", image_root=images)
    assert counting.texts == []
    assert list(tmp_path.iterdir()) == [images]


@pytest.mark.parametrize("img", ["../secret.png", "a/../../secret.png", "/secret.png"])
def test_images_outside_of_the_folder_are_refused(img, images, tmp_path):
    Image.new("RGB", (4, 4)).save(tmp_path / "secret.png")
    battles = [Battle("0.png", "x", "y", "a", "b"), Battle(img, "x", "y", "a", "b")]
    with pytest.raises(DataError, match="leads out of the folder of the images"):
        judge_battles(battles, Counting().judge, tmp_path / "o.json", image_root=images)


def test_an_output_of_another_run_is_not_touched(images, tmp_path):
    output = tmp_path / "o.json"
    judge_battles(make(3), Counting().judge, output, image_root=images)
    before = output.read_bytes()
    other = Counting(name="another model")
    with pytest.raises(OutputError, match="other battles, judge or settings"):
        judge_battles(make(3), other.judge, output, image_root=images)
    with pytest.raises(OutputError, match="other battles"):
        judge_battles(make(4), Counting().judge, output, image_root=images)
    assert output.read_bytes() == before
    assert judge_battles(make(4), other.judge, output, image_root=images, overwrite=True).judged == 4


def test_verdicts_of_two_prompts_are_not_mixed(images, tmp_path):
    output = tmp_path / "o.json"
    judge_battles(make(3), Counting(fail=["c1 word"]).judge, output, image_root=images)
    changed = Counting()
    changed.judge.prompt = replace(PairPrompt.default(), ask_reason="Now tell.\nWhich?")
    with pytest.raises(OutputError, match="prompt was 'caparena-pair-1 "):
        judge_battles(make(3), changed.judge, output, image_root=images)


@pytest.mark.parametrize(("name", "message"), [("o.jsonl", "must end in .json"), ("folder.json", "is a folder")])
def test_bad_outputs(name, message, images, tmp_path):
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(OutputError, match=message):
        judge_battles(make(1), Counting().judge, tmp_path / name, image_root=images)
