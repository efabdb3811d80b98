"""The pictures of prompt data: which rows keep one, and that policy and reward see the same."""

import io
import logging
import re
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset, Image
from PIL import Image as PILImage
from trl.data_utils import prepare_multimodal_messages

from integrations.trl import make_prompt_dataset
from reward.data.images import encoded_image
from reward.errors import InvalidSampleError

RED = PILImage.new("RGB", (4, 4), "red")


@pytest.fixture
def photos(tmp_path):
    """Paths of a cut file, an empty one, a good one, and one that is not there."""
    paths = [tmp_path / f"{name}.jpg" for name in ("cut", "empty", "good", "gone")]
    RED.resize((99, 99)).save(paths[2])
    paths[0].write_bytes(paths[2].read_bytes()[:-99])
    paths[1].touch()
    return list(map(str, paths))


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("kind", ["paths", "images", "bytes", "lists"])
def test_rows_with_a_broken_image_are_left_out_and_named(kind, streamed, photos, caplog):
    """On which the policy's processor would stop the training."""
    cells = [[photos[2], path] for path in photos] if kind == "lists" else photos
    if kind == "bytes":  # as in a Parquet file of the Hub
        cells = [{"bytes": Path(path).read_bytes(), "path": path[-8:]} for path in (photos[0], photos[2])]
    given = Dataset.from_dict({"image": cells})
    given = given if kind in ("paths", "lists") else given.cast_column("image", Image())
    with caplog.at_level(logging.WARNING):
        (row,) = make_prompt_dataset(given.to_iterable_dataset() if streamed else given)
    count = "a row has" if streamed else f"{len(given) - 1} of {len(given)} rows have"
    assert re.search(
        rf"{count} no image that can be read in column 'image': .*cut\.jpg.* cannot be decoded", caplog.text
    )
    assert {image.size for image in row.get("images") or [row["image"]]} == {(99, 99)}
    with pytest.raises(InvalidSampleError, match=r"no image that can be read. The first: .*cut\.jpg"):
        make_prompt_dataset(given.select([0]))


@pytest.mark.parametrize("name", ["images", "image", "pages"])
def test_several_images_a_row(name, photos, tmp_path, caplog):
    """They become the column that TRL shows as several images; a row that lacks one is left out."""
    red, good = str(tmp_path / "red.png"), photos[2]
    RED.save(red)
    given = Dataset.from_dict({name: [[red, good], [red], [], [None, red]]})
    for data in (given, given.to_iterable_dataset()):
        shown = list(make_prompt_dataset(data, image_column=name))
        assert [[image.size for image in row["images"]] for row in shown] == [[(4, 4), (99, 99)], [(4, 4)]]
    assert "2 of 4 rows have no image that can be read" in caplog.text
    messages = prepare_multimodal_messages(shown[0]["prompt"], images=shown[0]["images"])
    assert [block["type"] for block in messages[0]["content"]] == ["image", "image", "text"]
    with pytest.raises(InvalidSampleError, match=r"no image that can be read\. The first: a row has none"):
        make_prompt_dataset(given.select([2, 3]), image_column=name)


CLEAR = io.BytesIO()
PILImage.new("RGBA", (4, 4), (0, 0, 0, 0)).save(CLEAR, "PNG")
GREY = encoded_image(PILImage.fromarray(np.full((4, 4), 30_000, np.uint16)))


@pytest.mark.parametrize("form", ["bytes", "paths", "lists", "stream"])
def test_policy_and_reward_see_one_picture(form, tmp_path):
    """What a policy's processor sees is `convert("RGB")`, which makes 16-bit grey white and transparency black."""
    cells = [GREY, CLEAR.getvalue(), encoded_image(RED)]
    if form != "bytes":
        for name, data in zip("abc", cells, strict=True):
            (tmp_path / name).write_bytes(data)
        cells = [str(tmp_path / name) for name in "abc"]
    given = Dataset.from_dict({"image": [[cell] for cell in cells] if form == "lists" else cells, "number": [1, 2, 3]})
    given = given.to_iterable_dataset() if form == "stream" else given
    data = list(make_prompt_dataset(given))
    shown = [row["images"][0] if form == "lists" else row["image"] for row in data]
    assert [image.convert("RGB").getpixel((0, 0)) for image in shown] == [(117,) * 3, (255,) * 3, (255, 0, 0)]
    assert [row["number"] for row in data] == [1, 2, 3]
