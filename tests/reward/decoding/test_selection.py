"""Captions of an image are rated and ranked by their rewards."""

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from reward.decoding.selection import rank, rate_candidates, rerank
from reward.errors import InvalidSampleError
from reward.rewards.combined_reward import CombinedReward
from reward.rewards.metric_reward import MetricReward
from tests.toys.toy_scorer import ToyScorer

IMAGE = Image.new("RGB", (4, 4))
REWARD = st.one_of(st.none(), st.just(math.nan), st.floats(-3, 3), st.integers(-1, 1))


@settings(max_examples=60, deadline=None)
@given(st.lists(REWARD, max_size=12))
@example([None, 1.0, 2.0, math.nan, 2.0, -math.inf])
def test_rank_puts_the_best_first_ties_in_their_order_and_what_has_no_number_last(rewards):
    order = rank(rewards)
    assert sorted(order) == list(range(len(rewards)))
    unknown = [reward is None or math.isnan(reward) for reward in rewards]
    keys = [(unknown[index], 0 if unknown[index] else -rewards[index], index) for index in order]
    assert keys == sorted(keys)


def test_rerank_gives_the_best_first_and_what_cannot_be_scored_last():
    reward = MetricReward(ToyScorer(), weights={"col": 1})
    captions = ["a star", "it will fail", "red star", "", "red", "blue star", "red star"]
    assert rerank(iter(captions), image=IMAGE, references=["A red star."], reward=reward) == [4, 2, 6, 0, 5, 1, 3]
    assert rerank([" ", ""], image=IMAGE, reward=reward) == [0, 1]
    assert rerank([], image=IMAGE, reward=reward) == []


@pytest.mark.parametrize(("references", "read"), [(["x", "y"], ["x", "y"]), ("x y", ["x y"])])
def test_image_and_references_reach_the_reward(references, read):
    seen = []

    def reward(completions, image, references):
        seen.extend(zip(completions, image, references, strict=True))
        return [1.0]

    assert rerank(["a star"], image=IMAGE, references=references, reward=reward) == [0]
    assert seen == [("a star", IMAGE, read)]


def test_each_distinct_caption_of_an_image_is_scored_once_and_a_wordless_one_never():
    scorer = ToyScorer()
    captions = [["red star", "red star", " ", "?!", "\u3164"], ["red star", "it will fail", "red"], [""], []]
    images = [Image.new("RGB", (4, 4), colour) for colour in ("red", "green", "blue", "white")]
    references = [None, ["A reference."], (), ()]
    rated = rate_candidates(captions, images, references, MetricReward(scorer, weights={"col": 1}))
    assert rated == [[0.5, 0.5, 0.0, 0.0, 0.0], [0.5, None, 1.0], [0.0], []]
    assert scorer.calls == [["red star", "red star", "it will fail", "red"]]


def some(completions, **_):
    return [None if "fail" in each else 1.0 for each in completions]


@pytest.mark.parametrize(
    ("reward", "reason"),
    [
        (MetricReward(ToyScorer()), "the caption says fail"),
        (MetricReward(ToyScorer()).aspects()[0], "the caption says fail"),
        (CombinedReward([MetricReward("length"), MetricReward(ToyScorer(), name="toy")]), "toy: the caption"),
        (some, "some gave None"),
    ],
)
def test_an_image_of_which_no_caption_is_scored_is_refused_with_the_reason(reward, reason):
    message = r"no caption of image 1 \(of 2 different ones\) has a reward.* The first, 'fail': " + reason
    with pytest.raises(InvalidSampleError, match=message):
        rate_candidates([["a"], ["", "fail", "fail too", "fail"]], ["a.png", "b.png"], [(), ()], reward)


class Short:
    def rewards(self, samples):
        return [1.0]


@pytest.mark.parametrize(
    ("captions", "images", "reward", "message"),
    [
        ([["a", 3]], ["a.png"], "length", "candidate must be a string"),
        (["abc"], ["a.png"], "length", "candidates must be a list, got"),
        ([["a"], ["b"]], ["a.png"], "length", "candidates of 2 images, 1 images"),
        ([["a", "b"]], ["a.png"], Short(), "gave 1 numbers for 2 captions"),
    ],
)
def test_what_cannot_be_rated_is_refused(captions, images, reward, message):
    with pytest.raises(InvalidSampleError, match=message):
        rate_candidates(captions, images, [()] * len(captions), reward)
