"""Negatives drawn on demand."""

import pickle
import random
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import pytest

from reward.corruptions.sampler import WORD_LEVEL, Negative, NegativeSampler
from reward.errors import ConfigError, InvalidSampleError

CAPTIONS = [f"A red star slowly pushes {number} rings. The sea is calm." for number in range(40)]
GIVEN = [[Negative(f"A blue star {row} {n}.", ("noun", "action")[n % 2]) for n in range(4)] for row in range(40)]
RETRIEVED = [[Negative(f"Some caption {n}.", "retrieved_hard") for n in range(30)] for _ in range(40)]


def make_sampler(**options):
    return NegativeSampler(CAPTIONS, {"given": GIVEN, "retrieved": RETRIEVED}, **options)


def draw(sampler, row):
    return sampler.draw(row, 2)


def test_a_draw_depends_on_seed_epoch_and_row_alone():
    first = [make_sampler(seed=1).draw(row, 2) for row in range(40)]
    sampler, rows = make_sampler(seed=1), list(range(40))
    random.Random(0).shuffle(rows)
    again = {row: sampler.draw(row, 2) for row in rows}
    assert [again[row] for row in range(40)] == first
    assert [make_sampler(seed=1).draw(row, 3) for row in range(40)] != first
    assert [make_sampler(seed=2).draw(row, 2) for row in range(40)] != first


def test_workers_draw_the_same():
    sampler = make_sampler(seed=5)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        drawn = list(pool.map(partial(draw, pickle.loads(pickle.dumps(sampler))), range(6)))
    assert drawn == [draw(sampler, row) for row in range(6)]


def test_sources_weigh_the_same_whatever_they_hold():
    sampler = make_sampler()
    for epoch in range(30):
        for row in range(40):
            sampler.draw(row, epoch)
    counts = sampler.counts
    assert counts.total() == 1200
    words = sum(counts[name] for name in WORD_LEVEL)
    for count in (words, counts["retrieved_hard"], counts["noun"] + counts["action"]):
        assert count / 1200 == pytest.approx(1 / 3, abs=0.05)
    assert all(counts[name] / words == pytest.approx(1 / 6, abs=0.06) for name in WORD_LEVEL)


def test_weights_categories_and_the_word_level_alone():
    sampler = make_sampler(weights={"words": 0, "given": 3})
    drawn = Counter(sampler.draw(row, epoch).category for row in range(40) for epoch in range(20))
    assert set(drawn) == {"noun", "action", "retrieved_hard"}
    assert drawn["retrieved_hard"] / 800 == pytest.approx(0.25, abs=0.05)
    sampler = make_sampler(categories=["noun", "shuffle_sentences"])
    assert {sampler.draw(row).category for row in range(40)} == {"noun", "shuffle_sentences"}
    sampler = NegativeSampler(["Two dogs run."])
    drawn = {sampler.draw(0, epoch).category for epoch in range(50)}
    assert drawn == {"repeat_noun", "repeat_verb", "shuffle_words"}


def test_where_there_is_nothing_the_next_source_is_tried():
    sampler = NegativeSampler(["🐶", "🐶"], {"given": [[Negative("A cat.", "noun")], []]})
    assert all(sampler.draw(0, epoch).text == "A cat." for epoch in range(10))
    assert sampler.draw(1) is None
    assert sampler.counts == {"noun": 10, "none": 1}
    wrong = [[Negative('"a  STAR."', "noun"), Negative("A ring.", "noun")]]
    sampler = NegativeSampler(["A star."], {"given": wrong}, weights={"words": 0})  # one equals its caption
    assert {sampler.draw(0, epoch).text for epoch in range(20)} == {"A ring."}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": {"gven": 1}}, "gven"),
        ({"weights": {"given": -1}}, "'given'"),
        ({"weights": {"given": float("nan")}}, "finite"),
        ({"weights": {"given": 0, "words": 0, "retrieved": 0}}, "every weight is 0"),
        ({"categories": "noun"}, "categories"),
        ({"categories": []}, "categories"),
    ],
)
def test_impossible_settings_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        make_sampler(**options)


def test_sources_of_another_length_and_rows_out_of_range_are_refused():
    with pytest.raises(ConfigError, match="'given' has 1 rows, but there are 2"):
        NegativeSampler(["a", "b"], {"given": [[]]})
    with pytest.raises(ConfigError, match="'words' is taken"):
        NegativeSampler(["a"], {"words": [[]]})
    with pytest.raises(IndexError, match="row 40 of 40"):
        make_sampler().draw(40)


@pytest.mark.parametrize(
    ("text", "category"), [("", "noun"), (" ", "noun"), (None, "noun"), ("a", ""), ("\ud83d", "noun")]
)
def test_a_negative_says_something(text, category):
    with pytest.raises(InvalidSampleError):
        Negative(text, category)
