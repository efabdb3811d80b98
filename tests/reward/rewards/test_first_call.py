"""Data of which no row can be scored stop a training in its first call; what the policy wrote never does."""

from __future__ import annotations

import asyncio
import copy
import logging
import pickle
from typing import Any

import pytest
from PIL import Image

from reward import AsyncReward, CaptionSample, CombinedReward, FleurReward, MetricReward, TournamentReward
from reward.errors import InvalidSampleError
from reward.judges import ScriptedJudge
from tests.toys.picture_scorer import PictureScorer
from tests.toys.toy_scorer import ToyScorer

RED = Image.new("RGB", (4, 4), "red")


class Grounded(PictureScorer):
    """Gives rows whose image cannot be read an error, as metrics do."""

    def score(self, samples: Any, **options: Any) -> Any:
        if any(sample.image == "absent.png" for sample in samples):
            readable = [CaptionSample("fail", image=RED) for _ in samples]
            return super().score(readable, **options)
        return super().score(samples, **options)


def call(reward: Any, completions: Any = ("red", "a star"), **columns: Any) -> list[float | None]:
    return reward(prompts=["Describe."] * len(completions), completions=list(completions), **columns)


@pytest.mark.parametrize(
    ("columns", "parts"),
    [
        ({"image": [None, None]}, ["column 'image' holds None", "image_column="]),
        ({"images": [["a.png", "b.png"]] * 2}, ["column 'images': the row has 2 images", "image_column="]),
        ({"file_name": ["a.png"] * 2, "img": ["a.png"] * 2}, ["image could be any of file_name, img: choose one"]),
        ({"shot": ["a.png"] * 2}, ["no column is named images, image, file_name, image_path, img, photo", "the columns are: shot", "image_column="]),
        ({"image": [RED] * 2, "refs": [["a", 5]] * 2}, ["column 'refs': references[1] must be a string, got int: 5"]),
        ({"image": ["absent.png"] * 2}, ["absent.png"]),
        ({}, ["the prompt holds no image and no column is named", "the columns are: none"]),
    ],
)
def test_a_fault_of_every_row_names_column_value_and_way_out(columns: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(InvalidSampleError) as caught:
        call(MetricReward(Grounded(), name="caption"), **columns)
    message = str(caught.value)
    assert message.startswith("caption: none of the 2 rows of the first call can be scored")
    for part in parts:
        assert part in message


@pytest.mark.parametrize("completions", [["", "red"], ["", "."]])
def test_a_caption_without_a_word_does_not_hide_that_no_image_can_be_read(completions: list[str]) -> None:
    with pytest.raises(InvalidSampleError, match=r"first call.*absent.png"):
        call(MetricReward(Grounded()), completions, file_name=["absent.png"] * 2)
    assert call(MetricReward("length"), ["", "."], file_name=["absent.png"] * 2) == [0.0, 0.0]


def test_missing_completions_and_references_are_named() -> None:
    with pytest.raises(InvalidSampleError, match="a completion must be a string or a list of messages, got NoneType"):
        call(MetricReward(ToyScorer()), [None, None], image=[RED, RED])
    with pytest.raises(InvalidSampleError, match=r"needs references, but column 'refs' holds \[' '\]\. Name their"):
        call(MetricReward("unigram"), refs=[[" "], []])
    told = r"no column is named references, refs, reference or ref \(the columns are: captions\)"
    with pytest.raises(InvalidSampleError, match=told):
        call(MetricReward("unigram"), captions=[["a"], ["b"]])


@pytest.mark.parametrize(
    ("completions", "columns"),
    [
        (["", "."], {"image": [RED, RED]}),  # the policy wrote nothing
        (["", "red"], {"image": [RED, None]}),
        (["red", "a star"], {"image": [RED, None]}),
        (["it will fail", "fail"], {"image": [RED, RED]}),  # captions that the metric cannot score
        (["half \ud83d", "half \ud83d"], {"image": [RED, RED]}),
        ([], {"image": []}),
    ],
)
def test_what_the_policy_wrote_never_stops_a_training(completions: list[str], columns: dict[str, Any]) -> None:
    assert len(call(MetricReward(ToyScorer()), completions, **columns)) == len(completions)


def test_later_calls_warn_and_a_resumed_reward_starts_again(caplog: pytest.LogCaptureFixture) -> None:
    reward = MetricReward(ToyScorer(), name="caption")
    call(reward, [], image=[])  # no row, no first call
    call(reward, image=[RED, None])
    with caplog.at_level(logging.WARNING, "reward.rewards.logs"):
        assert call(reward, image=[None, None]) == [None, None]
    assert reward.failures["no image"] == 3
    assert MetricReward(ToyScorer()).rewards([CaptionSample("red")]) == [None]  # ranking captions is no first call
    for resumed in (pickle.loads(pickle.dumps(reward)), copy.deepcopy(reward)):
        with pytest.raises(InvalidSampleError, match="first call"):
            call(resumed, image=[None, None])


@pytest.mark.parametrize(
    "make",
    [
        lambda: MetricReward(ToyScorer()).aspects()[1],
        lambda: CombinedReward([MetricReward("length"), MetricReward(ToyScorer())]),
        lambda: CombinedReward([MetricReward(ToyScorer()).aspects()[0]]),
        lambda: TournamentReward(ScriptedJudge()),
        lambda: FleurReward(ScriptedJudge()),
    ],
)
def test_every_kind_of_reward_stops(make: Any) -> None:
    for run in (call, lambda reward, **columns: asyncio.run(call(AsyncReward(reward), **columns))):
        with pytest.raises(InvalidSampleError, match="column 'image' holds None"):
            run(make(), image=[None, None])
