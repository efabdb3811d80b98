"""SugarCrepe's seven files: one category each, the correct caption first."""

from __future__ import annotations

import json

import pytest

from reward.errors import DataError
from reward.metaeval.benchmarks import load_benchmark
from reward.metaeval.benchmarks.sugarcrepe import CATEGORIES


def entry(**changed):
    return {"filename": "0042.jpg", "caption": "A dog on grass.", "negative_caption": "Grass on a dog."} | changed


def write_all(folder, names=CATEGORIES):
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / f"{name}.json").write_text(json.dumps({"0": entry(caption=name), "1": entry()}))
    return folder


@pytest.mark.parametrize("inside", ["", "data"])
def test_all_files_are_read(inside, tmp_path):
    write_all(tmp_path / inside)
    found = load_benchmark("sugarcrepe", tmp_path)
    assert [item.category for item in found.items] == [name for name in CATEGORIES for _ in range(2)]
    assert found.items[0].captions == ("replace_obj", "Grass on a dog.")
    assert {item.label for item in found.items} == {0}
    assert found.items[0].image == tmp_path / "0042.jpg"


def test_a_file_alone_and_images_elsewhere(tmp_path):
    write_all(tmp_path, ["swap_att"])
    (tmp_path / "val2017").mkdir()
    found = load_benchmark("sugarcrepe", tmp_path / "swap_att.json", images=tmp_path / "val2017")
    assert {item.category for item in found.items} == {"swap_att"}
    assert found.items[0].image == tmp_path / "val2017" / "0042.jpg"


def test_a_missing_file_is_named(tmp_path):
    write_all(tmp_path, CATEGORIES[:-1])
    with pytest.raises(DataError, match=r"holds no add_att.json or data/add_att.json.*RAIVNLab/sugar-crepe.*MIT"):
        load_benchmark("sugarcrepe", tmp_path)


def test_other_files_are_refused(tmp_path):
    (tmp_path / "mine.json").write_text("{}")
    with pytest.raises(DataError, match=r"mine.json is no file of SugarCrepe; they are: replace_obj.json"):
        load_benchmark("sugarcrepe", tmp_path / "mine.json")


@pytest.mark.parametrize("field", ["filename", "caption", "negative_caption"])
@pytest.mark.parametrize("value", [None, ["x"], "absent"])
def test_bad_entries_are_refused_by_file_pair_and_field(field, value, tmp_path):
    row = entry(**{field: value})
    if value == "absent":
        del row[field]
    write_all(tmp_path)
    (tmp_path / "swap_obj.json").write_text(json.dumps({"0": entry(), "1": row}))
    with pytest.raises(DataError, match=rf"swap_obj.json, pair 1.*{field}"):
        load_benchmark("sugarcrepe", tmp_path)
