"""The caption is taken out of all that a policy or captioner wrote, by one function, and counted."""

import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from reward import CaptionSample, CombinedReward, MetricReward
from reward.data import written_captions
from reward.data.written_captions import FIRST_CHARACTERS, LAST_CHARACTERS_OF_REASONING, blank_reasoning, caption_in
from reward.decoding.captioning import caption_images
from reward.decoding.photos import read_images
from reward.decoding.selection import rate_candidates, rerank
from reward.judges.chat import Sampled
from reward.judges.wording import quoted
from reward.scoring import BatchScorer, score_dataset
from tests.reward.decoding.test_captioning import Captioner
from tests.toys.json_lines import read_lines, write_lines

THOUGHT = "<think>Is it red? It is a big red star, I think.</think>\nA red star."
WRITTEN = [THOUGHT, "Red. So I write.</think>A red star.", "<think>And now", "A red star on grass."]
LENGTHS = [3.0, 3.0, 0.0, 5.0]  # without a word the lowest

TABLE = yaml.safe_load(Path(written_captions.__file__).with_suffix(".yaml").read_text("utf-8"))
CHANNELS = "<|channel|>analysis<|message|>Red?<|end|><|start|>assistant<|channel|>final<|message|>A red star."


@pytest.mark.parametrize(("opens", "closes"), TABLE["reasoning"])
def test_reasoning_is_left_out_and_where_it_is_open_there_is_no_caption(opens, closes):
    assert caption_in(f"{opens}Is it red?{closes}\n A red star. ") == "A red star."
    assert caption_in(f"Is it red?{closes}A red star.") == "A red star."  # the chat template had opened it
    assert caption_in(f"{opens}Is it {opens}red?{closes}No.{closes}A red star.") == "A red star."
    assert caption_in(f"{opens}Is it") == caption_in(f"A red star.{opens}Is it") == ""
    assert MetricReward("length")([""] * 2, [f"{opens}Is it{closes}A star.", f"{opens}A star."]) == [2.0, 0.0]


@pytest.mark.parametrize("mark", [mark for pair in TABLE["reasoning"] for mark in pair])
def test_a_judge_that_quotes_a_caption_does_not_open_or_close_reasoning(mark):
    assert mark not in quoted(f"A star.{mark}Score: 1")


@pytest.mark.parametrize(("opens", "closes"), TABLE["answers"])
def test_the_caption_is_in_the_last_answer(opens, closes):
    if opens.endswith("text{"):
        closes = "}}"
    assert caption_in(f"Hm. {opens} A red star. {closes} Good?") == "A red star."
    assert caption_in(f"{opens}No.{closes}{opens}A red star.{closes}{opens}A") == "A red star."
    assert caption_in(f"<think>{opens}No.{closes}</think>A red star.") == "A red star."
    assert caption_in(f"{opens}A red star.") == "A red star."  # the longest text was reached


@pytest.mark.parametrize("end", TABLE["ends"])
def test_marks_that_end_a_turn_are_no_part_of_a_caption(end):
    assert caption_in(f"A red star.{end}\n{end}") == "A red star."
    assert caption_in(f"<answer>A red star.{end}</answer>{end}") == "A red star."
    assert caption_in(f"A {end} star.") == f"A {end} star."


@pytest.mark.parametrize(
    ("written", "caption"),
    [
        (CHANNELS, "A red star."),
        (f"A dog.<|end|><|start|>assistant{CHANNELS}<|return|>", "A red star."),
        (CHANNELS.partition("<|start|>")[0], ""),
        ("A <think>red or blue?</think>red star.", "A red star."),
        ("<think>Hm.</think><answer>\\boxed{A red star.}</answer></s>", "A red star."),
        (r"\boxed{A {red} \} star.} It has {five} points.", r"A {red} \} star."),
        ("A red star.</answer>", "A red star."),
        ("[A red star] <b>on</b> {grass} \\ ", "[A red star] <b>on</b> {grass} \\ "),
        ("<think>Hm.</think><|im_end|>", ""),
    ],
)
def test_forms_that_stand_together(written, caption):
    assert caption_in(written) == caption


def test_all_marks_begin_with_the_characters_that_are_looked_for():
    marks = {mark for pair in TABLE["reasoning"] + TABLE["answers"] for mark in pair} - {"}"}
    assert {mark[0] for mark in marks | {*TABLE["ends"]}} == {*FIRST_CHARACTERS}
    assert {mark[-1] for pair in TABLE["reasoning"] for mark in pair} == {*LAST_CHARACTERS_OF_REASONING}


MARKS = [mark for pair in TABLE["reasoning"] + TABLE["answers"] for mark in pair] + TABLE["ends"]


@given(st.lists(st.sampled_from([*MARKS, "{", "\\", "\n", " ", "A red star."])).map("".join))
def test_a_caption_has_no_more_marks_and_blanks_take_no_room(written):
    caption = caption_in(written)
    assert caption_in(caption) == caption
    assert len(blank_reasoning(written)) == len(written)


@given(st.text())
def test_other_texts_stay(text):
    assert caption_in(text) == text


@pytest.mark.parametrize("mark", [*MARKS, "<"])
def test_the_time_is_linear_in_the_text(mark):
    start = time.perf_counter()
    caption_in(mark * 20_000)
    caption_in(mark * 20_000 + "A")
    assert time.perf_counter() - start < 2


def lengths(completions, **_):
    return [float(len(text.split())) for text in completions]


def by_trainer(reward):
    return list(reward(["Describe."] * 4, WRITTEN))


def by_samples(reward):
    return list(reward.rewards([CaptionSample(text) for text in WRITTEN]))


def by_candidates(reward):
    return rate_candidates([WRITTEN], [None], [()], reward)[0]


LENGTH = MetricReward("length")


@pytest.mark.parametrize("call", [by_trainer, by_samples, by_candidates])
@pytest.mark.parametrize("reward", [LENGTH, LENGTH.aspects()[0], CombinedReward([LENGTH])], ids=["one", "aspect", "of"])
def test_a_caption_is_worth_the_same_with_and_without_reasoning(call, reward):
    assert call(reward) == LENGTHS


def test_functions_of_users_are_given_captions_and_a_reward_may_be_shown_all():
    assert by_candidates(lengths) == [3.0, 3.0, 3.0, 5.0]  # the lowest of the call, where there is no bound
    assert rerank(WRITTEN, reward=lengths) == [3, 0, 1, 2]
    for call in (by_trainer, by_samples, by_candidates):
        assert call(MetricReward("length", strip_thinking=False))[0] == len(THOUGHT.split())


class Thinks(Captioner):
    """Thinks before it writes."""

    def sample(self, images, n, sampling, have):
        for row, _ in images:
            yield row, [Sampled(text) for text in WRITTEN[:n]]


def test_captions_of_a_folder_are_written_without(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    output, options = tmp_path / "c.jsonl", {"metric": "length", "n": 3, "keep_candidates": True}
    summary = caption_images(read_images(tmp_path), Thinks(), output, **options)
    assert read_lines(output)[0]["caption"] == "A red star."
    assert summary.distinct == pytest.approx(2 / 3)
    assert "think" not in (tmp_path / "c.jsonl.candidates.jsonl").read_text()


def test_files_of_captions_are_cut_on_request(tmp_path):
    data = write_lines(tmp_path / "data.jsonl", [{"candidate": text} for text in WRITTEN])
    summary = score_dataset(data, "length", tmp_path / "scores.jsonl", strip_thinking=True)
    rows = read_lines(tmp_path / "scores.jsonl")
    assert [row["reward"] for row in rows] == LENGTHS
    assert [row["candidate"] for row in rows] == WRITTEN  # what is scored is cut, the cell is not
    assert (summary.thinking_cut, summary.errors) == (3, {"candidate": 1})
    assert score_dataset(data, "length", tmp_path / "raw.jsonl").thinking_cut == 0
    assert BatchScorer("length", strip_thinking=True)({"candidate": WRITTEN})["reward"] == LENGTHS
