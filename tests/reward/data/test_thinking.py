"""Reasoning is cut from all that a policy or captioner wrote, by one function, and counted."""

import pytest
from PIL import Image

from reward import CaptionSample, CombinedReward, MetricReward
from reward.decoding.captioning import caption_images
from reward.decoding.photos import read_images
from reward.decoding.selection import rate_candidates, rerank
from reward.judges import Usage
from reward.judges.chat import Sampled
from reward.scoring import BatchScorer, score_dataset
from tests.toys.json_lines import read_lines, write_lines

THOUGHT = "<think>Is it red? It is a big red star, I think.</think>\nA red star."
WRITTEN = [THOUGHT, "Red. So I write.</think>A red star.", "<think>And now", "A red star on grass."]
LENGTHS = [3.0, 3.0, 0.0, 5.0]  # without a word the lowest


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


class Captioner:
    """Thinks of the first image before it writes."""

    name = "model"

    def __init__(self):
        self.usage = Usage()

    def check(self):
        return self.name

    def sample(self, images, n, sampling, have):
        for row, _ in images:
            yield row, [Sampled(text) for text in WRITTEN[:n]]


def test_captions_of_a_folder_are_written_without(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    output, options = tmp_path / "c.jsonl", {"metric": "length", "n": 3, "keep_candidates": True}
    summary = caption_images(read_images(tmp_path), Captioner(), output, **options)
    assert read_lines(output)[0]["caption"] == "A red star."
    assert summary.distinct == pytest.approx(2 / 3)
    assert "think" not in (tmp_path / "c.jsonl.candidates.jsonl").read_text()


def test_files_of_captions_are_cut_on_request(tmp_path):
    data = write_lines(tmp_path / "data.jsonl", [{"candidate": text} for text in WRITTEN])
    summary = score_dataset(data, "length", tmp_path / "scores.jsonl", strip_thinking=True)
    assert [row["reward"] for row in read_lines(tmp_path / "scores.jsonl")] == LENGTHS
    assert (summary.thinking_cut, summary.errors) == (3, {"candidate": 1})
    assert score_dataset(data, "length", tmp_path / "raw.jsonl").thinking_cut == 0
    assert BatchScorer("length", strip_thinking=True)({"candidate": WRITTEN})["reward"] == LENGTHS
