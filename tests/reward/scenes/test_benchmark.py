"""The pairs of held-out scenes: where the error is, what it is, and that they are always the same."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from reward.backbones.clip_tokens import CLIP_TOKENS, clip_length, first_different_token
from reward.corruptions.tagging import split_words
from reward.scenes import CATEGORIES, Oracle, Scene, make_pair_dataset, render, sample_scene
from reward.scenes.benchmark import SHORT_TOKENS, WORD_LEVEL

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


def test_scenes_of_a_training_stream_are_others():
    trained = {sample_scene(random.Random(f"beit match 1 {step}")).to_json() for step in range(200)}
    assert not trained & set(make_pair_dataset(5, 1, long=False, categories=CATEGORIES)["scene"])
