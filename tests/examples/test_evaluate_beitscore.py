"""Metrics on pairs of held-out scenes: the truth, a metric that sees words only, and one that sees nothing."""

from __future__ import annotations

import random

import numpy as np
import pytest

from examples.research.evaluate_beitscore import OTHER_IMAGE, SPOILED, measure_pairs, measure_spoiling
from reward.corruptions.words import corrupt_words
from reward.scenes import CATEGORIES, Oracle, make_dataset, make_pair_dataset
from reward.scenes.benchmark import WORD_LEVEL

SEED, PAIRS = 21, 5


def count_words(samples):
    return np.array([len(sample.candidate.split()) for sample in samples], dtype=float)


def see_nothing(samples):
    return np.zeros(len(samples))


@pytest.fixture(scope="module")
def truth():
    """Precision of what a caption says about the picture it comes with."""
    scenes = {
        row["image"].tobytes(): row["scene"]
        for long in (False, True)
        for row in make_pair_dataset(PAIRS, SEED, long=long)
    }
    oracle = Oracle()
    return lambda samples: np.array([oracle.score(s.candidate, scenes[s.image.tobytes()]).precision for s in samples])


@pytest.fixture(scope="module")
def part(truth):
    metrics = {"truth": truth, "words": count_words, "nothing": see_nothing}
    return measure_pairs(metrics, pairs=PAIRS, seed=SEED, controls=["truth", "words"], resamples=100)


def test_the_truth_tells_every_error_and_one_that_sees_nothing_is_at_chance(part):
    for length in ("short", "long"):
        found = part.errors[length]
        assert {name: interval.value for name, interval in found["truth"].accuracy.items()} == dict.fromkeys(
            (*CATEGORIES, "mean"), 1.0
        )
        nothing = found["nothing"].accuracy["mean"]
        assert (nothing.value, nothing.low, nothing.high) == (0.5, 0.5, 0.5)
        assert found["nothing"].ties == found["nothing"].pairs == dict.fromkeys(sorted(CATEGORIES), PAIRS)
        assert set(part.words[length]["truth"].pairs) == set(WORD_LEVEL)
        assert part.words[length]["words"].accuracy["repeat_noun"].value == 0.0
        assert part.words[length]["truth"].accuracy["retrieved"].value == 1.0


def test_with_another_scenes_image_the_truth_is_lost_and_what_words_tell_is_not(part):
    for length in ("short", "long"):
        found = part.errors[length]
        assert set(found) == {"truth", f"truth{OTHER_IMAGE}", "words", f"words{OTHER_IMAGE}", "nothing"}
        assert found[f"truth{OTHER_IMAGE}"].accuracy["mean"].value < 0.8
        assert found[f"words{OTHER_IMAGE}"].accuracy == found["words"].accuracy
    short, long = part.errors["short"], part.errors["long"]
    assert short["truth"].minus(short[f"truth{OTHER_IMAGE}"])["mean"].low > 0
    gap = short["truth"].minus(long["truth"])["mean"]  # as independent
    assert (gap.value, gap.low, gap.high) == (0, 0, 0)


def test_what_spoiling_does_to_the_mean_score(part):
    changes = part.changes["long"]
    assert set(changes) == {"truth", "words", "nothing"}
    assert changes["words"]["shuffle_words"].value == 0
    assert changes["words"]["repeat_adjective"].low > 0
    rows = make_dataset(12, SEED)
    found = measure_spoiling({"words": count_words}, rows, resamples=100)["words"]
    assert set(found) == set(SPOILED)
    assert found["shuffle_sentences"].value == 0
    longer = [
        len(changed.split()) - len(text.split())
        for row, text in enumerate(rows["cand"])
        if (changed := corrupt_words(text, random.Random(f"0 repeat_noun {row}"), "repeat_noun")) is not None
    ]
    assert found["repeat_noun"].value == pytest.approx(np.mean(longer))
