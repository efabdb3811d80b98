"""Rules of preference data hold for any candidates."""

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward.data.words import words_of
from reward.decoding.preferences import PreferenceRules, choose_pairs
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
        assert better.score > worse.score
        assert better.score - worse.score >= rules.margin
        lengths = sorted((len(better.text), len(worse.text)))
        assert rules.length_ratio is None or lengths[1] <= rules.length_ratio * lengths[0] * (1 + 1e-12)
    assert all(shared(one.text, other.text) < 0.9 for one, other in itertools.combinations(used, 2))
    assert chosen(candidates, rules)[0] == pairs


@pytest.mark.parametrize("wrong", [{"margin": float("nan")}, {"per_image": 0}, {"length_ratio": 0.5}])
def test_wrong_rules_say_so(wrong):
    with pytest.raises(ConfigError, match=f"{next(iter(wrong))} must be a finite number of at least"):
        PreferenceRules(**wrong)


@pytest.mark.parametrize(
    ("scores", "rules", "reason"),
    [
        ([None, None], {}, "no caption with a score and a word"),
        ([0.1, None], {}, "only one caption once repetitions are left out"),
        ([0.1, 0.1], {}, "no two captions whose scores differ by the margin"),
        ([0.1, 0.2], {"length_ratio": 1.5}, "no two such captions of like length"),
        ([0.25, 0.75], {"margin": 0.5, "length_ratio": 1.5}, "no two such captions of like length"),  # just apart
    ],
)
def test_why_there_is_no_pair(scores, rules, reason):
    captions = ["A star.", "A long caption of a red star."]
    assert choose_pairs(captions, scores, PreferenceRules(**rules))[::2] == ([], reason)
