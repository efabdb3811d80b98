"""Pairs of captions: one true, one with one error, and nothing else between them; the data set of such pairs."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward.backbones.clip_tokens import CLIP_TOKENS, clip_length, first_different_token
from reward.scenes import CATEGORIES, Oracle, Scene, make_pair, make_pair_dataset, render, sample_scene
from reward.scenes.pairs import SHORT_TOKENS, WORD_LEVEL
from reward.training.corruptions.tagging import split_words

seeds = st.integers(min_value=0, max_value=2**32)
categories = st.sampled_from(CATEGORIES)
ORACLE = Oracle()
# Kinds of facts that an error of a category makes false, besides spatial relations that follow from positions.
KINDS = {
    "spatial": {"position"},
    "actant_swap": {"action"},
    "action": {"action"},
    "noun": {"object", "colour", "size", "pattern", "count", "position", "action"},  # all that is said of the object
    "attribute": {"colour", "size", "pattern"},
    "count": {"count"},
    "scene_text": {"text"},
}


def made(seed, category, long):
    """A scene and a pair; draws scenes until one offers the error."""
    rng = random.Random(f"test pairs {seed} {category} {long}")
    while True:
        scene = sample_scene(rng)
        pair = make_pair(scene, category, rng, long=long)
        if pair is not None:
            return scene, pair, rng


def lower(caption):
    return [word.text.lower() for word in caption.words()]


def is_subsequence(words, others):
    rest = iter(others)
    return all(word in rest for word in words)


@settings(max_examples=120, deadline=None)
@given(seed=seeds, category=categories, long=st.booleans())
def test_one_caption_is_true_and_the_other_differs_from_it_in_wrong_words_alone(seed, category, long):
    scene, pair, _ = made(seed, category, long)
    correct, incorrect = ORACLE.score(pair.correct.text, scene), ORACLE.score(pair.incorrect.text, scene)
    assert (correct.precision, correct.faults) == (1.0, 0)
    assert incorrect.precision < 1.0
    assert incorrect.faults == 0
    assert pair.category == category
    assert {fact[0] for fact in incorrect.wrong} - {"spatial"} <= KINDS[category]

    # They are alike but for the words that are wrong.
    before, after = lower(pair.correct), lower(pair.incorrect)
    assert len(pair.correct.sentences) == len(pair.incorrect.sentences)
    assert pair.wrong
    assert list(pair.wrong) == sorted(set(pair.wrong))
    kept = [word for index, word in enumerate(after) if index not in pair.wrong]
    assert is_subsequence(kept, before)
    start = 0
    for one, other in zip(pair.correct.sentences, pair.incorrect.sentences, strict=True):
        end = start + len(other.words)
        wrong = [index for index in pair.wrong if start <= index < end]
        assert len(wrong) <= 6  # "to the right of the stars"
        # A number is wrong in "the stars are big" too, which states none.
        assert not wrong or category == "count" or not all(scene.is_true(fact) for fact in other.claims)
        assert bool(wrong) or [word.text for word in one.words] == [word.text for word in other.words]
        start = end


def test_a_scene_that_cannot_be_wrong_in_that_way_gives_none():
    scene = sample_scene(random.Random(0))
    assert make_pair(replace(scene, sign=None), "scene_text", random.Random(0)) is None
    for category in ("action", "actant_swap"):
        assert make_pair(replace(scene, action=None), category, random.Random(0)) is None


# The data set of pairs

ALL = (*CATEGORIES, *WORD_LEVEL)


@pytest.fixture(scope="module", params=[False, True], ids=["short", "long"])
def rows(request):
    return request.param, list(make_pair_dataset(4, 11, long=request.param))


def test_errors_lie_where_they_should(rows):
    long, rows = rows
    assert Counter(row["category"] for row in rows) == dict.fromkeys(ALL, 4)
    for row in rows:
        assert row["error_token"] == first_different_token(row["correct"], row["incorrect"])
        if not long:
            assert max(clip_length(row["correct"]), clip_length(row["incorrect"])) <= SHORT_TOKENS
        elif row["category"] != "retrieved":
            assert row["error_token"] >= CLIP_TOKENS


def test_the_correct_caption_is_true_of_the_picture_and_the_other_is_not(rows):
    _, rows = rows
    oracle = Oracle()
    for row in rows:
        scene = Scene.from_json(row["scene"])
        assert row["image"].tobytes() == render(scene).tobytes()
        correct, incorrect = oracle.score(row["correct"], scene), oracle.score(row["incorrect"], scene)
        assert (correct.precision, correct.faults) == (1.0, 0)
        if row["category"] in CATEGORIES or row["category"] == "retrieved":
            assert incorrect.precision < 1
            assert incorrect.faults == 0


def test_word_level_errors_change_order_or_number_of_words_only(rows):
    _, rows = rows
    for row in rows:
        words = ([token.word.lower() for token in split_words(row[name])] for name in ("correct", "incorrect"))
        before, after = map(Counter, words)
        if row["category"].startswith("shuffle"):
            assert before == after
        elif row["category"].startswith("repeat"):
            assert after > before
            assert set(after) == set(before)


def test_rows_do_not_depend_on_one_another_and_share_no_scene_with_others_seeds_or_lengths():
    many = list(make_pair_dataset(3, 5, long=True, categories=["action", "count"]))
    (alone,) = make_pair_dataset(1, 5, long=True, categories=["count"])
    assert next(row for row in many if row["category"] == "count") == alone
    found = [
        row["scene"]
        for seed in (0, 1)
        for long in (False, True)
        for row in make_pair_dataset(2, seed, long=long, categories=CATEGORIES)
    ]
    assert len(set(found)) == len(found) == 2 * 2 * 2 * len(CATEGORIES)
