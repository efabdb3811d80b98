"""FOIL with COCO's captions, and nocaps-FOIL: originals before foils, references without the original."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reward.errors import DataError
from reward.metaeval.benchmarks import load_benchmark


def foils(**changed):
    """Two originals, one with two foils; and one without."""
    dog = {"id": 7, "foil_id": 1, "image_id": 42, "target_word": "dog", "foil_word": "cat", "foil": True}
    none = {"foil": False, "target_word": "ORIG", "foil_word": "ORIG", "foil_id": 0}
    rows = [
        dog | {"caption": "A cat runs."},
        none | {"id": 7, "image_id": 42, "caption": "A dog runs."},
        dog | {"foil_id": 2, "foil_word": "horse", "caption": "A horse runs."},
        none | {"id": 8, "image_id": 42, "caption": "Grass."},
    ]
    images = [{"id": 42, "file_name": "COCO_val2014_000000000042.jpg"}]
    return {"info": {}, "licenses": [], "images": images, "annotations": rows} | changed


def write_foil(folder, data=None, captions=None, *, inside=""):
    texts = ["One dog.", "A dog  runs. ", "", "A brown dog.", "A lawn.", "Fur.", "Outside."]
    rows = [{"id": number, "image_id": 42, "caption": text} for number, text in enumerate(texts)]
    (folder / inside).mkdir(exist_ok=True)
    (folder / "foilv1.0_test_2017.json").write_text(json.dumps(foils() if data is None else data))
    (folder / inside / "captions_val2014.json").write_text(json.dumps(captions or {"annotations": rows}))
    return folder


@pytest.mark.parametrize(
    ("part", "references"),
    [(None, ("One dog.", "A brown dog.", "A lawn.", "Fur.")), ("1-ref", ("One dog.",))],
)
def test_each_foil_is_paired_with_its_original(part, references, tmp_path):
    found = load_benchmark("foil", write_foil(tmp_path, inside="annotations"), part=part)
    assert [item.captions for item in found.items] == [("A dog runs.", "A cat runs."), ("A dog runs.", "A horse runs.")]
    assert {item.label for item in found.items} == {0}
    assert {item.references for item in found.items} == {references}
    assert {item.image for item in found.items} == {tmp_path / "COCO_val2014_000000000042.jpg"}
    assert {item.image_id for item in found.items} == {"42"}


def test_the_file_itself_may_be_named(tmp_path):
    write_foil(tmp_path)
    (tmp_path / "val2014").mkdir()
    found = load_benchmark("foil", tmp_path / "foilv1.0_test_2017.json", images=tmp_path / "val2014", limit=1)
    assert found.items[0].image == tmp_path / "val2014" / "COCO_val2014_000000000042.jpg"


def test_coco_captions_are_needed(tmp_path):
    (write_foil(tmp_path) / "captions_val2014.json").unlink()
    with pytest.raises(DataError, match=r"holds no captions_val2014.json or annotations/.*cocodataset.org"):
        load_benchmark("foil", tmp_path)


def changed_row(**changed):
    return foils(annotations=[*foils()["annotations"][:2], foils()["annotations"][2] | changed])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (foils(annotations={}), "annotations must be a list"),
        ({"images": []}, "has no field 'annotations'"),
        ({"annotations": []}, "has no field 'images'"),
        (foils(images=[{"id": "42", "file_name": "a"}]), "image 1: id must be a whole number, got '42'"),
        (foils(images=[{"id": 42}]), "image 1 has no field 'file_name'; it has: id"),
        (foils(images=[]), "annotation 1: there is no image with the id 42"),
        (foils(annotations=[3]), "annotation 1 must be a JSON object, got int"),
        (changed_row(foil="True"), "annotation 3: foil must be true or false, got 'True'"),
        (changed_row(caption=None), "annotation 3: caption must be text"),
        (changed_row(id=9), "annotation 3: the id 9 has no caption that is no foil"),
        (changed_row(foil=False), "annotation 3: the id 7 has two captions that are no foils"),
        (
            foils(images=[*foils()["images"], {"id": 5, "file_name": "b"}])
            | {"annotations": [row | {"image_id": 5} for row in foils()["annotations"]]},
            "the image 5 has no captions in captions_val2014.json",
        ),
    ],
)
def test_bad_foils_are_refused_by_place(data, message, tmp_path):
    with pytest.raises(DataError, match=message):
        load_benchmark("foil", write_foil(tmp_path, data))


@pytest.mark.parametrize(
    ("captions", "message"),
    [
        ({"annotations": [{"image_id": 42}]}, "annotation 1 has no field 'caption'"),
        ({"annotations": [{"image_id": 42.5, "caption": "x"}]}, "image_id must be a whole number"),
    ],
)
def test_bad_coco_captions_are_refused_by_place(captions, message, tmp_path):
    with pytest.raises(DataError, match=f"captions_val2014.json, {message}|captions_val2014.json.*{message}"):
        load_benchmark("foil", write_foil(tmp_path, captions=captions))


def nocaps(**changed):
    row = {"image_path": "0013.jpg", "references": ["A baby.", " ", "A child."], "domain": "near-domain"}
    return (
        row
        | {"baseline": "A kid in a shirt.", "foil": "A kid in a skirt.", "replacement": ["shirt", "skirt"]}
        | changed
    )


def write_nocaps(folder, *rows):
    path = folder / "nocaps-val-foil.json"
    path.write_text(json.dumps(list(rows)))
    return path


def test_nocaps_foil(tmp_path):
    path = write_nocaps(tmp_path, nocaps(), nocaps(domain="out-domain"))
    for data in (path, tmp_path):
        found = load_benchmark("nocaps-foil", data).items
        assert [item.category for item in found] == ["near-domain", "out-domain"]
        assert found[0].captions == ("A kid in a shirt.", "A kid in a skirt.")
        assert (found[0].label, found[0].references) == (0, ("A baby.", "A child."))
        assert found[0].image == Path(tmp_path / "0013.jpg")


@pytest.mark.parametrize("field", ["image_path", "references", "baseline", "foil", "domain"])
@pytest.mark.parametrize("value", [None, 4, "absent"])
def test_bad_nocaps_foil_is_refused_by_entry_and_field(field, value, tmp_path):
    row = nocaps(**{field: value})
    if value == "absent":
        del row[field]
    with pytest.raises(DataError, match=f"entry 2.*{field}"):
        load_benchmark("nocaps-foil", write_nocaps(tmp_path, nocaps(), row))
