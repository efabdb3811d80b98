"""Words by one rule, wherever words are counted or compared."""

import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward import RepetitionReward
from reward.data.sentences import split_sentences
from reward.data.words import count_words, pieces_of, words_of
from reward.decoding.preferences import PreferenceRules, choose_pairs


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


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(max_codepoint=0x2B0, exclude_characters="İ"), max_size=40))
def test_words_of_european_texts_are_what_they_were(text):
    assert words_of(text) == re.findall(r"\w+", unicodedata.normalize("NFC", text).lower())
    assert count_words(text) == len(text.split())
    assert "".join(pieces_of(text)) == (text if text.split() else "")


@pytest.mark.parametrize(
    ("looped", "honest"),
    [
        ("a red star lies on grass ", "a small dog runs after the ball of a child"),
        ("लाल तारा घास पर है ", "एक छोटा कुत्ता बच्चे की गेंद के पीछे दौड़ता है"),
        ("红色的星在草地上", "一只小狗正跟着孩子跑向远处那棵大树"),
        ("ดาวแดงบนหญ้า", "หมูวิ่งตามเด็กไปที่ใต้ต้น"),
    ],
)
def test_a_loop_is_a_loop_in_every_script(looped, honest):
    texts = [looped * 6, honest]
    loop, told = RepetitionReward(n=3)(["Describe."] * 2, texts)
    assert (loop or 0) < 0.5 < (told or 0)
    pairs, *_ = choose_pairs(texts, [0.0, 1.0], PreferenceRules(near=0.3))
    assert pairs  # two captions are not the same for having vowel signs


@pytest.mark.parametrize("mark", list("।॥。？！؟۔።។"))
def test_sentences_of_other_scripts_end_at_their_marks(mark):
    assert [body for body, _ in split_sentences(f"लाल तारा{mark} दो कुत्ते{mark}")] == [f"लाल तारा{mark}", f"दो कुत्ते{mark}"]
