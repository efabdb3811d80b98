"""VALSE's files: valid foils only, a category a file, coreference in or out, images together or by data set."""

from __future__ import annotations

import json

import pytest

from reward.errors import DataError
from reward.metaeval.benchmarks import load_benchmark
from reward.metaeval.benchmarks.valse import CATEGORIES


def entry(votes=3, **changed):
    row = {"dataset": "SWiG", "original_split": "test", "image_file": "run.jpg", "linguistic_phenomena": "actions"}
    row |= {"caption": "A man runs.", "foil": "A man sits.", "classes": "runs", "classes_foil": "sits"}
    return row | {"mturk": {"caption": votes, "foil": 3 - votes, "other": 0}} | changed


def write_all(folder, names=CATEGORIES):
    folder.mkdir(exist_ok=True)
    for name in names:
        rows = [entry(3, caption=name), entry(2), entry(1), entry(0)]
        (folder / f"{name}.json").write_text(json.dumps({f"{name}_{k}": row for k, row in enumerate(rows)}))
    return folder


@pytest.mark.parametrize("inside", ["", "data"])
def test_valid_foils_of_all_files_are_read(inside, tmp_path):
    write_all(tmp_path / inside)
    found = load_benchmark("valse", tmp_path)
    assert [item.category for item in found.items] == [name for name in CATEGORIES for _ in range(2)]
    assert found.items[0].captions == ("existence", "A man sits.")
    assert {item.label for item in found.items} == {0}
    assert len(CATEGORIES) == 11


def test_coreference_can_be_left_out(tmp_path):
    write_all(tmp_path, [name for name in CATEGORIES if not name.startswith("coref")])
    found = load_benchmark("valse", tmp_path, part="without coreference")
    assert len({item.category for item in found.items}) == 9
    with pytest.raises(DataError, match=r"holds no coreference-standard.json.*Heidelberg-NLP/VALSE"):
        load_benchmark("valse", tmp_path)
    lines = [{"category": name, "image": "a", "captions": ["x", "y"], "label": 0} for name in CATEGORIES]
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert len(load_benchmark("valse", tmp_path / "all.jsonl", part="without coreference").items) == 9


def test_images_lie_together_or_in_one_folder_a_data_set(tmp_path):
    path = write_all(tmp_path / "data", ["plurals"]) / "plurals.json"
    (tmp_path / "images").mkdir()
    (item, _) = load_benchmark("valse", path, images=tmp_path / "images").items
    assert (item.image, item.image_id) == (tmp_path / "images" / "run.jpg", "SWiG/run.jpg")
    (tmp_path / "images" / "SWiG").mkdir()
    (item, _) = load_benchmark("valse", path, images=tmp_path / "images").items
    assert item.image == tmp_path / "images" / "SWiG" / "run.jpg"


def test_other_files_are_refused(tmp_path):
    (tmp_path / "mine.json").write_text("{}")
    with pytest.raises(DataError, match=r"mine.json is no file of VALSE; they are: existence.json"):
        load_benchmark("valse", tmp_path / "mine.json")


@pytest.mark.parametrize("field", ["dataset", "image_file", "caption", "foil", "mturk"])
@pytest.mark.parametrize("value", [None, 5, "absent"])
def test_bad_entries_are_refused_by_file_name_and_field(field, value, tmp_path):
    row = entry(**{field: value})
    if value == "absent":
        del row[field]
    (tmp_path / "relations.json").write_text(json.dumps({"rel_0": entry(), "rel_1": row}))
    with pytest.raises(DataError, match=rf"relations.json, rel_1.*{field}"):
        load_benchmark("valse", tmp_path / "relations.json")


def test_votes_must_be_counted(tmp_path):
    (tmp_path / "relations.json").write_text(json.dumps({"rel_0": entry(mturk={"foil": 1})}))
    with pytest.raises(DataError, match="rel_0, mturk has no field 'caption'; it has: foil"):
        load_benchmark("valse", tmp_path / "relations.json")
