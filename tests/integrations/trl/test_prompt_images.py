"""The pictures of prompt data: which rows keep one, and that policy and reward see the same."""

from __future__ import annotations

import io
import logging
import re

import numpy as np
import pytest
from datasets import Dataset, Image
from PIL import Image as PILImage
from trl.data_utils import prepare_multimodal_messages

from integrations.trl import make_prompt_dataset
from reward.errors import InvalidSampleError
from reward.images import encoded_image

RED, BLUE = (PILImage.new("RGB", (4, 4), colour) for colour in ("red", "blue"))
PNG = encoded_image(RED)


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


def broken_rows(kind, tmp_path):
    """A cut file, an empty one, a good one, and one that is not there."""
    names = ["cut.jpg", "empty.jpg", "red.jpg", "gone.jpg"]
    paths = [str(tmp_path / name) for name in names]
    RED.resize((99, 99)).save(paths[2])
    data = (tmp_path / "red.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(data[:-99])
    (tmp_path / "empty.jpg").touch()
    if kind == "bytes":  # as in a Parquet file of the Hub
        cells = [{"bytes": each, "path": name} for each, name in zip([data[:-99], b"no", data], names, strict=False)]
        return Dataset.from_dict({"image": cells}).cast_column("image", Image())
    data = Dataset.from_dict({"image": [[paths[2], path] for path in paths] if kind == "lists" else paths})
    return data.cast_column("image", Image()) if kind == "images" else data


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("kind", ["paths", "images", "bytes", "lists"])
def test_rows_with_a_broken_image_are_left_out_and_named(kind, streamed, tmp_path, caplog):
    """On which the policy's processor would stop the training."""
    given = broken_rows(kind, tmp_path)
    count = "a row has" if streamed else f"{len(given) - 1} of {len(given)} rows have"
    read = [given.to_iterable_dataset() if streamed else given, given.select([0, 1])]
    with caplog.at_level(logging.WARNING):
        (row,) = make_prompt_dataset(read[0])
    assert re.search(rf"{count} a broken image in column 'image': .*cut\.jpg.* cannot be decoded", caplog.text)
    shown = row["images"] if kind == "lists" else [row["image"]]
    assert {image.size for image in shown} == {(99, 99)}
    with pytest.raises(InvalidSampleError, match=r"no image that can be read. The first: .*cut\.jpg"):
        make_prompt_dataset(read[1])
    assert len(make_prompt_dataset(given, check_images=False)) == len(given)


GREY = encoded_image(PILImage.fromarray(np.full((4, 4), 30_000, np.uint16)))
CLEAR = io.BytesIO()
PILImage.new("RGBA", (4, 4), (0, 0, 0, 0)).save(CLEAR, "PNG")
ODD = {"16 bits": (GREY, (117,) * 3), "transparent": (CLEAR.getvalue(), (255,) * 3), "plain": (PNG, (255, 0, 0))}


@pytest.mark.parametrize("form", ["bytes", "paths", "lists", "stream", "unchecked"])
def test_policy_and_reward_see_one_picture(form, tmp_path):
    """What a policy's processor sees is `convert("RGB")`, which makes 16-bit grey white and transparency black."""
    cells = [data for data, _ in ODD.values()]
    if form != "bytes":
        for name, data in zip("abc", cells, strict=True):
            (tmp_path / name).write_bytes(data)
        cells = [str(tmp_path / name) for name in "abc"]
    given = Dataset.from_dict({"image": [[cell] for cell in cells] if form == "lists" else cells, "number": [1, 2, 3]})
    given = given.to_iterable_dataset() if form == "stream" else given
    data = list(make_prompt_dataset(given, check_images=form != "unchecked"))
    shown = [row["images"][0] if form == "lists" else row["image"] for row in data]
    assert [image.convert("RGB").getpixel((0, 0)) for image in shown] == [colour for _, colour in ODD.values()]
    assert [row["number"] for row in data] == [1, 2, 3]


@pytest.mark.parametrize("name", ["images", "image", "file_name", "pages"])
def test_several_images_a_row(name, tmp_path, caplog):
    """Lists of images become the column that TRL shows as several images; a row that lacks one is left out."""
    for image, colour in ((RED, "red"), (BLUE, "blue")):
        image.save(tmp_path / f"{colour}.png")
    paths = [str(tmp_path / "red.png"), str(tmp_path / "blue.png")]
    given = Dataset.from_dict({name: [paths, paths[:1], [], [None, paths[0]]]})
    data = make_prompt_dataset(given, image_column="pages" if name == "pages" else None)
    seen = [[image.getpixel((0, 0)) for image in row] for row in data["images"]]
    assert seen == [[(255, 0, 0), (0, 0, 255)], [(255, 0, 0)]]
    assert "2 of 4 rows have no image" in caplog.text
    messages = prepare_multimodal_messages(data[0]["prompt"], images=data[0]["images"])
    assert [block["type"] for block in messages[0]["content"]] == ["image", "image", "text"]
    streamed = list(make_prompt_dataset(given.to_iterable_dataset(), image_column=name))
    assert [len(row["images"]) for row in streamed] == [2, 1]
    assert streamed[0]["images"][1].getpixel((0, 0)) == (0, 0, 255)


@pytest.mark.parametrize("cell", [1, [1]])
def test_a_column_of_numbers_holds_no_images(cell):
    data = Dataset.from_dict({"image": [cell]})
    with pytest.raises(InvalidSampleError, match="must hold images or paths"):
        make_prompt_dataset(data)
    with pytest.raises(InvalidSampleError, match="image"):
        list(make_prompt_dataset(data.to_iterable_dataset()))
