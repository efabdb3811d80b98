"""FOIL, nocaps-FOIL, SugarCrepe and VALSE: the correct caption comes first; categories, references and images."""

from __future__ import annotations

import pytest

from reward.errors import DataError
from reward.metaeval.benchmarks import load_benchmark
from reward.metaeval.benchmarks.contrast import SUGARCREPE, VALSE
from tests.reward.metaeval.small_benchmarks import write_files

# Two originals, one with two foils; and one without.
DOG = {"id": 7, "foil_id": 1, "image_id": 42, "target_word": "dog", "foil_word": "cat", "foil": True}
ORIGINAL = {"foil": False, "target_word": "ORIG", "foil_word": "ORIG", "foil_id": 0, "image_id": 42}
FOILS = {
    "images": [{"id": 42, "file_name": "COCO_val2014_000000000042.jpg"}],
    "annotations": [
        DOG | {"caption": "A cat runs."},
        ORIGINAL | {"id": 7, "caption": "A dog runs."},
        DOG | {"foil_id": 2, "foil_word": "horse", "caption": "A horse runs."},
        ORIGINAL | {"id": 8, "caption": "Grass."},
    ],
}
TEXTS = ["One dog.", "A dog  runs. ", "", "A brown dog.", "A lawn.", "Fur.", "Outside."]
COCO = {"annotations": [{"id": number, "image_id": 42, "caption": text} for number, text in enumerate(TEXTS)]}


@pytest.mark.parametrize(
    ("part", "inside", "references"),
    [
        (None, "", ("One dog.", "A brown dog.", "A lawn.", "Fur.")),
        (None, "annotations/", ("One dog.", "A brown dog.", "A lawn.", "Fur.")),
        ("1-ref", "", ("One dog.",)),
    ],
)
def test_each_foil_is_paired_with_its_original(part, inside, references, tmp_path):
    write_files(tmp_path, {"foilv1.0_test_2017.json": FOILS, f"{inside}captions_val2014.json": COCO})
    (tmp_path / "val2014").mkdir()
    for data, images in ((tmp_path, None), (tmp_path / "foilv1.0_test_2017.json", tmp_path / "val2014")):
        items = list(load_benchmark("foil", data, part=part, images=images).rows.itertuples())
        assert [item.captions for item in items] == [("A dog runs.", "A cat runs."), ("A dog runs.", "A horse runs.")]
        image = (images or tmp_path) / "COCO_val2014_000000000042.jpg"
        assert {(item.label, item.references, item.images[0], item.image_id) for item in items} == {
            (0, references, image, "42")
        }


def test_nocaps_foil(tmp_path):
    row = {"image_path": "0013.jpg", "references": ["A baby.", " ", "A child."], "domain": "near-domain"}
    row |= {"baseline": "A kid in a shirt.", "foil": "A kid in a skirt.", "replacement": ["shirt", "skirt"]}
    write_files(tmp_path, {"nocaps-val-foil.json": [row, row | {"domain": "out-domain"}]})
    for data in (tmp_path, tmp_path / "nocaps-val-foil.json"):
        items = list(load_benchmark("nocaps-foil", data).rows.itertuples())
        assert [item.category for item in items] == ["near-domain", "out-domain"]
        assert items[0].captions == ("A kid in a shirt.", "A kid in a skirt.")
        assert (items[0].label, items[0].references) == (0, ("A baby.", "A child."))
        assert items[0].images[0] == tmp_path / "0013.jpg"


def sugarcrepe(name):
    rows = [{"filename": "0042.jpg", "caption": text, "negative_caption": "Grass on a dog."} for text in (name, "A.")]
    return dict(enumerate(rows))


def valse(name):
    """The last two foils are not valid."""
    row = {"dataset": "SWiG", "image_file": "run.jpg", "caption": name, "foil": "A man sits."}
    return {votes: row | {"mturk": {"caption": votes, "foil": 3 - votes, "other": 0}} for votes in (3, 2, 1, 0)}


KINDS = {"sugarcrepe": (SUGARCREPE, sugarcrepe, "0042.jpg"), "valse": (VALSE, valse, "run.jpg")}


@pytest.mark.parametrize("inside", ["", "data/"])
@pytest.mark.parametrize("benchmark", KINDS)
def test_a_category_is_a_file(benchmark, inside, tmp_path):
    names, entries, image = KINDS[benchmark]
    write_files(tmp_path, {f"{inside}{name}.json": entries(name) for name in names})
    items = list(load_benchmark(benchmark, tmp_path).rows.itertuples())
    assert [item.category for item in items] == [name for name in names for _ in range(2)]
    assert [item.captions[0] for item in items[::2]] == list(names)
    assert {(item.label, item.images[0]) for item in items} == {(0, tmp_path / image)}
    (tmp_path / "pictures").mkdir()
    elsewhere = load_benchmark(benchmark, tmp_path, images=tmp_path / "pictures").rows
    assert {image.parent for (image,) in elsewhere["images"]} == {tmp_path / "pictures"}
    with pytest.raises(DataError, match=rf"{names[0]}.json is no folder\. .* needs a folder with"):
        load_benchmark(benchmark, tmp_path / f"{inside}{names[0]}.json")
    (tmp_path / f"{inside}{names[-1]}.json").unlink()
    with pytest.raises(DataError, match=rf"holds no {names[-1]}.json.*From: .*Licence: "):
        load_benchmark(benchmark, tmp_path)


def test_coreference_can_be_left_out(tmp_path):
    write_files(tmp_path, {f"{name}.json": valse(name) for name in VALSE if not name.startswith("coref")})
    with pytest.raises(DataError, match=r"holds no coreference-standard.json"):
        load_benchmark("valse", tmp_path)
    lines = [{"category": name, "image": "a", "captions": ["x", "y"], "label": 0} for name in VALSE]
    write_files(tmp_path, {"all.jsonl": lines})
    for data in (tmp_path, tmp_path / "all.jsonl"):
        rows = load_benchmark("valse", data, part="without coreference").rows
        assert rows["category"].nunique() == len(VALSE) - 2 == 9


def test_images_of_valse_lie_together_or_in_one_folder_a_data_set(tmp_path):
    write_files(tmp_path, {f"{name}.json": valse(name) for name in VALSE})
    for folder in ("", "SWiG"):
        (tmp_path / "images" / folder).mkdir(parents=True)
        item, *_ = load_benchmark("valse", tmp_path, images=tmp_path / "images").rows.itertuples()
        assert (item.images[0], item.image_id) == (tmp_path / "images" / folder / "run.jpg", "SWiG/run.jpg")
