"""Benchmarks in the layout of their authors, in a folder and on the Hub: which items they become."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reward.errors import DataError
from reward.images import load_image
from reward.metaeval.benchmarks import Benchmark, load_benchmark
from reward.metaeval.benchmarks.contrast import COREFERENCE, VALSE
from tests.reward.metaeval.benchmarks.published_layouts import COLOURS, EXAMPLES, LAYOUTS, Item, parquet, write_layout
from tests.reward.metaeval.small_benchmarks import write_files
from tests.toys.loopback_hub import LoopbackHub


def described(benchmark: Benchmark, folder: Path) -> list[Item]:
    """The items as `LAYOUTS` has them."""
    items = []
    for row in benchmark.rows.itertuples():
        images = [_shown(image, folder) for image in row.images]
        judgment = getattr(row, "label", None)
        if benchmark.aspects:
            judgment = row.ratings if len(benchmark.aspects) > 1 else row.ratings["overall"]
        captions = row.captions if len(row.captions) > 1 else row.captions[0]
        found = Item(tuple(images) if len(images) > 1 else images[0], captions, judgment)
        items.append(found._replace(references=row.references, category=row.category, image_id=row.image_id))
    return items


def _shown(image: Any, folder: Path) -> Any:
    if isinstance(image, Path):
        return str(image.relative_to(folder))
    return load_image(image).getpixel((0, 0))


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_files_of_its_authors_become_items(name: str, tmp_path: Path) -> None:
    benchmark = load_benchmark(name, write_layout(tmp_path, name))
    expected = LAYOUTS[name].items
    found = [
        item._replace(image_id=known.image_id and item.image_id)
        for item, known in zip(described(benchmark, tmp_path), expected, strict=True)
    ]
    assert found == expected


def test_images_without_a_name_are_known_by_their_references_and_held_once(tmp_path: Path) -> None:
    first, second, third = load_benchmark("polaris", write_layout(tmp_path, "polaris")).rows.itertuples()
    assert first.image_id == third.image_id != second.image_id
    assert first.images[0] is third.images[0]


@pytest.mark.parametrize("name", ["pascal-50s", "foil", "valse", "genai-bench"])
def test_images_may_lie_elsewhere(name: str, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    benchmark = load_benchmark(name, write_layout(tmp_path / "data", name), images=tmp_path / "photos")
    assert {(tmp_path / "photos") in image.parents for (image,) in benchmark.rows["images"]} == {True}


def test_images_of_valse_may_have_a_folder_for_each_data_set(tmp_path: Path) -> None:
    (tmp_path / "SWiG").mkdir()
    item, *_ = described(load_benchmark("valse", write_layout(tmp_path, "valse")), tmp_path)
    assert item.images == "SWiG/run.jpg"


def test_images_of_winoground_may_be_unpacked(tmp_path: Path) -> None:
    write_files(tmp_path, {"examples.jsonl": EXAMPLES[:1], "png/ex_0_img_0.png": b"", "png/ex_0_img_1.png": b""})
    (item,) = described(load_benchmark("winoground", tmp_path, images=tmp_path / "png"), tmp_path)
    assert item.images == ("png/ex_0_img_0.png", "png/ex_0_img_1.png")


@pytest.mark.parametrize(
    ("name", "part", "seen"),
    [
        ("foil", "1-ref", [("One dog.",)] * 2),
        ("longcap-arena", "TestB", ["Three.", "Three."]),
        ("vicr", "train", ["a cat, too"]),
    ],
)
def test_parts_are_other_items(name: str, part: str, seen: list[Any], tmp_path: Path) -> None:
    items = described(load_benchmark(name, write_layout(tmp_path, name), part=part), tmp_path)
    assert [item.references if name == "foil" else item.captions for item in items] == seen


def test_coreference_can_be_left_out_of_valse_in_either_form(tmp_path: Path) -> None:
    write_layout(tmp_path, "valse")
    lines = [{"category": name, "image": "a", "captions": ["x", "y"], "label": 0} for name in VALSE]
    write_files(tmp_path, {"all.jsonl": lines})
    for name in COREFERENCE:
        (tmp_path / f"{name}.json").unlink()
    for data in (tmp_path, tmp_path / "all.jsonl"):
        rows = load_benchmark("valse", data, part="without coreference").rows
        assert {*rows["category"]} == {*VALSE} - {*COREFERENCE}


def test_typing_errors_of_the_published_genai_bench_count_as_they_are_and_are_told(tmp_path: Path) -> None:
    odd = {"1": {"prompt": "A.", "models": {"x": [4, 41, 3], "y": [5, 5, 33]}}}
    write_files(tmp_path, {"genai_image.json": odd})
    with pytest.warns(UserWarning, match=r"outside 1 to 5 count as they are.*\[33, 41\]"):
        rows = load_benchmark("genai-bench", tmp_path).rows
    assert rows["ratings"].tolist() == [{"overall": (4, 41, 3)}, {"overall": (5, 5, 33)}]


# Files that are missing or damaged

NO_NAME = {"cand": ["A."], "refs": [[]], "score": [1]}
PARQUET = "data/test-00000-of-00001.parquet"


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("foil", {"annotations/captions_val2014.json": None}, r"holds no captions_val2014.json.*cocodataset.org"),
        ("foil", {"foilv1.0_test_2017.json": {"images": []}}, "item 1: KeyError: 'annotations'"),
        ("valse", {"foil-it.json": None}, r"holds no foil-it.json.*From: .*Licence: "),
        ("nebula", {PARQUET: lambda: parquet(NO_NAME)}, "nothing names the image of the caption 'A.'"),
        ("polaris", {PARQUET: b"PAR1"}, r"cannot read .*, item 1: [\s\S]*Polaris needs"),
        ("longcap-arena", {"data/dci_val.rel-00000-of-00001.parquet": None}, r"no split dci_val\.rel, only "),
        ("vicr", {"vicr.csv": "image,caption,ratings\n1.jpg,a dog,x\n"}, "item 1: ValueError: could not convert"),
        ("vicr", {"vicr.csv": "image,caption,ratings\n1.jpg,a dog\n"}, "has 2 fields, but the header has 3"),
        ("longcapvlcp", {"pairs.jsonl": [{"correct": "A.", "incorrect": "A."}]}, "correct and incorrect caption are"),
        ("winoground", {"data/images.zip": None}, r"holds no images.zip. Winoground needs"),
        ("winoground", {"data/images.zip": b"PK"}, "item 1: BadZipFile"),
    ],
)
def test_a_bad_file_is_named(name: str, changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    write_layout(tmp_path, name)
    for file, content in changed.items():
        (tmp_path / file).unlink()
        if content is not None:
            write_files(tmp_path, {file: content() if callable(content) else content})
    with pytest.raises(DataError, match=message):
        load_benchmark(name, tmp_path)


# On the Hub, through the real client


@pytest.mark.slow
def test_of_a_data_set_on_the_hub_only_the_files_of_a_part_are_asked_for(
    hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("datasets.config.HF_ENDPOINT", hub.endpoint)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    write_files(tmp_path / "arena", {"README.md": b"# Data\n", **LAYOUTS["longcap-arena"].files()})
    hub.add_folder("Ka2ukiMatsuda/LongCap-Arena", tmp_path / "arena", kind="datasets")
    arena = load_benchmark("longcap-arena")
    assert described(arena, tmp_path) == LAYOUTS["longcap-arena"].items
    assert isinstance(arena.rows["images"][0][0], dict)  # encoded still
    asked = {path.rpartition("/")[2].partition("-")[0] for _, path in hub.requests if path.endswith(".parquet")}
    assert asked == {"dci_val.desc", "dci_val.rel", "dci_val.flu"}
    with pytest.raises(DataError, match=r"no split train\.desc"):
        load_benchmark("longcap-arena", part="train")
    with pytest.raises(DataError, match=r"^cannot read yuwd/Polaris, item 1: DatasetNotFoundError[\s\S]*Polaris needs"):
        load_benchmark("polaris")


def test_winoground_is_taken_from_the_hub_whose_terms_are_named(hub: LoopbackHub, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"item 1: [\s\S]*whose terms have to be accepted there first"):
        load_benchmark("winoground")
    hub.add_folder("facebook/winoground", write_layout(tmp_path, "winoground"), kind="datasets")
    first, second = described(load_benchmark("winoground"), tmp_path)
    assert (first.images, second.images) == (COLOURS[:2], COLOURS[2:])
