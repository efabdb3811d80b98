"""Negatives drawn on demand."""

import random
from collections import Counter

import pytest

from reward.training.corruptions.sampler import WORD_LEVEL, Negative, draw_negative

CAPTION = "A red star slowly pushes two rings. The sea is calm."
GIVEN = [Negative(f"A blue star {n}.", ("noun", "action")[n % 2]) for n in range(4)]
RETRIEVED = [Negative(f"Some caption {n}.", "retrieved_hard") for n in range(30)]
ALL = (*WORD_LEVEL, "noun", "action", "retrieved_hard")


def draw(seed, caption=CAPTION, categories=ALL, given=(*GIVEN, *RETRIEVED)):
    return draw_negative(caption, categories, random.Random(f"row {seed}"), given)


def test_sources_and_categories_weigh_the_same_whatever_they_hold():
    counts = Counter(draw(seed).category for seed in range(1200))
    words = sum(counts[name] for name in WORD_LEVEL)
    assert words / 1200 == pytest.approx(1 / 2, abs=0.05)
    assert all(counts[name] / words == pytest.approx(1 / 6, abs=0.06) for name in WORD_LEVEL)
    for name in ("noun", "action", "retrieved_hard"):
        assert counts[name] / 1200 == pytest.approx(1 / 6, abs=0.04)


def test_only_the_categories_asked_for_and_possible_are_drawn():
    wanted = ["noun", "shuffle_sentences"]
    assert {draw(seed, categories=wanted).category for seed in range(40)} == set(wanted)
    drawn = {draw(seed, "Two dogs run.", given=None).category for seed in range(50)}
    assert drawn == {"repeat_noun", "repeat_verb", "shuffle_words"}
    assert {draw(seed, "🐶", given=[Negative("A cat.", "noun")]).text for seed in range(10)} == {"A cat."}
    assert draw(0, "🐶", given=[]) is None
    same = [Negative('"a  STAR."', "noun"), Negative("A ring.", "noun")]  # the first is the caption itself
    assert {draw(seed, "A star.", ["noun"], same).text for seed in range(20)} == {"A ring."}
