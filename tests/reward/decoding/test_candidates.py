"""Candidates of several images, each distinct caption scored once."""

from __future__ import annotations

import pytest

from reward.decoding.selection import rate_candidates
from reward.errors import InvalidSampleError
from reward.rewards.combined_reward import CombinedReward
from reward.rewards.metric_reward import MetricReward
from tests.toys.toy_scorer import ToyScorer


def test_duplicates_are_scored_once_an_image_and_empty_ones_never():
    scorer = ToyScorer()
    rated = rate_candidates(
        [["red star", "red star", " ", "?!", "\u3164"], ["red star", "it will fail", "red"]],
        ["a.png", "b.png"],
        [None, ["A reference."]],
        MetricReward(scorer, weights={"col": 1}),
    )
    assert rated == [[0.5, 0.5, None, None, None], [0.5, None, 1.0]]
    assert scorer.calls == [["red star", "red star", "it will fail", "red"]]


def test_nothing_to_score():
    scorer = ToyScorer()
    assert rate_candidates([[""], []], ["a.png", "b.png"], [(), ()], MetricReward(scorer)) == [[None], []]
    assert rate_candidates([], [], [], MetricReward(scorer)) == []
    assert scorer.calls == []


NONE_SCORED = r"no caption of image 1 \(of 2 different ones\) has a reward.* The first, 'fail': "


@pytest.mark.parametrize(
    ("reward", "reason"),
    [
        (MetricReward(ToyScorer()), "the caption says fail"),
        (MetricReward(ToyScorer()).aspects()[0], "the caption says fail"),
        (CombinedReward([MetricReward("length"), MetricReward(ToyScorer(), name="toy")]), "toy: the caption"),
        (lambda completions, **_: [None if "fail" in each else 1.0 for each in completions], "function gave None"),
    ],
)
def test_an_image_of_which_no_caption_is_scored_is_refused_with_the_reason(reward, reason):
    with pytest.raises(InvalidSampleError, match=NONE_SCORED + reason):
        rate_candidates([["a"], ["", "fail", "fail too", "fail"]], ["a.png", "b.png"], [(), ()], reward)
    with pytest.raises(InvalidSampleError, match="metric 'toy' needs an image"):
        rate_candidates([["a star", "a"]], [None], [()], MetricReward(ToyScorer()))


@pytest.mark.parametrize("candidates", [[["a", 3]], [[None]], [[["a"]]]])
def test_a_candidate_that_is_no_string(candidates):
    with pytest.raises(InvalidSampleError, match="candidate must be a string"):
        rate_candidates(candidates, ["a.png"], [()], MetricReward(ToyScorer()))


def test_lengths_must_agree():
    with pytest.raises(InvalidSampleError, match="candidates of 2 images, 1 images"):
        rate_candidates([["a"], ["b"]], ["a.png"], [(), ()], MetricReward(ToyScorer()))


def test_a_reward_of_the_wrong_length_is_found_out():
    class Short:
        def rewards(self, samples):
            return [1.0]

    with pytest.raises(InvalidSampleError, match="gave 1 numbers for 2 captions"):
        rate_candidates([["a", "b"]], ["a.png"], [()], Short())
