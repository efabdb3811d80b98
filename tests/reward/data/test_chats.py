"""A caption in blocks of text is one caption, by whichever way it comes."""

import pytest
from PIL import Image

from integrations.trl import make_preference_dataset
from reward.data.chats import completion_text
from reward.rewards.text_rewards import LengthReward
from reward.scoring import rerank_dataset, score_dataset
from tests.toys.json_lines import read_lines, write_lines

BLOCKS = [{"type": "text", "text": "A dog"}, {"type": "image"}, {"type": "text", "text": "runs."}]
CHAT = [{"role": "user", "content": "What is it?"}, {"role": "assistant", "content": BLOCKS}]
JOINED = "A dog\nruns."


def by_trainer(folder):
    assert LengthReward(3, 3)(["What is it?"], [CHAT[1:]]) == [1.0]
    return completion_text(CHAT)


def by_llava(folder):
    return completion_text([{"from": "human", "value": "What is it?"}, {"from": "gpt", "value": BLOCKS}])


def by_file(folder):
    score_dataset(write_lines(folder / "data.jsonl", [{"messages": CHAT}]), "length", folder / "scores.jsonl")
    row = read_lines(folder / "scores.jsonl")[0]
    assert row["reward"] == 3.0
    return row["caption"]


def by_rerank(folder):
    rows = [{"image": "a.png", "completion": CHAT[1:]}]
    rerank_dataset(write_lines(folder / "data.jsonl", rows), "length", folder / "ranked.jsonl")
    return read_lines(folder / "ranked.jsonl")[0]["caption"]


def by_preferences(folder):
    Image.new("RGB", (8, 8)).save(folder / "a.png")
    prompt = [{"role": "user", "content": [BLOCKS[1], BLOCKS[0], BLOCKS[2]]}]
    rows = [{"image": "a.png", "prompt": prompt, "candidates": ["A star.", "A red dog."], "rewards": [0.0, 1.0]}]
    pairs = make_preference_dataset(str(write_lines(folder / "data.jsonl", rows)), prompt_column="prompt")
    return pairs[0]["prompt"][0]["content"]


@pytest.mark.parametrize("way", [by_trainer, by_llava, by_file, by_rerank, by_preferences])
def test_blocks_of_text_are_joined_by_a_line_break(way, tmp_path):
    assert way(tmp_path) == JOINED
