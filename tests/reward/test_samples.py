"""CaptionSample: what is accepted, what is refused, and how the refusal reads."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from reward import CaptionSample
from reward.errors import CapRewardError, InvalidSampleError


def test_none_and_no_references_are_the_same() -> None:
    assert CaptionSample("a dog", references=None).references == ()
    assert CaptionSample("a dog", references=[]).references == ()
    assert CaptionSample("a dog").references == ()


@pytest.mark.parametrize("references", [["a", "b"], ("a", "b"), np.array(["a", "b"]), iter(["a", "b"])])
def test_any_sequence_of_references_becomes_a_tuple(references: object) -> None:
    assert CaptionSample("a dog", references=references).references == ("a", "b")


@pytest.mark.parametrize("candidate", ["", " ", "\n\t", "\u3000"])
def test_blank_candidate_is_refused(candidate: str) -> None:
    with pytest.raises(InvalidSampleError, match="candidate is empty"):
        CaptionSample(candidate)


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
