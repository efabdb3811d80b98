"""CaptionSample, columns, ScoreTable and weights: what is accepted, what is refused, and how the refusal reads."""

import math
import re
import sys

import numpy as np
import pytest
import regex

from reward import CaptionSample
from reward.aspect_weights import normalise_weights
from reward.data.samples import check_batch_size, find_column, is_blank, is_wordless
from reward.data.score_table import ScoreTable
from reward.errors import CapRewardError, ConfigError, InvalidSampleError, WeightsError


def test_what_unicode_ignores_by_default_shows_nothing():
    everything = "".join(map(chr, range(sys.maxunicode)))
    assert is_blank("".join(regex.findall(r"\p{Default_Ignorable_Code_Point}", everything)))
    assert is_blank(" \n\t\u3000\u2800")
    assert not [text for text in ("a", ".", "\u0301", "\U0001f415", "\u2801", "\uac00") if is_blank(text)]


@pytest.mark.parametrize(
    ("texts", "wordless"),
    [
        (["", " \u3164", ".", "?!", "\u2014", "\U0001f415\u200d\U0001f9ba", "\u0301", "\ufffd"], True),
        (["a", "3.", "\u661f", "\u0915\u0941", "\uac00", "\u0663", "\u00bd", "\u200bx\u200b"], False),
    ],
)
def test_a_word_has_a_letter_or_a_number_of_any_script(texts, wordless):
    assert [text for text in texts if is_wordless(text) != wordless] == []


@pytest.mark.parametrize("batch_size", [0, "4", 1.5, True])
def test_a_batch_size_is_a_positive_whole_number(batch_size):
    with pytest.raises(ValueError, match="batch_size must be at least 1, a whole number or None, got"):
        check_batch_size(batch_size)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"candidate": " \u3164"}, "candidate is empty"),
        ({"candidate": "a dog \ud83d"}, "candidate is not valid Unicode: a lone surrogate at position 6"),
        ({"candidate": ["x" * 100_000]}, "candidate must be a string, got list"),
        ({"candidate": "a", "caption": "b"}, "candidate and caption are two names of one text"),
        ({"caption": "a", "question": " "}, "question must be a text that is not blank"),
        ({"caption": "a", "references": 3}, "references must be a list, got int"),
        ({"caption": "a", "references": {"text": ["A."]}}, "references must be a list, got a dict with the keys text"),
        ({"caption": "a", "references": '{"en": "A."}'}, "references must be a list, got a dict with the keys en"),
        ({"caption": "a", "references": ["a", 3]}, "references[1] must be a string, got int"),
        ({"caption": "a", "references": ["\ud83d"]}, "references[0] is not valid Unicode: a lone surrogate"),
    ],
)
def test_bad_values_are_refused_by_name(fields, message):
    with pytest.raises(InvalidSampleError, match=re.escape(message)) as caught:
        CaptionSample(**fields)
    assert isinstance(caught.value, CapRewardError)
    assert isinstance(caught.value, ValueError)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("role", "columns", "found"),
    [
        ("image", ["file_name", "image", "images"], "images"),
        ("image", ["id", "image_path", "photo"], "image_path"),
        ("image", ["id"], None),
        ("references", ["refs", "references"], "references"),
        ("candidate", ["text", "Caption"], "Caption"),
    ],
)
def test_known_names_win_over_synonyms(role, columns, found):
    assert find_column(role, columns, option="option=") == found


ASPECTS = ("descriptiveness", "relevance", "fluency")
ALIASES = {"desc": "descriptiveness", "rel": "relevance", "flu": "fluency"}


@pytest.mark.parametrize(
    ("weights", "normalised"),
    [
        ({"desc": 1, "rel": np.float32(2), "fluency": 1}, [0.25, 0.5, 0.25]),
        (None, [1 / 3] * 3),
        ({"desc": 1e-320, "rel": 1e-320}, [0.5, 0.5, 0]),
    ],
)
def test_weights_are_normalised(weights, normalised):
    assert normalise_weights(weights, ASPECTS, ALIASES).tolist() == normalised


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"colour": 1}, "unknown aspect 'colour'; known: descriptiveness, relevance, fluency, desc, rel, flu"),
        ({"desc": 1, "descriptiveness": 1}, "'descriptiveness' twice, as 'desc' and 'descriptiveness'"),
        *[({"desc": bad}, f"must be a finite number, got {bad!r:.4}") for bad in (math.nan, 10**400, "1", True)],
        *[(bad, "sum to a positive number") for bad in ({}, {"desc": 1, "rel": -2})],
        ([1, 2, 3], "weights must be a dict"),
    ],
)
def test_bad_weights_are_refused(weights, message):
    with pytest.raises(WeightsError, match=message):
        normalise_weights(weights, ASPECTS, ALIASES)


def test_combine_is_the_weighted_mean_and_nan_stays_where_it_counts():
    table = ScoreTable(np.array([[0.2, 0.4, 0.9], [0.5, np.nan, 0.1]]), ASPECTS, {1: "no image"}, aliases=ALIASES)
    assert table.combine() == pytest.approx([0.5, np.nan], nan_ok=True)
    assert table.combine({"descriptiveness": 1, "flu": 3}) == pytest.approx([0.725, 0.2])
    assert table.column("rel").tolist()[0] == table.column("relevance").tolist()[0] == 0.4
    with pytest.raises(ConfigError, match="no aspect is named 'colour'; known: descriptiveness, relevance, fluency, d"):
        table.column("colour")
