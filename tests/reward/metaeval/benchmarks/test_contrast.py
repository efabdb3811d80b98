"""FOIL, nocaps-FOIL, SugarCrepe and VALSE: the correct caption comes first, and bad entries are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reward.errors import DataError
from reward.metaeval.benchmarks import load_benchmark
from reward.metaeval.benchmarks.contrast import SUGARCREPE, VALSE


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


def sugarcrepe(**changed):
    return {"filename": "0042.jpg", "caption": "A dog on grass.", "negative_caption": "Grass on a dog."} | changed


def valse(votes=3, **changed):
    row = {"dataset": "SWiG", "image_file": "run.jpg", "linguistic_phenomena": "actions"}
    row |= {"caption": "A man runs.", "foil": "A man sits.", "mturk": {"caption": votes, "foil": 3 - votes, "other": 0}}
    return row | changed


FILES = {"sugarcrepe": SUGARCREPE, "valse": VALSE}
ENTRIES = {
    "sugarcrepe": lambda name: [sugarcrepe(caption=name), sugarcrepe()],
    "valse": lambda name: [valse(3, caption=name), valse(2), valse(1), valse(0)],  # the last two foils are not valid
}


def write_all(benchmark, folder, names=None):
    folder.mkdir(exist_ok=True)
    for name in FILES[benchmark] if names is None else names:
        rows = {f"{name}_{k}": row for k, row in enumerate(ENTRIES[benchmark](name))}
        (folder / f"{name}.json").write_text(json.dumps(rows))
    return folder


@pytest.mark.parametrize("inside", ["", "data"])
@pytest.mark.parametrize("benchmark", FILES)
def test_a_category_is_a_file(benchmark, inside, tmp_path):
    write_all(benchmark, tmp_path / inside)
    items = load_benchmark(benchmark, tmp_path).items
    assert [item.category for item in items] == [name for name in FILES[benchmark] for _ in range(2)]
    assert [item.captions[0] for item in items[::2]] == list(FILES[benchmark])
    assert {item.label for item in items} == {0}
    assert {item.image for item in items} == {tmp_path / ("0042.jpg" if benchmark == "sugarcrepe" else "run.jpg")}
    name = FILES[benchmark][0]
    (tmp_path / "pictures").mkdir()
    alone = load_benchmark(benchmark, tmp_path / inside / f"{name}.json", images=tmp_path / "pictures").items
    assert {(item.category, item.image.parent) for item in alone} == {(name, tmp_path / "pictures")}
    (tmp_path / "mine.json").write_text("{}")
    with pytest.raises(DataError, match=rf"mine.json is not a file of \w+; they are: {name}.json"):
        load_benchmark(benchmark, tmp_path / "mine.json")
    last = FILES[benchmark][-1]
    (tmp_path / inside / f"{last}.json").unlink()
    with pytest.raises(DataError, match=rf"holds no {last}.json or data/{last}.json.*From: .*Licence: "):
        load_benchmark(benchmark, tmp_path)


def test_coreference_can_be_left_out(tmp_path):
    write_all("valse", tmp_path, [name for name in VALSE if not name.startswith("coref")])
    assert len(VALSE) == 11
    assert len({item.category for item in load_benchmark("valse", tmp_path, part="without coreference").items}) == 9
    with pytest.raises(DataError, match=r"holds no coreference-standard.json"):
        load_benchmark("valse", tmp_path)
    lines = [{"category": name, "image": "a", "captions": ["x", "y"], "label": 0} for name in VALSE]
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert len(load_benchmark("valse", tmp_path / "all.jsonl", part="without coreference").items) == 9


def test_images_of_valse_lie_together_or_in_one_folder_a_data_set(tmp_path):
    path = write_all("valse", tmp_path / "data", ["plurals"]) / "plurals.json"
    (tmp_path / "images" / "SWiG").mkdir(parents=True)
    (item, _) = load_benchmark("valse", path, images=tmp_path / "images").items
    assert (item.image, item.image_id) == (tmp_path / "images" / "SWiG" / "run.jpg", "SWiG/run.jpg")
    (tmp_path / "images" / "SWiG").rmdir()
    (item, _) = load_benchmark("valse", path, images=tmp_path / "images").items
    assert item.image == tmp_path / "images" / "run.jpg"
