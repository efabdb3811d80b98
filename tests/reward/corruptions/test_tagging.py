"""Words, sentences and parts of speech of captions."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward.corruptions.tagging import PARTS, join, split_words, tag_words
from reward.errors import ConfigError
from reward.scenes.describe import Style, describe
from reward.scenes.graph import COLOURS, sample_scene
from reward.scenes.language import ING, PAST, SIZE_WORDS, SYNONYMS, plural
from reward.sentences import split_sentences

# Tagged by hand: n noun, v verb other than be, have, do and modals, a adjective, r adverb.
TAGGED = """
A young/a woman/n in a blue/a dress/n is slowly/r riding/v a bicycle/n along/- the river/n .
Two brown/a horses/n stand/v behind a wooden/a fence/n while it snows/v .
The man/n holds/v an old/a umbrella/n and looks/v at the camera/n .
Several colourful/a boats/n are tied/v to a narrow/a dock/n in the harbour/n .
A black/a cat/n sleeps/v peacefully/r on a soft/a pillow/n near the window/n .
A chef/n carefully/r cuts/v fresh/a vegetables/n on a large/a table/n .
Children/n are playing/v football/n in a muddy/a field/n under dark/a clouds/n .
A red/a bus/n drives/v quickly/r past the tall/a building/n with broken/a windows/n .
"""


@given(st.text())
@settings(max_examples=200, deadline=None)
def test_nothing_of_a_text_is_lost(text):
    assert join(split_words(text)) == text
    assert "".join(body + space for body, space in split_sentences(text)) == text


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", []),
        ("One", ["One"]),
        ("A dog. It runs! Why?", ["A dog.", "It runs!", "Why?"]),
        ("Mr. Lee and Dr. J. Kim wave. It is 3.5 m long.", ["Mr. Lee and Dr. J. Kim wave.", "It is 3.5 m long."]),
        ('It says "Stop." A man waits.', ['It says "Stop."', "A man waits."]),
        ("红色的星。蓝色的圆。", ["红色的星。", "蓝色的圆。"]),
        ("a title\nA dog", ["a title", "A dog"]),
        ("Wait... what?", ["Wait...", "what?"]),
        ("It is 5 p.m. in the U.S. embassy. Mt. Fuji", ["It is 5 p.m. in the U.S. embassy.", "Mt. Fuji"]),
        ("1. A dog.\n2. **A cat.**\n", ["1. A dog.", "2. **A cat.**"]),
        ("A dog. ***", ["A dog. ***"]),
        ("A dog.\n\n---\n\nA cat.\n\n---", ["A dog.", "---\n\nA cat.\n\n---"]),
        ("?!", ["?!"]),
        ("Two. 🔴", ["Two.", "🔴"]),
    ],
)
def test_sentences(text, sentences):
    assert [body for body, _ in split_sentences(text)] == sentences


def test_parts_of_hand_tagged_captions():
    names = {"n": "noun", "v": "verb", "a": "adjective", "r": "adverb"}
    right = total = 0
    for line in TAGGED.strip().splitlines():
        marked = [word.split("/") for word in line.split() if word != "."]
        tags = tag_words(" ".join(word for word, *_ in marked) + ".")
        assert [word for word, _ in tags] == [word for word, *_ in marked]
        for (_, part), (_, *mark) in zip(tags, marked, strict=True):
            if mark != ["-"]:
                total += 1
                right += part == names.get("".join(mark), "other")
    assert right / total > 0.95
    auxiliaries = tag_words("It is and has been, it can be, it does.")
    assert {part for _, part in auxiliaries} == {"other"}


def test_parts_of_the_words_of_the_scenes():
    parts = {plural(word): "noun" for words in SYNONYMS.values() for word in words}
    parts |= {word: "noun" for words in SYNONYMS.values() for word in words}
    parts |= dict.fromkeys(COLOURS, "adjective") | dict.fromkeys([*ING.values(), *PAST.values()], "verb")
    parts |= {word: "adjective" for words in SIZE_WORDS.values() for word in words}
    total, right = Counter(), Counter()
    for seed in range(60):
        rng = random.Random(seed)
        caption = describe(sample_scene(rng), rng, style=Style(split=0.5)).text
        for word, part in tag_words(caption):
            wanted = parts.get(word.lower())
            total[wanted] += 1
            right[wanted] += part == wanted
    assert right["noun"] == total["noun"] > 300
    assert right["verb"] == total["verb"] > 20
    assert right["adjective"] / total["adjective"] > 0.9  # "little" reads as an adverb now and then


@pytest.mark.parametrize("text", ["", " ", "...", "🐶", "\u200b", "犬が走る。", "AAAA", "x" * 5000, "don't", "café №5"])
def test_odd_texts_are_tagged(text):
    assert len(tag_words(text)) == sum(bool(token.word) for token in split_words(text))
    assert all(part in (*PARTS, "other") for _, part in tag_words(text))


def test_own_tagger_sees_one_sentence_at_a_time():
    seen = []

    def tagger(words):
        seen.append(list(words))
        return ["noun" if word == "Hund" else None for word in words]

    words = [("Ein", "other"), ("Hund", "noun"), ("Er", "other"), ("läuft", "other")]
    assert tag_words('Ein "Hund". Er läuft', tagger) == words
    assert seen == [["Ein", '"', "Hund", '"', "."], ["Er", "läuft"]]
    with pytest.raises(ConfigError, match="1 parts for 2 words"):
        tag_words("Ein Hund", lambda words: ["noun"])
