"""Winoground as published: examples beside a folder or an archive of images, a table, or the repository on the Hub."""

from __future__ import annotations

import io
import json
import zipfile

import pytest
from PIL import Image

from reward.errors import DataError
from reward.images import load_image
from reward.metaeval.benchmarks import load_benchmark

COLOURS = ["red", "green", "blue", "white"]


def example(number=0, **changed):
    row = {"id": number, "image_0": f"ex_{number}_img_0", "image_1": f"ex_{number}_img_1", "tag": "Noun"}
    row |= {"caption_0": "a dog on a man", "caption_1": "a man on a dog", "secondary_tag": "", "num_main_preds": 1}
    return row | {"collapsed_tag": "Object"} | changed


def png(colour):
    data = io.BytesIO()
    Image.new("RGB", (4, 3), colour).save(data, "PNG")
    return data.getvalue()


IMAGES = {f"ex_{k // 2}_img_{k % 2}.png": png(colour) for k, colour in enumerate(COLOURS)}


def write_all(folder, *rows, images="zip"):
    folder.mkdir(exist_ok=True)
    rows = rows or (example(0), example(1, collapsed_tag="Both"))
    (folder / "examples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if images == "zip":
        with zipfile.ZipFile(folder / "images.zip", "w") as archive:
            for name, data in IMAGES.items():
                archive.writestr(f"images/{name}", data)
    elif images:
        (folder / images).mkdir()
        for name, data in IMAGES.items():
            (folder / images / name).write_bytes(data)
    return folder


def colours(benchmark):
    """Of the image of every sample, and whether its caption is the second."""
    names = {Image.new("RGB", (1, 1), name).getpixel((0, 0)): name for name in COLOURS}
    return [(names[load_image(s.image).getpixel((0, 0))], s.candidate == "a man on a dog") for s in benchmark.samples()]


SHOWN = [(colour, second) for colour in COLOURS for second in (False, True)]


@pytest.mark.parametrize("inside", ["", "data"])
@pytest.mark.parametrize("images", ["zip", "images"])
def test_images_beside_the_examples(inside, images, tmp_path):
    write_all(tmp_path / inside, images=images)
    found = load_benchmark("winoground", tmp_path)
    assert colours(found) == SHOWN
    assert [(item.image_id, item.category) for item in found.items] == [("0", "Object"), ("1", "Both")]


def test_images_elsewhere(tmp_path):
    write_all(tmp_path, images="png")
    found = load_benchmark("winoground", tmp_path / "examples.jsonl", images=tmp_path / "png")
    assert colours(found) == SHOWN


def test_without_a_collapsed_tag_the_tag_is_the_category(tmp_path):
    row = example()
    del row["collapsed_tag"]
    (item,) = load_benchmark("winoground", write_all(tmp_path, row)).items
    assert item.category == "Noun"


def test_a_table_with_encoded_images(tmp_path):
    from datasets import Dataset, Features, Value
    from datasets import Image as Picture

    rows = [example(0), example(1)]
    for row in rows:
        row |= {name: {"bytes": IMAGES[f"{row[name]}.png"], "path": None} for name in ("image_0", "image_1")}
    text = {name: Value("string") for name in ("caption_0", "caption_1", "tag", "collapsed_tag")}
    features = Features({"id": Value("int32"), "image_0": Picture(), "image_1": Picture(), **text})
    (tmp_path / "data").mkdir()
    table = Dataset.from_list([{name: row[name] for name in features} for row in rows], features=features)
    table.to_parquet(tmp_path / "data" / "test-00000-of-00001.parquet")
    found = load_benchmark("winoground", tmp_path)
    assert colours(found) == SHOWN
    assert found.items[1].image_id == "1"


def test_it_is_taken_from_the_hub(hub, tmp_path):
    hub.add_folder("facebook/winoground", write_all(tmp_path / "data").parent, kind="datasets")
    assert colours(load_benchmark("winoground")) == SHOWN


def test_terms_are_named_where_the_hub_does_not_give_it(hub, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(DataError, match="cannot load 'facebook/winoground' from the Hub") as caught:
        load_benchmark("winoground")
    assert "whose terms have to be accepted there first" in str(caught.value)


def test_a_damaged_archive_or_one_without_an_image_is_refused(tmp_path):
    write_all(tmp_path, example(2))
    with pytest.raises(DataError, match=r"images.zip holds no image ex_2_img_0.png"):
        load_benchmark("winoground", tmp_path)
    whole = (tmp_path / "images.zip").read_bytes()
    (tmp_path / "images.zip").write_bytes(whole[:50])
    with pytest.raises(DataError, match=r"images.zip cannot be read"):
        load_benchmark("winoground", tmp_path)
