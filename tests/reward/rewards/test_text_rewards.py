"""Rewards of the words alone: lengths in a band, and repetition."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trl.rewards import get_soft_overlong_punishment

from reward import LengthReward, RepetitionReward
from tests.toys.trainer import call


def words(count):
    return " ".join(f"word{number}" for number in range(count))


def test_it_is_trls_soft_overlong_punishment_but_for_1():
    lengths = [1, 79, 80, 81, 90, 99, 100, 101, 200]
    theirs = get_soft_overlong_punishment(max_completion_len=100, soft_punish_cache=20)
    expected = [value + 1 for value in theirs(completion_ids=[[0] * length for length in lengths])]
    assert call(LengthReward(high=80, margin=20), list(map(words, lengths))) == pytest.approx(expected)


def test_lengths_relative_to_the_references_count_the_ends_in():
    reward = LengthReward(0.5, 2, relative=True)
    references = [[words(4), words(6)]] * 5 + [[]]
    captions = [words(count) for count in (2, 3, 10, 11)] + ["?!", "a b c"]
    assert call(reward, captions, references=references) == [0, 1, 1, 0, 0, None]
    assert call(LengthReward(0.5, 2, relative=True, margin=1), [words(5)], references=[[words(2)]]) == [0.5]


@settings(max_examples=40, deadline=None)
@given(count=st.integers(1, 120), n=st.integers(1, 3), window=st.integers(3, 50))
def test_different_words_are_no_repetition_and_one_word_is_all_of_it(count, n, window):
    reward = RepetitionReward(n, window=window)
    size = min(count, window) - n + 1
    assert call(reward, [words(count), "red " * count]) == pytest.approx([1.0, 1 / size if size > 0 else 1.0])
