"""Groups by image content and references; rows restore the order."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from PIL import Image

from reward import CaptionSample
from reward.scoring.grouping import group_samples


def _png(colour: str) -> bytes:
    buffer = BytesIO()
    Image.new("RGB", (8, 8), colour).save(buffer, "PNG")
    return buffer.getvalue()


def test_equal_content_in_different_objects_is_one_group(tmp_path: Path) -> None:
    (tmp_path / "red.png").write_bytes(_png("red"))
    samples = [
        CaptionSample("a", _png("red"), ["r"]),
        CaptionSample("b", bytes(bytearray(_png("red"))), ["r"]),
        CaptionSample("c", tmp_path / "red.png", ("r",)),
        CaptionSample("d", _png("blue"), ["r"]),
        CaptionSample("a", _png("red"), ["r"]),
    ]
    groups = group_samples(samples)
    assert [group.rows for group in groups] == [{"a": [0, 4], "b": [1], "c": [2]}, {"d": [3]}]
    assert groups[0].image_key != groups[1].image_key


def test_references_and_their_order_tell_groups_apart() -> None:
    references = [(), ("r",), ("r", "s"), ("s", "r"), ()]
    groups = group_samples([CaptionSample("a", None, refs) for refs in references])
    assert [group.references for group in groups] == [(), ("r",), ("r", "s"), ("s", "r")]
    assert groups[0].rows == {"a": [0, 4]}


def test_pictures_that_nobody_looks_at_are_not_opened() -> None:
    samples = [CaptionSample("a", "absent.png"), CaptionSample("b", "other.png")]
    assert [group.rows for group in group_samples(samples, use_images=False)] == [{"a": [0], "b": [1]}]


def test_an_unreadable_image_is_a_group_with_an_error() -> None:
    groups = group_samples([CaptionSample("a", "absent.png"), CaptionSample("b", _png("red"))])
    assert groups[0].error is not None
    assert "absent.png" in groups[0].error
    assert groups[1].error is None
