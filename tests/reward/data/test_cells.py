"""Columns, cells and chats as other libraries give them, at every place that takes captions, images or references."""

import asyncio
import math
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from datasets import Dataset
from PIL import Image

from integrations.trl import make_preference_dataset
from integrations.verl import compute_score
from reward.data.cells import parse_list, read_number
from reward.data.chats import completion_text
from reward.data.samples import CaptionSample, one_image
from reward.decoding.selection import rate_candidates, rerank
from reward.errors import InvalidSampleError
from reward.rewards.metric_reward import MetricReward
from reward.rewards.text_rewards import LengthReward
from reward.scoring import BatchScorer, rerank_dataset, score_dataset
from tests.toys.json_lines import read_lines, write_lines

CAPTIONS = ["A red star.", "A star."]
REFERENCES = [["A red star.", "A red star."], ["A star on grass."]]
NUMBERS = [
    *((text, None) for text in ("", " ", "NA", "nan", "None", "n/a", "-", math.nan, pd.NA, None)),
    *(("1e5", 1e5), (" 7 ", 7), (",5", 0.5), ("-12,25", -12.25), ("0,125", 0.125)),
    *((7, 7), (np.float32(0.5), 0.5), (Decimal("1.5"), 1.5), ("1234,567", 1234.567), ("1,5e3", 1500)),
    *((text, "may be a number with a decimal comma or one above a thousand") for text in ("1,234", "-12,345")),
    *((cell, "is no number") for cell in ("good", "1,2,3", "1.234,5", "inf", math.inf, True, b"1", [1], "5 stars")),
]
SEQUENCES = {
    "tuple": tuple,
    "column of datasets": lambda values: Dataset.from_dict({"it": values})["it"],
    "series": lambda values: pd.Series(values, index=["read", "columns"][: len(values)]),
    "array of objects": lambda values: np.array([*values, None], dtype=object)[:-1],
    "array of Arrow": pa.array,
    "chunked": lambda values: pa.chunked_array([values[:1], values[1:]]),
}


@pytest.mark.parametrize(("cell", "expected"), NUMBERS, ids=repr)
def test_a_cell_that_is_needed_as_a_number_is_one_or_none_or_refused(cell, expected):
    if isinstance(expected, str):
        with pytest.raises(InvalidSampleError, match=expected):
            read_number(cell)
    else:
        assert read_number(cell) == expected


@pytest.mark.parametrize("kind", SEQUENCES)
def test_a_column_may_be_of_any_library(kind):
    make, relative = SEQUENCES[kind], LengthReward(1, 1, margin=2, relative=True)
    assert relative(make(["Go."] * 2), make(CAPTIONS), refs=make(REFERENCES)) == [1.0, 0.75]
    assert BatchScorer("length", added_only=True)({"caption": make(CAPTIONS)})["length"][:] == pytest.approx([3, 2])
    assert rerank(make(["A star.", "A red star."]), reward="length") == [1, 0]
    rated = rate_candidates(make([["A red star."], ["A star."]]), make([None] * 2), make(REFERENCES), relative)
    assert rated == [[1.0], [0.75]]
    assert one_image(make(["a.png", None])) == "a.png"
    assert CaptionSample("A star.", references=make(REFERENCES[0])).references == tuple(REFERENCES[0])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("A red star.", "one text, 'A red star.'"),
        ({"en": "A star."}, "a dict with the keys en"),
        (3, "int"),
        (pd.DataFrame({"en": ["A star."]}), "DataFrame"),
        ({"A star."}, "set"),
    ],
)
def test_what_is_no_list_is_refused_by_name(given, message):
    reward = MetricReward("length")
    for name in ("completions", "prompts", "references", "image"):
        columns = {"prompts": [None] * 2, "completions": CAPTIONS, name: given}
        with pytest.raises(InvalidSampleError, match=rf"{name}'? must be a list, got.*{message}"):
            reward(**columns)
    with pytest.raises(InvalidSampleError, match=f"candidates must be a list, .*{message}"):
        rerank(given, reward=reward)
    assert reward([None] * 2, CAPTIONS, image_size=given, trainer_state=given) == [3.0, 2.0]  # not ours


@pytest.mark.parametrize("missing", [math.nan, np.float32("nan"), pd.NA, pd.NaT, None])
def test_what_tables_write_for_a_missing_value_is_none(missing):
    assert MetricReward("length")([None] * 2, CAPTIONS, refs=[missing, ["A star.", missing]]) == [3.0, 2.0]
    assert one_image(missing) is None
    assert one_image([missing, "a.png"]) == "a.png"
    with pytest.raises(InvalidSampleError, match="the row has 2 images"):
        one_image(["a.png", missing, "b.png"])
    assert asyncio.run(compute_score("", "A star.", missing, {"image": missing}, metric="length"))["score"] == 2
    batch = {"caption": CAPTIONS, "references": [missing, ["A star."]]}
    assert BatchScorer("length")(batch)["error"] == [None, None]


TEXTS = ["A red star.", 'It\'s a "star".']


@pytest.mark.parametrize(
    "text",
    [
        '["A red star.", "It\'s a \\"star\\"."]',
        *map(str, (TEXTS, tuple(TEXTS), list(np.array(TEXTS)), np.array(TEXTS, dtype=object))),
    ],
)
def test_a_list_that_a_table_holds_as_text_is_that_list(text):
    assert parse_list(text) == TEXTS
    assert MetricReward("unigram")([None], TEXTS[:1], refs=[text]) == [1.0]


def test_lists_in_a_csv_file_are_lists(tmp_path):
    pd.DataFrame({"candidates": [str(TEXTS)], "refs": [str(TEXTS)], "image": ["['a.png']"]}).to_csv(tmp_path / "a.csv")
    rerank_dataset(tmp_path / "a.csv", "length", tmp_path / "out.jsonl")
    assert read_lines(tmp_path / "out.jsonl")[0]["rewards"] == [3.0, 3.0]


@pytest.mark.parametrize("text", ["[A red star] on grass", "(see left)", "[inaudible]", "{a}", "[1] A star", "('A.')"])
def test_other_texts_stay(text):
    assert parse_list(text) == text


def test_a_broken_list_is_no_text():
    with pytest.raises(InvalidSampleError, match="looks like a list"):
        MetricReward("length", on_error="raise")([None], ["A star."], refs=["['A star.'; 'A star.']"])


BLOCKS = [{"type": "text", "text": "A dog"}, {"type": "image"}, {"type": "text", "text": "runs."}]
CHAT = [{"role": "user", "content": "What is it?"}, {"role": "assistant", "content": BLOCKS}]
JOINED = "A dog\nruns."


def by_trainer(folder):
    assert LengthReward(3, 3)(["What is it?"], [CHAT[1:]]) == [1.0]
    return completion_text(CHAT)


def by_file(folder):
    score_dataset(write_lines(folder / "data.jsonl", [{"messages": CHAT}]), "length", folder / "scores.jsonl")
    row = read_lines(folder / "scores.jsonl")[0]
    assert row["reward"] == 3.0
    return row["caption"]


def by_preferences(folder):
    Image.new("RGB", (8, 8)).save(folder / "a.png")
    prompt = [{"role": "user", "content": [BLOCKS[1], BLOCKS[0], BLOCKS[2]]}]
    rows = [{"image": "a.png", "prompt": prompt, "candidates": ["A star.", "A red dog."], "rewards": [0.0, 1.0]}]
    pairs = make_preference_dataset(str(write_lines(folder / "data.jsonl", rows)), prompt_column="prompt")
    return pairs[0]["prompt"][0]["content"]


@pytest.mark.parametrize("way", [by_trainer, by_file, by_preferences])
def test_blocks_of_text_are_joined_by_a_line_break(way, tmp_path):
    assert way(tmp_path) == JOINED
