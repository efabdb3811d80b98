"""Winoground as published: examples beside an archive of images, and the repository on the Hub."""

from __future__ import annotations

import io
import zipfile

import pytest
from PIL import Image

from reward.errors import DataError
from reward.images import load_image
from reward.metaeval.benchmarks import load_benchmark
from tests.reward.metaeval.small_benchmarks import write_files
from tests.toys.pictures import png

COLOURS = ["red", "green", "blue", "white"]
SHOWN = [(colour, second) for colour in COLOURS for second in (False, True)]


def example(number=0, **changed):
    row = {"id": number, "image_0": f"ex_{number}_img_0", "image_1": f"ex_{number}_img_1", "tag": "Noun"}
    row |= {"caption_0": "a dog on a man", "caption_1": "a man on a dog", "secondary_tag": "", "num_main_preds": 1}
    return row | {"collapsed_tag": "Object"} | changed


IMAGES = {f"ex_{k // 2}_img_{k % 2}.png": png(colour) for k, colour in enumerate(COLOURS)}


def packed():
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, image in IMAGES.items():
            archive.writestr(f"images/{name}", image)
    return data.getvalue()


def write_all(folder, *rows, images="zip"):
    files = {"images.zip": packed()} if images == "zip" else {f"elsewhere/{name}": IMAGES[name] for name in IMAGES}
    return write_files(folder, {"examples.jsonl": rows or (example(0), example(1, collapsed_tag="Both")), **files})


def colours(benchmark):
    """Of the image of every sample, and whether its caption is the second."""
    names = {Image.new("RGB", (1, 1), name).getpixel((0, 0)): name for name in COLOURS}
    return [(names[load_image(s.image).getpixel((0, 0))], s.candidate == "a man on a dog") for s in benchmark.samples()]


@pytest.mark.parametrize("inside", ["", "data"])
@pytest.mark.parametrize("images", ["zip", "elsewhere"])
def test_images_beside_the_examples_or_elsewhere(inside, images, tmp_path):
    folder = write_all(tmp_path / inside, images=images)
    found = load_benchmark("winoground", tmp_path, images=folder / images if images == "elsewhere" else None)
    assert colours(found) == SHOWN
    assert list(zip(found.rows["image_id"], found.rows["category"], strict=True)) == [("0", "Object"), ("1", "Both")]
    row = example()
    del row["collapsed_tag"]
    assert load_benchmark("winoground", write_all(tmp_path / "other", row)).rows["category"].tolist() == ["Noun"]


def test_it_is_taken_from_the_hub_whose_terms_are_named(hub, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(DataError, match="cannot read facebook/winoground, item 1: ") as caught:
        load_benchmark("winoground")
    assert "whose terms have to be accepted there first" in str(caught.value)
    hub.add_folder("facebook/winoground", write_all(tmp_path / "repository" / "data").parent, kind="datasets")
    assert colours(load_benchmark("winoground")) == SHOWN


def test_a_damaged_archive_or_one_without_an_image_is_refused(tmp_path):
    write_all(tmp_path, example(2))
    with pytest.raises(DataError, match=r"item 1: KeyError: 'ex_2_img_0\.png'"):
        load_benchmark("winoground", tmp_path)
    (tmp_path / "images.zip").write_bytes(packed()[:50])
    with pytest.raises(DataError, match="item 1: BadZipFile"):
        load_benchmark("winoground", tmp_path)
