"""CaptionSample and the columns of a sample: what is accepted, what is refused, and how the refusal reads."""

from __future__ import annotations

import math
import pickle
import re
import sys

import numpy as np
import pytest
import regex

from reward import CaptionSample
from reward.errors import CapRewardError, InvalidSampleError
from reward.samples import check_samples, find_column, is_blank, is_wordless, one_image, read_references


@pytest.mark.parametrize("references", [["a", "b"], ("a", "b"), np.array(["a", "b"]), iter(["a", "b"])])
def test_any_sequence_of_references_becomes_a_tuple(references: object) -> None:
    assert CaptionSample("a dog", references=references).references == ("a", "b")


@pytest.mark.parametrize("candidate", ["x" * 100_000, "一只狗 🐕‍🦺 \u202eabc", "  padded  "])
def test_captions_are_kept_as_they_are_and_need_no_references(candidate: str) -> None:
    for sample in (CaptionSample(candidate), *(CaptionSample(candidate, references=none) for none in (None, []))):
        assert (sample.candidate, sample.references) == (candidate, ())


@pytest.mark.parametrize("candidate", ["", " ", "\n\t", "\u3000", "\u3164", "\u2800 \u2800", "\ufe0f\u034f"])
def test_blank_candidate_is_refused(candidate: str) -> None:
    with pytest.raises(InvalidSampleError, match="candidate is empty"):
        CaptionSample(candidate)


def test_what_unicode_ignores_by_default_shows_nothing() -> None:
    ignorable = regex.compile(r"\p{Default_Ignorable_Code_Point}")
    shown = [
        f"U+{code:04X}" for code in range(sys.maxunicode) if ignorable.match(chr(code)) and not is_blank(chr(code))
    ]
    assert shown == []
    assert not [text for text in ("a", ".", "\u0301", "\U0001f415", "\u2801", "\uac00") if is_blank(text)]


@pytest.mark.parametrize(
    ("texts", "wordless"),
    [
        (["", " \u3164", ".", "?!", "...", "\u2014", "\U0001f415\u200d\U0001f9ba", "\u0301", "\ufffd"], True),
        (["a", "3.", "\u661f", "\u0915\u0941", "\uac00", "\u0663", "\u00bd", "\u200bx\u200b"], False),
    ],
)
def test_a_word_has_a_letter_or_a_number_of_any_script(texts: list[str], wordless: bool) -> None:
    assert [text for text in texts if is_wordless(text) != wordless] == []


@pytest.mark.parametrize("batch_size", [0, -1, "4", 1.5, True, math.nan])
def test_a_batch_size_is_a_positive_whole_number(batch_size: object) -> None:
    with pytest.raises(ValueError, match="batch_size must be at least 1, a whole number or None, got"):
        check_samples([], batch_size)


@pytest.mark.parametrize(
    ("candidate", "references", "message"),
    [
        ("a dog \ud83d", (), "candidate is not valid Unicode: a lone surrogate at position 6"),
        (None, (), "candidate must be a string, got NoneType"),
        (3, (), "candidate must be a string, got int"),
        (b"a dog", (), "candidate must be a string, got bytes"),
        (["x" * 100_000], (), "candidate must be a string, got list"),
        ("a dog", "one string", "list of strings, got one string"),
        ("a dog", 3, "list of strings, got int"),
        ("a dog", ["a", None], "references[1] must be a string, got NoneType"),
        ("a dog", ["a", "  "], "references[1] is empty"),
        ("a dog", ["half an emoji \ud83d"], "references[0] is not valid Unicode: a lone surrogate at position 14"),
    ],
)
def test_bad_values_are_refused_by_name(candidate: object, references: object, message: str) -> None:
    with pytest.raises(InvalidSampleError, match=re.escape(message)) as caught:
        CaptionSample(candidate, references=references)
    assert isinstance(caught.value, CapRewardError)
    assert isinstance(caught.value, ValueError)
    assert len(str(caught.value)) < 300


def test_samples_are_frozen_and_survive_pickling() -> None:
    sample = CaptionSample("a dog", references=["b"])
    with pytest.raises(AttributeError):
        sample.candidate = "other"
    assert pickle.loads(pickle.dumps(sample)).references == ("b",)


@pytest.mark.parametrize(
    ("role", "columns", "found"),
    [
        ("image", ["file_name", "image", "images"], "images"),
        ("image", ["file_name", "image"], "image"),
        ("image", ["id", "image_path"], "image_path"),
        ("image", ["id"], None),
        ("references", ["refs", "references"], "references"),
        ("references", ["refs"], "refs"),
        ("candidate", ["cand", "caption", "candidate"], "candidate"),
        ("candidates", ["captions"], "captions"),
    ],
)
def test_known_names_win_over_synonyms(role: str, columns: list[str], found: str | None) -> None:
    assert find_column(role, columns, option="option=") == found


@pytest.mark.parametrize(
    ("value", "image"), [("a.png", "a.png"), (["a.png"], "a.png"), ([None], None), (" ", None), ([""], None)]
)
def test_a_list_of_one_image_is_that_image(value: object, image: object) -> None:
    assert one_image(value) == image
    with pytest.raises(InvalidSampleError, match="the row has 2 images"):
        one_image([value, "b.png"])


@pytest.mark.parametrize(
    ("value", "references"),
    [("a", ("a",)), (["a", "", None, " \n"], ("a",)), ([""], ()), ("", ()), (np.array(["a", "b"]), ("a", "b"))],
)
def test_a_string_is_one_reference_and_blank_ones_are_left_out(value: object, references: tuple[str, ...]) -> None:
    assert read_references(value) == references
    with pytest.raises(InvalidSampleError, match="references"):
        read_references([*value, b"a"])
