"""What all benchmarks of pairs and quadruples share: the common JSONL form, and what is said when files are missing."""

from __future__ import annotations

import json

import pytest

from reward.errors import DataError
from reward.metaeval.benchmarks import CaptionPair, Quadruple, benchmark_spec, list_benchmarks, load_benchmark

PAIRS = ["caparena", "foil", "longcapvlcp", "nocaps-foil", "pascal-50s", "sugarcrepe", "valse"]
FROM_FILES = [*PAIRS, "winoground"]
# A file that each one needs and says so.
NEEDED = {
    "caparena": "caparena_annots_eval.json",
    "foil": "foilv1.0_test_2017.json",
    "longcapvlcp": "pairs.jsonl",
    "nocaps-foil": "nocaps-val-foil.json",
    "pascal-50s": "pair_pascal.mat",
    "sugarcrepe": "replace_obj.json",
    "valse": "existence.json",
    "winoground": "examples.jsonl",
}


def pair_row(**changed):
    row = {"category": "HC", "image": "a.jpg", "captions": ["A dog.", "A cat."], "label": 1}
    return {**row, "references": ["One dog.", " "], "systems": None, "mine": [0.5, 0.25], **changed}


def write_lines(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_all_of_them_are_listed():
    assert {*FROM_FILES, "scenes-pairs"} <= set(list_benchmarks())


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_are_read_from_the_common_form(name, tmp_path):
    path = write_lines(tmp_path / "pairs.jsonl", pair_row(), pair_row(label=0, mine=[1, 2]))
    first, second = load_benchmark(name, path).items
    assert isinstance(first, CaptionPair)
    assert (first.captions, first.label, first.category) == (("A dog.", "A cat."), 1, "HC")
    assert (first.image, first.references) == (tmp_path / "a.jpg", ("One dog.",))
    assert (second.label, second.columns) == (0, {"mine": (1.0, 2.0)})
    (tmp_path / "pictures").mkdir()
    assert load_benchmark(name, path, images=tmp_path / "pictures", limit=1).items[0].image == (
        tmp_path / "pictures" / "a.jpg"
    )


def test_quadruples_are_read_from_the_common_form(tmp_path):
    row = {"images": ["a.jpg", "b.jpg"], "captions": ["x y", "y x"], "category": "Object", "mine": [1, 2, 3, 4]}
    (item,) = load_benchmark("winoground", write_lines(tmp_path / "q.jsonl", row)).items
    assert isinstance(item, Quadruple)
    assert (item.images, item.captions) == ((tmp_path / "a.jpg", tmp_path / "b.jpg"), ("x y", "y x"))
    assert (item.category, item.columns) == ("Object", {"mine": (1.0, 2.0, 3.0, 4.0)})


@pytest.mark.parametrize("name", FROM_FILES)
@pytest.mark.parametrize("kind", ["absent", "an empty folder", "an empty file"])
def test_missing_files_are_named_with_their_origin_and_licence(name, kind, tmp_path):
    path = tmp_path / "data.jsonl"
    if kind == "an empty folder":
        path.mkdir()
    elif kind == "an empty file":
        path.touch()
    with pytest.raises(DataError) as caught:
        load_benchmark(name, path)
    spec, message = benchmark_spec(name), str(caught.value)
    assert str(path) in message
    assert NEEDED[name] in message
    assert spec.origin in message
    assert (spec.licence or "licence is not known") in message


@pytest.mark.parametrize("name", PAIRS)
def test_a_path_is_asked_for_where_the_hub_has_none(name):
    with pytest.raises(DataError, match="needs a path to its files") as caught:
        load_benchmark(name)
    assert NEEDED[name] in str(caught.value)


@pytest.mark.parametrize("name", FROM_FILES)
def test_an_image_folder_that_is_not_there_is_refused(name, tmp_path):
    path = write_lines(tmp_path / "pairs.jsonl", pair_row())
    with pytest.raises(DataError, match=r"no folder .*pictures of images"):
        load_benchmark(name, path, images=tmp_path / "pictures")


@pytest.mark.parametrize("name", ["nocaps-foil", "pascal-50s", "caparena", "foil", "sugarcrepe", "valse"])
@pytest.mark.parametrize("text", ["", "{", '{"a": 1, "a": 2}', "[1]", "3", '{"images": 1, "HC": [[]], "0": []}'])
def test_json_of_another_kind_is_refused_by_name(name, text, tmp_path):
    files = {"pascal-50s": "pascal_50s.json"} | {key: NEEDED[key] for key in NEEDED if key != "pascal-50s"}
    path = tmp_path / files[name]
    path.write_text(text, encoding="utf-8")
    (tmp_path / "captions_val2014.json").write_text('{"annotations": []}', encoding="utf-8")
    with pytest.raises(DataError, match=path.name):
        load_benchmark(name, path)


@pytest.mark.parametrize("name", FROM_FILES)
def test_what_was_checked_is_said(name):
    spec = benchmark_spec(name)
    assert spec.checked == "schema"  # no published files are here
    assert spec.files
    assert spec.origin
    assert spec.ties == ("half" if name == "caparena" else "wrong")
