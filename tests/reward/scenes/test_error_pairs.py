"""Pairs of captions: one true, one with one error, and nothing else between them; the data set of such pairs."""

import itertools
import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from open_clip import SimpleTokenizer

from reward.backbones.clip_tokens import CLIP_TOKENS, clip_length, first_different_token
from reward.data.tagging import split_words
from reward.metaeval import load_benchmark
from reward.scenes import CATEGORIES, Oracle, Scene, make_pair, make_pair_dataset, render, sample_scene
from reward.scenes.error_pairs import SHORT_TOKENS, WORD_LEVEL

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


@settings(max_examples=120, deadline=None)
@given(rng=st.integers(0, 2**32).map(random.Random), category=st.sampled_from(CATEGORIES), long=st.booleans())
def test_one_caption_is_true_and_the_other_differs_from_it_in_false_sentences_alone(rng, category, long):
    scenes = (sample_scene(rng) for _ in range(200))
    scene, pair = next((s, p) for s in scenes if (p := make_pair(s, category, rng, long=long)) is not None)
    correct, incorrect = (ORACLE.score(caption.text, scene) for caption in (pair.correct, pair.incorrect))
    assert (pair.category, correct.precision, correct.faults, incorrect.faults) == (category, 1.0, 0, 0)
    assert incorrect.precision < 1.0
    assert {fact[0] for fact in incorrect.wrong} - {"spatial"} <= KINDS[category]
    assert all(fact[2] > 1 for fact in incorrect.wrong if (category, fact[0]) == ("count", "count"))  # no fair guess

    differing = 0
    for before, after in zip(pair.correct.sentences, pair.incorrect.sentences, strict=True):
        if [word.text for word in before.words] == [word.text for word in after.words]:
            continue
        differing += 1
        # A number is wrong in "the stars are big" too, which states none.
        assert category == "count" or not all(scene.is_true(fact) for fact in after.claims)
        assert len({word.text for word in after.words} - {word.text for word in before.words}) <= 6
    assert differing


def test_a_scene_that_cannot_be_wrong_in_that_way_gives_none():
    scene = replace(sample_scene(random.Random(0)), sign=None, action=None)
    for category in ("scene_text", "action", "actant_swap"):
        assert make_pair(scene, category, random.Random(0)) is None
    with pytest.raises(ValueError, match="unknown category 'mood'; known: spatial, "):
        make_pair_dataset(1, 0, long=True, categories=["mood"])


@pytest.fixture(scope="module", params=[False, True], ids=["short", "long"])
def rows(request):
    return [{"long": request.param, **row} for row in make_pair_dataset(2, 11, long=request.param)]


def test_errors_lie_where_they_should(rows):
    assert Counter(row["category"] for row in rows) == dict.fromkeys((*CATEGORIES, *WORD_LEVEL), 2)
    for row in rows:
        assert row["error_token"] == first_different_token(row["correct"], row["incorrect"])
        if not row["long"]:
            assert max(clip_length(row["correct"]), clip_length(row["incorrect"])) <= SHORT_TOKENS
        elif row["category"] != "retrieved":
            assert row["error_token"] >= CLIP_TOKENS


def test_the_correct_caption_is_true_of_the_picture_and_the_other_is_not(rows):
    for row in rows:
        scene = Scene.from_json(row["scene"])
        assert row["image"].tobytes() == render(scene).tobytes()
        correct, incorrect = (ORACLE.score(row[name], scene) for name in ("correct", "incorrect"))
        assert (correct.precision, correct.faults) == (1.0, 0)
        texts = (split_words(row[name]) for name in ("correct", "incorrect"))
        before, after = (Counter(token.word.lower() for token in text) for text in texts)
        if row["category"].startswith("shuffle"):
            assert before == after
        elif row["category"].startswith("repeat"):
            assert (after > before, set(after)) == (True, set(before))
        else:
            assert (incorrect.precision < 1, incorrect.faults) == (True, 0)


def test_rows_do_not_depend_on_one_another_and_share_no_scene_with_others_seeds_or_lengths():
    found = []
    for seed, long in itertools.product((0, 1), (False, True)):
        found += make_pair_dataset(2, seed, long=long, categories=["action", "count"])
    assert len({row["scene"] for row in found}) == len(found) == 2 * 2 * 2 * 2
    (alone,) = make_pair_dataset(1, 1, long=True, categories=["count"])
    assert alone in found


def test_tokens_are_counted_as_open_clip_writes_them():
    long = "There is a dog on the sand beside one boat. " * 10 + "Two men carry a net, and a sign says OPEN."
    late = long.replace("Two men", "Six men")
    tokenizer = SimpleTokenizer()
    for correct, incorrect in (("A red star.", "A red stars."), ("One.", "One. Two."), (long, late)):
        place = first_different_token(correct, incorrect)
        first, second = (tokenizer([text], context_length=200)[0].tolist() for text in (correct, incorrect))
        assert (first[:place], first[place] == second[place]) == (second[:place], False)
    assert clip_length(long) == tokenizer([long], context_length=200)[0].tolist().index(tokenizer.eot_token_id)
    assert tokenizer([long]).tolist() == tokenizer([late]).tolist()  # a CLIP cannot tell the two captions apart


@pytest.mark.parametrize("part", ["short", "long"])
def test_the_benchmark_of_scenes_holds_the_pairs_of_every_kind(part, monkeypatch):
    monkeypatch.setattr("reward.metaeval.benchmarks.scenes.EACH", 1)  # the whole takes long
    rows = load_benchmark("scenes-pairs", part=part).rows
    assert rows["label"].tolist() == [0] * 7
    assert rows["category"].tolist() == [*CATEGORIES]
    expected = make_pair_dataset(1, seed=7, long=part == "long", categories=["action"])[0]
    assert rows["captions"][2] == (expected["correct"], expected["incorrect"])
