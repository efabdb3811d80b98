"""Words, sentences and parts of speech of captions: shuffled words and sentences, repeated keywords."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward.data.sentences import split_sentences
from reward.data.tagging import PARTS, join, split_words, tag_words
from reward.data.word_edits import repeat_words, shuffle_sentences, shuffle_words

LONG = 'A big red star, and two dogs, run quickly across a field. The sign says "OPEN". It is early in the morning.'
WORDS = [
    *("a", "A", "dog", "Dog.", "I", "İstanbul", "ß", "OPEN", "犬。", "🐶", "'", "...", "Dr.", "star,", "“red”", "e.g."),
    *("\n", "3", "ς", "x.y", "!?", "I'm", "i", "runs", "quickly."),
]
captions = st.one_of(st.text(max_size=40), st.lists(st.sampled_from(WORDS), max_size=10).map(" ".join))
seeds = st.integers(0, 3)


def bag(text):
    return Counter(token.word.casefold() for token in split_words(text) if token.word)


@given(captions, seeds)
@settings(max_examples=60, deadline=None)
def test_shuffled_words_and_sentences_are_the_same_words_in_another_order(text, seed):
    sentences = shuffle_sentences(text, random.Random(seed))
    assert sentences is None or (sentences != text and bag(sentences) == bag(text))
    shuffled = shuffle_words(text, random.Random(seed))
    assert shuffled == shuffle_words(text, random.Random(seed))
    if shuffled is None:
        assert len(bag(text)) <= 1
    else:
        assert shuffled != text
        assert bag(shuffled) == bag(text)
        before, after = ([(t.before, t.after, t.space) for t in split_words(each)] for each in (text, shuffled))
        assert before == after  # white space and punctuation stay where they were


@given(captions, seeds, st.sampled_from(PARTS))
@settings(max_examples=50, deadline=None)
def test_repeating_only_adds_copies_of_words_of_that_part(text, seed, part):
    repeated = repeat_words(text, random.Random(seed), part)
    assert repeated == repeat_words(text, random.Random(seed), part)
    found = [word for word, tag in tag_words(text) if tag == part]
    if repeated is None:
        assert not found
    else:
        added = bag(repeated) - bag(text)
        assert added
        assert set(added) <= {token.word.casefold() for word in found for token in split_words(word)}


@given(st.text())
@settings(max_examples=60, deadline=None)
def test_nothing_of_a_text_is_lost(text):
    assert join(split_words(text)) == text
    assert "".join(body + space for body, space in split_sentences(text)) == text


def test_capitals_stay_at_the_start_of_sentences():
    for seed in range(20):
        shuffled = shuffle_words(LONG, random.Random(seed))
        assert shuffled is not None
        starts = [body.lstrip("\"'")[0] for body, _ in split_sentences(shuffled)]
        assert all(start.isupper() for start in starts)
        assert "OPEN" in shuffled  # writing keeps its capitals
        capitalised = [token.word for token in split_words(shuffled) if token.word[:1].isupper()]
        assert len(capitalised) <= len(starts) + 1


@pytest.mark.parametrize(
    ("shuffle", "text", "orders"),
    [
        (shuffle_words, "Red star.", {"Star red."}),
        (shuffle_words, "the the the", {None}),
        (shuffle_sentences, "A dog.\n\nA cat.", {"A cat.\n\nA dog."}),  # lines keep their breaks
        (shuffle_sentences, "Star!", {None}),
        (  # a missing full stop stays at the end
            shuffle_sentences,
            "One. Two? Red",
            {"One. Red? Two", "Two? One. Red", "Two? Red. One", "Red? One. Two", "Red. Two? One"},
        ),
    ],
)
def test_all_orders_but_the_one_it_came_in(shuffle, text, orders):
    assert {shuffle(text, random.Random(seed)) for seed in range(60)} == orders


def test_copies_stand_before_the_punctuation_and_in_small_letters():
    copies = {repeat_words("Dogs, of course.", random.Random(seed), "noun") for seed in range(40)}
    assert "Dogs dogs, of course." in copies
    assert not any("Dogs Dogs" in str(text) for text in copies)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("A dog. It runs! Why?", ["A dog.", "It runs!", "Why?"]),
        ("Mr. Lee and Dr. J. Kim wave. It is 3.5 m long.", ["Mr. Lee and Dr. J. Kim wave.", "It is 3.5 m long."]),
        ('It says "Stop." A man waits.', ['It says "Stop."', "A man waits."]),
        ("a title\nA dog", ["a title", "A dog"]),
        ("It is 5 p.m. in the U.S. embassy. Mt. Fuji", ["It is 5 p.m. in the U.S. embassy.", "Mt. Fuji"]),
        ("1. A dog.\n2. **A cat.**\n", ["1. A dog.", "2. **A cat.**"]),
        ("A dog.\n\n---\n\nA cat.\n\n---", ["A dog.", "---\n\nA cat.\n\n---"]),
        ("Wait... 🔴", ["Wait...", "🔴"]),
    ],
)
def test_sentences(text, sentences):
    assert [body for body, _ in split_sentences(text)] == sentences


# Tagged by hand: n noun, v verb other than be, have, do and modals, a adjective, r adverb.
TAGGED = """
A young/a woman/n in a blue/a dress/n is slowly/r riding/v a bicycle/n along/- the river/n .
The man/n holds/v an old/a umbrella/n and looks/v at the camera/n while it snows/v .
Several colourful/a boats/n are tied/v to a narrow/a dock/n in the harbour/n .
A chef/n carefully/r cuts/v fresh/a vegetables/n on a large/a table/n .
It is and has been , it can be , it does .
"""


def test_parts_of_hand_tagged_captions():
    names = {"n": "noun", "v": "verb", "a": "adjective", "r": "adverb", "": "other"}
    for line in TAGGED.strip().splitlines():
        marked = [word.split("/") for word in line.split() if word not in ".,"]
        tags = tag_words(" ".join(word for word, *_ in marked) + ".")
        expected = [(word, names.get("".join(mark))) for word, *mark in marked]
        assert [pair for pair, (_, part) in zip(tags, expected, strict=True) if part] == [
            pair for pair in expected if pair[1]
        ]
