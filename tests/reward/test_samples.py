"""CaptionSample: what is accepted, what is refused, and how the refusal reads."""

from __future__ import annotations

import math
import pickle
import sys

import numpy as np
import pytest
import regex

from reward import CaptionSample
from reward.errors import CapRewardError, InvalidSampleError
from reward.samples import check_samples, is_blank, is_wordless


def test_none_and_no_references_are_the_same() -> None:
    assert CaptionSample("a dog", references=None).references == ()
    assert CaptionSample("a dog", references=[]).references == ()
    assert CaptionSample("a dog").references == ()


@pytest.mark.parametrize("references", [["a", "b"], ("a", "b"), np.array(["a", "b"]), iter(["a", "b"])])
def test_any_sequence_of_references_becomes_a_tuple(references: object) -> None:
    assert CaptionSample("a dog", references=references).references == ("a", "b")


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
    "text", ["", " \u3164", ".", "?!", "...", "\u2014", "\U0001f415\u200d\U0001f9ba", "\u0301", "\ufffd"]
)
def test_no_letter_and_no_number_is_no_word(text: str) -> None:
    assert is_wordless(text)


@pytest.mark.parametrize("text", ["a", "3.", "\u661f", "\u0915\u0941", "\uac00", "\u0663", "\u00bd", "\u200bx\u200b"])
def test_letters_and_numbers_of_any_script_are_words(text: str) -> None:
    assert not is_wordless(text)


@pytest.mark.parametrize("batch_size", [0, -1, "4", 1.5, True, math.nan])
def test_a_batch_size_is_a_positive_whole_number(batch_size: object) -> None:
    with pytest.raises(ValueError, match="batch_size must be at least 1, a whole number or None, got"):
        check_samples([], batch_size)


def test_half_an_emoji_is_refused() -> None:
    with pytest.raises(InvalidSampleError, match="candidate is not valid Unicode: a lone surrogate at position 6"):
        CaptionSample("a dog \ud83d")
    assert CaptionSample("a dog \U0001f415").candidate


@pytest.mark.parametrize("candidate", [None, 3, b"a dog", ["a dog"]])
def test_candidate_of_another_type_is_refused_by_name(candidate: object) -> None:
    with pytest.raises(InvalidSampleError, match=f"candidate must be a string, got {type(candidate).__name__}"):
        CaptionSample(candidate)


@pytest.mark.parametrize(
    ("references", "message"),
    [
        ("one string", "list of strings, got one string"),
        (3, "list of strings, got int"),
        (["a", None], r"references\[1\] must be a string, got NoneType"),
        (["a", "  "], r"references\[1\] is empty"),
        (["half an emoji \ud83d"], r"references\[0\] is not valid Unicode: a lone surrogate at position 14"),
    ],
)
def test_bad_references_are_refused(references: object, message: str) -> None:
    with pytest.raises(InvalidSampleError, match=message):
        CaptionSample("a dog", references=references)


def test_long_and_foreign_captions_are_kept_as_they_are() -> None:
    for text in ("x" * 100_000, "一只狗 🐕‍🦺 \u202eabc", "  padded  "):
        assert CaptionSample(text).candidate == text


def test_a_bad_value_does_not_flood_the_message() -> None:
    with pytest.raises(InvalidSampleError) as caught:
        CaptionSample(["x" * 100_000])
    assert len(str(caught.value)) < 300


def test_samples_are_frozen_and_survive_pickling() -> None:
    sample = CaptionSample("a dog", references=["b"])
    with pytest.raises(AttributeError):
        sample.candidate = "other"
    assert pickle.loads(pickle.dumps(sample)).references == ("b",)


def test_errors_are_both_ours_and_value_errors() -> None:
    assert issubclass(InvalidSampleError, CapRewardError)
    assert issubclass(InvalidSampleError, ValueError)
