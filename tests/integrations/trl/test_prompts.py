"""Data sets of images and references become what TRL's trainers take."""

from __future__ import annotations

import logging

import pytest
from datasets import Dataset, Features, Image, List, Value
from PIL import Image as PILImage
from trl.data_utils import is_conversational, prepare_multimodal_messages

from integrations.trl import make_prompt_dataset
from reward.errors import InvalidSampleError

RED, BLUE = (PILImage.new("RGB", (4, 4), colour) for colour in ("red", "blue"))


def rows(**columns):
    columns.setdefault("image", [RED, BLUE])
    columns.setdefault("refs", [["A red square.", "Red."], ["A blue square."]])
    features = {"image": Image(), "refs": List(Value("string"))}
    guessed = Dataset.from_dict({name: values for name, values in columns.items() if name not in features})
    return Dataset.from_dict(columns, Features({**features, **guessed.features}))


def test_prompt_image_and_references():
    data = make_prompt_dataset(rows(score=[0.1, 0.2]), "Describe it.", system="Be brief.", references_column="refs")
    assert set(data.column_names) == {"prompt", "image", "references", "score"}
    row = data[1]
    assert row["prompt"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Describe it."}]
    assert row["references"] == ["A blue square."]
    assert row["image"].getpixel((0, 0)) == (0, 0, 255)
    assert is_conversational(row)
    messages = prepare_multimodal_messages(row["prompt"], images=[row["image"]])
    assert [block["type"] for block in messages[1]["content"]] == ["image", "text"]


def test_paths_are_read_as_images_and_rows_without_one_left_out(tmp_path, caplog):
    """A processor that gets None among the images stops the training, so such rows must not reach it."""
    RED.save(tmp_path / "red.png")
    path = str(tmp_path / "red.png")
    data = Dataset.from_dict({"file_name": [None, path, path], "caption": ["Lost.", "A red square.", None]})
    with caplog.at_level(logging.WARNING):
        data = make_prompt_dataset(data, image_column="file_name", references_column="caption")
    assert "1 of 3 rows have no image in column 'file_name'" in caplog.text
    assert data[0]["image"].getpixel((0, 0)) == (255, 0, 0)
    assert data["references"][:] == [["A red square."], None]
    with pytest.raises(InvalidSampleError, match="no image in any row"):
        make_prompt_dataset(Dataset.from_dict({"image": [None]}).cast_column("image", Image()))


def test_a_prompt_column_is_replaced_and_the_given_data_set_left_alone():
    given = rows(prompt=["old", "older"])
    data = make_prompt_dataset(given, "new")
    assert data[0]["prompt"] == [{"role": "user", "content": "new"}]
    assert given[0]["prompt"] == "old"
    assert "references" not in data.column_names


def test_an_empty_data_set_stays_empty():
    assert len(make_prompt_dataset(rows().select([]), references_column="refs")) == 0


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({}, {"image_column": "picture"}, "no column 'picture'; it has"),
        ({}, {"references_column": "captions"}, "no column 'captions'; it has"),
        ({"score": [1, 2]}, {"references_column": "score"}, "list of captions"),
        ({"picture": ["a", "b"]}, {"image_column": "picture"}, "should become 'image'"),
        ({"images": [["a"], ["b"]]}, {}, "TRL would show the column 'images'"),
    ],
)
def test_columns_that_do_not_fit(columns, options, message):
    with pytest.raises(InvalidSampleError, match=message):
        make_prompt_dataset(rows(**columns), **options)


def test_a_column_of_numbers_holds_no_images():
    with pytest.raises(InvalidSampleError, match="must hold images or paths"):
        make_prompt_dataset(Dataset.from_dict({"image": [1, 2]}))
