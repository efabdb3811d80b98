"""Words by one rule, wherever words are counted or compared."""

import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward.data.sentences import split_sentences
from reward.data.words import count_words, pieces_of, words_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The dog's well-lit CAFE\u0301.", ["the", "dog", "s", "well", "lit", "café"]),
        ("हिन्दी में लाल तारा।", ["हिन्दी", "में", "लाल", "तारा"]),
        ("سَتاره می\u200cدرخشد", ["سَتاره", "می\u200cدرخشد"]),
        ("한국어 단어", ["한국어", "단어"]),
        ("赤いスター、3つ", ["赤", "い", "ス", "タ", "ー", "3", "つ"]),
        ("สีแดง", ["สี", "แ", "ด", "ง"]),
        ("A 红 star", ["a", "红", "star"]),
        ("❤\ufe0f 👨\u200d👩\u200d👧 x²", ["x²"]),
    ],
)
def test_words_are_whole_and_letters_where_there_are_no_blanks(text, words):
    assert words_of(text) == words


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(max_codepoint=0x2B0, exclude_characters="İ"), max_size=40))
def test_words_of_european_texts_are_what_they_were(text):
    assert words_of(text) == re.findall(r"\w+", unicodedata.normalize("NFC", text).lower())
    assert count_words(text) == len(text.split())
    assert "".join(pieces_of(text)) == (text if text.split() else "")


@pytest.mark.parametrize("mark", list("।॥。？！؟۔።។"))
def test_sentences_of_other_scripts_end_at_their_marks(mark):
    assert [body for body, _ in split_sentences(f"लाल तारा{mark} दो कुत्ते{mark}")] == [f"लाल तारा{mark}", f"दो कुत्ते{mark}"]
