"""Rules of decoding against their definitions: simulated, integrated, or by brute force."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from scipy import integrate, stats

from reward.decoding.choosing import expected_gain, poisson_count, survivors
from reward.decoding.mbr import expected_utilities, minimum_bayes_risk
from reward.decoding.selection import CaptionRatings, rank, rerank, soft_rank
from reward.errors import ConfigError, InvalidSampleError
from reward.metrics.words.scorer import unigram_f1, word_counts
from tests.toy_scorer import ToyScorer

REWARDS = [0.3, 0.9, None, 0.6, 0.1]


def test_soft_choice_at_temperature_0_is_best_of_n():
    assert soft_rank(REWARDS, 0.0) == rank(REWARDS)
    assert soft_rank(REWARDS, 1e-12, np.random.default_rng(0)) == rank(REWARDS)
    with pytest.raises(ConfigError, match="at least 0"):
        soft_rank(REWARDS, -1.0)


@pytest.mark.parametrize("temperature", [0.3, 1.0, math.inf])
def test_a_soft_choice_has_the_probabilities_of_its_definition(temperature):
    rng, draws = np.random.default_rng(0), 4000
    counts = Counter(soft_rank(REWARDS, temperature, rng)[0] for _ in range(draws))
    known = [index for index, reward in enumerate(REWARDS) if reward is not None]
    weights = np.exp([REWARDS[index] / temperature for index in known])  # all 1 at infinity: uniform
    expected = draws * weights / weights.sum()
    assert set(counts) == set(known)
    assert stats.chisquare([counts[index] for index in known], expected).pvalue > 0.01


def test_a_soft_order_of_captions():
    captions = ["red star here", "red", "red star"]
    assert rerank(captions, reward="length", temperature=0.0) == rerank(captions, reward="length") == [0, 2, 1]
    orders = {tuple(rerank(captions, reward="length", temperature=5.0, seed=seed)) for seed in range(60)}
    assert len(orders) == 6
    assert rerank(captions, reward="length", temperature=5.0, seed=3) == rerank(
        captions, reward="length", temperature=5.0, seed=3
    )


def test_poisson_counts_have_the_mean_that_is_asked_for():
    rng = np.random.default_rng(0)
    counts = [poisson_count(4, rng) for _ in range(4000)]
    assert min(counts) == 1
    assert abs(np.mean(counts) - 4) < 4 * math.sqrt(3 / 4000)
    assert abs(np.var(counts) - 3) < 0.4
    with pytest.raises(ConfigError, match="at least 1"):
        poisson_count(0.5, rng)


@pytest.mark.parametrize("rewards", [[0.2, 0.4, 0.6], [1.0, 1.0, 5.0, 2.0, 2.5], [0.3, None, 0.9, float("nan")]])
def test_the_expected_gain_is_that_of_the_normal_distribution(rewards):
    known = [reward for reward in rewards if reward is not None and not math.isnan(reward)]
    normal, best = stats.norm(np.mean(known), np.std(known, ddof=1)), max(known)
    gain, _ = integrate.quad(lambda value: (value - best) * normal.pdf(value), best, best + 12 * normal.std())
    assert expected_gain(rewards) == pytest.approx(gain * len(known) / len(rewards), abs=1e-9)


def test_nothing_is_gained_from_equal_rewards_and_one_says_nothing():
    assert expected_gain([0.5, 0.5, 0.5]) == 0.0
    assert expected_gain([0.5]) == expected_gain([None, None]) == math.inf
    assert expected_gain([0.0, 100.0, 0.0, 0.0]) >= 0.0


@pytest.mark.parametrize(
    ("alpha", "least", "kept"), [(0.0, 1, [0, 1, 2, 3, 4]), (0.5, 1, [0, 1, 3]), (0.9, 1, [1]), (0.9, 2, [1, 3])]
)
def test_the_best_survive_a_rejection(alpha, least, kept):
    assert survivors(REWARDS, alpha, least) == kept


def test_captions_are_rated_once_over_several_rounds():
    scorer = ToyScorer()
    ratings = CaptionRatings(["a.png", "b.png"], [(), ()], scorer)
    ratings([["red"], ["red", "star"]])
    again = ratings([["red", "red star"], []])
    assert scorer.calls == [["red", "red", "star"], ["red star"]]
    assert ratings.scored == [2, 2]
    assert again[0][0] is not None
    ratings([["it will fail"], []])  # others of the image have a reward
    with pytest.raises(InvalidSampleError, match="no caption of image 0 "):
        CaptionRatings(["a.png"], [()], scorer)([["it will fail"]])


WORDS = ["red", "star", "blue", "circle", "left"]


def sampled(seed, n):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, size=rng.integers(1, 5))) for _ in range(n)]


def brute_force(captions):
    f1 = [[unigram_f1(word_counts(own), word_counts(other)) for other in captions] for own in captions]
    return [sum(row) / len(captions) for row in f1]


@pytest.mark.parametrize("seed", range(5))
def test_mbr_by_definition(seed):
    captions = [*sampled(seed, 7), "red star", "red star"]  # one comes up twice
    expected = brute_force(captions)
    assert expected_utilities(captions) == (pytest.approx(expected), 0)
    assert minimum_bayes_risk(captions) == rank(expected_utilities(captions)[0])
    metric, compared = expected_utilities(captions, utility=ByMetric())
    assert metric == pytest.approx(expected)
    assert compared == len(set(captions)) ** 2  # equal pairs are compared once
    order = np.random.default_rng(seed).permutation(len(captions))
    shuffled, _ = expected_utilities([captions[index] for index in order])
    assert [expected[index] for index in order] == pytest.approx(shuffled)


class ByMetric:
    """The utility of words as a reward that reads references."""

    def rewards(self, samples):
        return [
            max(unigram_f1(word_counts(sample.candidate), word_counts(known)) for known in sample.references)
            for sample in samples
        ]


def test_aggregated_references():
    captions = sampled(3, 30)
    exact, fast = expected_utilities(captions)[0], expected_utilities(captions, aggregate=True)[0]
    assert stats.spearmanr(exact, fast).statistic > 0.9
    _, compared = expected_utilities(captions, utility=ByMetric(), aggregate=True)
    assert compared == len(set(captions))
    assert expected_utilities(["red star"] * 3, utility=ByMetric(), aggregate=True) == ([1.0] * 3, 1)


def test_hybrid_and_empty_captions():
    captions = ["a red star", "red", "a red star on the left of a circle", "", "a red star"]
    assert minimum_bayes_risk(captions)[-1] == 3  # without a word, it loses to all
    assert minimum_bayes_risk(captions, reward="length", keep=1)[0] == 2
    assert expected_utilities(["", "?"]) == ([None, None], 0)
    with pytest.raises(ConfigError, match="belong together"):
        minimum_bayes_risk(captions, keep=2)
    with pytest.raises(InvalidSampleError, match=r"the utility of 'a red star' .* could not be computed: .*image"):
        minimum_bayes_risk(captions, utility=ToyScorer())
