"""Rules of preference data hold for any candidates."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward.data.words import words_of
from reward.decoding.preferences import PreferenceRules, choose_pairs, is_apart
from reward.errors import ConfigError

WORDS = st.lists(st.sampled_from(["a", "red", "blue", "star", "moon", "on", "grass"]), max_size=8).map(" ".join)
CAPTIONS = st.one_of(WORDS, WORDS.map(lambda text: text.upper() + "."), st.sampled_from(["", "...", "星と月。", None]))
SCORES = st.one_of(st.none(), st.just(float("nan")), st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.floats(-1, 1))
CANDIDATES = st.lists(st.tuples(CAPTIONS, SCORES), max_size=10)
RULES = st.builds(
    PreferenceRules,
    margin=st.sampled_from([0.0, 0.1, 0.5]),
    per_image=st.integers(1, 4),
    length_ratio=st.one_of(st.none(), st.floats(1, 3)),
    minimum=st.one_of(st.none(), st.floats(-1, 1)),
    near=st.floats(0.1, 1),
)


def chosen(candidates, rules):
    return choose_pairs([text for text, _ in candidates], [score for _, score in candidates], rules)


def shared(first, second):
    one, other = (Counter(itertools.pairwise(["", *words_of(text), ""])) for text in (first, second))
    return 2 * (one & other).total() / (one.total() + other.total())


@given(CANDIDATES, RULES)
def test_every_pair_keeps_the_rules(candidates, rules):
    pairs, left_out, reason = chosen(candidates, rules)
    assert (reason is None) == bool(pairs)
    assert len(pairs) <= rules.per_image
    used = [caption for pair in pairs for caption in pair]
    assert len(used) == len(set(used))
    assert left_out.total() + len(used) <= len(candidates)
    for better, worse in pairs:
        assert is_apart(better.score, worse.score, rules.margin)
        assert rules.minimum is None or better.score >= rules.minimum - 2e-7
        lengths = sorted((len(better.text), len(worse.text)))
        assert rules.length_ratio is None or lengths[1] <= rules.length_ratio * lengths[0] * (1 + 1e-12)
    assert all(shared(one.text, other.text) < rules.near for one, other in itertools.combinations(used, 2))
    assert chosen(candidates, rules)[0] == pairs


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_scores_that_are_exactly_the_margin_apart_make_a_pair(dtype):
    for place in range(10):
        low, high = (float(np.array(score / 10, dtype)) for score in (place, place + 1))
        rules = PreferenceRules(margin=0.1, minimum=round(high, 1))
        assert len(choose_pairs(["red", "blue"], [low, high], rules)[0]) == 1
        assert choose_pairs(["red", "blue"], [low, high - 0.0001], rules)[0] == []


def test_captions_that_share_less_than_near_are_not_the_same():
    captions = ["a red star on grass", "a red star on snow"]
    share = shared(*captions)
    assert choose_pairs(captions, [1, 2], PreferenceRules(near=share))[0] == []
    assert len(choose_pairs(captions, [1, 2], PreferenceRules(near=share + 0.01))[0]) == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"margin": float("nan")}, "margin must be"),
        ({"near": 1.5}, "near must be a number of at least 0 and at most 1, got 1.5"),
        ({"per_image": 0}, "per_image must be at least 1, got 0"),
        ({"minimum": float("inf")}, "minimum must be a finite number"),
    ],
)
def test_wrong_rules_say_so(wrong, message):
    with pytest.raises(ConfigError, match=message):
        PreferenceRules(**wrong)


@pytest.mark.parametrize(
    ("scores", "rules", "reason"),
    [
        ([None, None], {}, "no caption with a score and a word"),
        ([0.1, 0.2], {"minimum": 0.5}, "no caption that reaches the minimum"),
        ([0.1, 0.2], {"near": 0.1}, "only one caption once repetitions are left out"),
        ([0.1, 0.1], {}, "no two captions whose scores differ by the margin"),
        ([0.1, 0.2], {"length_ratio": 1.5}, "no two such captions of like length"),
    ],
)
def test_why_there_is_no_pair(scores, rules, reason):
    captions = ["A star.", "A long caption of a red star."]
    assert choose_pairs(captions, scores, PreferenceRules(**rules))[::2] == ([], reason)
