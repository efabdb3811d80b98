"""One table of column names, for commands, data set helpers and rewards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reward.errors import DataError, InvalidSampleError
from reward.samples import find_column, one_image, read_references


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
    ("columns", "options", "message"),
    [
        (["file_name", "img"], {}, "image could be any of file_name, img: choose one with option="),
        (["pictures"], {"given": "picture"}, "'picture', which is no column. Did you mean 'pictures'?"),
        (["text"], {"needed_by": "metric 'vela'"}, "metric 'vela' needs a column with the image, but none is named"),
        ([], {"needed_by": "scoring"}, "The columns are: none."),
    ],
)
def test_what_cannot_be_found_names_the_columns_and_the_option(
    columns: list[str], options: dict[str, str], message: str
) -> None:
    with pytest.raises(DataError, match="option=") as caught:
        find_column("image", columns, option="option=", **options)  # type: ignore[arg-type]
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("value", "image"), [("a.png", "a.png"), (["a.png"], "a.png"), ([None], None), (" ", None), ([""], None)]
)
def test_a_list_of_one_image_is_that_image(value: Any, image: Any) -> None:
    assert one_image(value) == image


def test_several_images_in_a_row_are_refused() -> None:
    with pytest.raises(InvalidSampleError, match="the row has 2 images"):
        one_image(["a.png", "b.png"])


@pytest.mark.parametrize(
    ("value", "references"),
    [("a", ("a",)), (["a", "", None, " \n"], ("a",)), ([""], ()), ("", ()), (np.array(["a", "b"]), ("a", "b"))],
)
def test_a_string_is_one_reference_and_blank_ones_are_left_out(value: Any, references: tuple[str, ...]) -> None:
    assert read_references(value) == references


@pytest.mark.parametrize("value", [5, b"a", ["a", 5]])
def test_what_is_no_text_is_refused(value: Any) -> None:
    with pytest.raises(InvalidSampleError, match="references"):
        read_references(value)
