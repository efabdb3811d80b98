"""Benchmarks in the layout of their authors, in a folder and on the Hub: which items they become."""

from pathlib import Path

import pytest

from reward.data.images import load_image
from reward.errors import DataError
from reward.metaeval.benchmarks import load_benchmark
from reward.metaeval.benchmarks.contrast import COREFERENCE, SUGARCREPE, VALSE
from tests.reward.metaeval.benchmarks.published_layouts import (
    COLOURS,
    EXAMPLES,
    GREEN,
    LAYOUTS,
    PASCAL,
    RED,
    parquet,
    write_layout,
)
from tests.reward.metaeval.small_benchmarks import write_files

ASPECTS = ("descriptiveness", "relevance", "fluency")
OF_COCO = ("One dog.", "A brown dog.", "A lawn.", "Fur.")
# Image (a path, or the colour of one that the files hold), captions, place of the better caption or ratings,
# references, category, and what the image is called.
ITEMS = {
    "pascal-50s": [
        (row["image"], tuple(row["captions"]), row["label"], tuple(row["references"]), category, row["image"])
        for category, [row] in PASCAL.items()
    ],
    "foil": [("COCO_42.jpg", ("A dog runs.", text), 0, OF_COCO, "", "42") for text in ("A cat runs.", "A horse runs.")],
    "nocaps-foil": [("13.jpg", ("A kid in a shirt.", "A kid in a skirt."), 0, ("A baby.",), "near-domain", "13.jpg")],
    "sugarcrepe": [("42.jpg", (name, "Grass on a dog."), 0, (), name, "42.jpg") for name in SUGARCREPE],
    "valse": [("run.jpg", (name, "A man sits."), 0, (), name, "SWiG/run.jpg") for name in VALSE],
    "longcapvlcp": [
        ("1.jpg", ("Two red dogs.", "Three red dogs."), 0, (), kind, "1.jpg") for kind in ("counting", "action")
    ],
    "nebula": [
        (RED, ("One.",), {"overall": (1.0,)}, ("A dog.",), "", "1.jpg"),
        (GREEN, ("",), {"overall": (0.5,)}, (), "", "2.jpg"),
    ],
    "flickr8k-expert": [
        ("1.jpg", ("A.",), {"overall": (1, 2, 2)}, ("C.", "D."), "", "1.jpg"),
        ("2.jpg", ("B.",), {"overall": (4,)}, ("E.",), "", "2.jpg"),
    ],
    "longcap-arena": [
        (RED, ("One.",), {"descriptiveness": (0.0,), "relevance": (0.25,)}, ("A dog.",), "", "1.jpg"),
        (RED, ("Two.",), dict.fromkeys(ASPECTS, (0.5,)), ("A dog.",), "", "1.jpg"),
        (GREEN, ("One.",), dict.fromkeys(ASPECTS, (0.75,)), (), "", "2.jpg"),
    ],
    "vicr": [
        ("images/1.jpg", ("a dog",), {"overall": (4, 3, 5)}, (), "", "1.jpg"),
        ("3.jpg", ("a bird",), {"overall": (2,)}, (), "", "3.jpg"),
    ],
    "genai-bench": [
        ("DALLE_3/00000", ("A red ball.",), {"overall": (5, 4, 5)}, (), "DALLE_3", "DALLE_3/00000"),
        ("SDXL/00000.png", ("A red ball.",), {"overall": (1, 2)}, (), "SDXL", "SDXL/00000"),
        ("DALLE_3/00001", ("Two cats.",), {"overall": (3, 3, 3)}, (), "DALLE_3", "DALLE_3/00001"),
    ],
    "evalmuse-40k": [("SDXL/8.png", ("shapes 8",), {"overall": (4.5,)}, (), "SDXL", "SDXL/8.png")],
}


def items_of(benchmark, folder):
    judgments = benchmark.rows["ratings" if benchmark.aspects else "label"]
    images = [shown(image, folder) for (image,) in benchmark.rows["images"]]
    further = (benchmark.rows[name] for name in ("references", "category", "image_id"))
    return list(zip(images, benchmark.rows["captions"], judgments, *further, strict=True))


def shown(image, folder):
    return str(image.relative_to(folder)) if isinstance(image, Path) else load_image(image).getpixel((0, 0))


@pytest.mark.parametrize("name", ITEMS)
def test_the_files_of_its_authors_become_items(name, tmp_path):
    assert items_of(load_benchmark(name, write_layout(tmp_path, name)), tmp_path) == ITEMS[name]


def test_captions_of_polaris_are_merged_by_their_references_for_want_of_names(tmp_path):
    first, second, third = load_benchmark("polaris", write_layout(tmp_path, "polaris")).rows.itertuples()
    assert [item.captions[0] for item in (first, second, third)] == ["One.", "Two.", "Three."]
    assert [item.ratings["overall"] for item in (first, second, third)] == [(0.25, 0.75), (0.5,), (1.0,)]
    assert first.image_id == third.image_id != second.image_id
    assert first.images[0] is third.images[0]  # held once, and encoded still
    assert isinstance(first.images[0], dict)


def test_winoground_has_its_images_in_an_archive_or_a_folder(tmp_path):
    packed = load_benchmark("winoground", write_layout(tmp_path / "packed", "winoground")).rows
    assert [tuple(shown(image, tmp_path) for image in pair) for pair in packed["images"]] == [COLOURS[:2], COLOURS[2:]]
    assert list(packed["captions"]) == [("a dog on a man", "a man on a dog")] * 2
    assert (list(packed["category"]), list(packed["image_id"])) == (["Object", "Noun"], ["0", "1"])
    write_files(tmp_path, {"examples.jsonl": EXAMPLES[:1], "png/ex_0_img_0.png": b"", "png/ex_0_img_1.png": b""})
    (images,) = load_benchmark("winoground", tmp_path / "examples.jsonl", images=tmp_path / "png").rows["images"]
    assert images == (tmp_path / "png" / "ex_0_img_0.png", tmp_path / "png" / "ex_0_img_1.png")


@pytest.mark.parametrize(("name", "inside"), [("foil", "."), ("valse", "SWiG"), ("genai-bench", "SDXL")])
def test_images_may_lie_elsewhere(name, inside, tmp_path):
    (tmp_path / "photos" / inside).mkdir(parents=True)  # of VALSE a folder for each data set, if there is one
    rows = load_benchmark(name, write_layout(tmp_path / "data", name), images=tmp_path / "photos").rows
    assert (tmp_path / "photos" / inside) in {image.parent for (image,) in rows["images"]}


@pytest.mark.parametrize(
    ("name", "part", "column", "seen"),
    [
        ("foil", "1-ref", "references", [("One dog.",)] * 2),
        ("longcap-arena", "TestB", "captions", [("Three.",)] * 2),
        ("vicr", "train", "captions", [("a cat, too",)]),
        ("evalmuse-40k", "train", "captions", [("shapes 7",)]),
    ],
)
def test_parts_are_other_items(name, part, column, seen, tmp_path):
    assert list(load_benchmark(name, write_layout(tmp_path, name), part=part).rows[column]) == seen


def test_coreference_can_be_left_out_of_valse_in_either_form(tmp_path):
    write_layout(tmp_path, "valse")
    lines = [{"category": name, "image": "a", "captions": ["x", "y"], "label": 0} for name in VALSE]
    write_files(tmp_path, {"all.jsonl": lines})
    for name in COREFERENCE:
        (tmp_path / f"{name}.json").unlink()
    for data in (tmp_path, tmp_path / "all.jsonl"):
        rows = load_benchmark("valse", data, part="without coreference").rows
        assert {*rows["category"]} == {*VALSE} - {*COREFERENCE}


def test_typing_errors_of_the_published_genai_bench_count_as_they_are_and_are_told(tmp_path):
    write_files(tmp_path, {"genai_image.json": {"1": {"prompt": "A.", "models": {"x": [4, 41, 3], "y": [33]}}}})
    with pytest.warns(UserWarning, match=r"outside 1 to 5 count as they are.*\[33, 41\]"):
        rows = load_benchmark("genai-bench", tmp_path).rows
    assert rows["ratings"].tolist() == [{"overall": (4, 41, 3)}, {"overall": (33,)}]


PARQUET = "data/test-00000-of-00001.parquet"


@pytest.mark.parametrize(
    ("name", "file", "content", "message"),
    [
        ("foil", "annotations/captions_val2014.json", None, r"holds no captions_val2014.json.*cocodataset.org"),
        ("foil", "foilv1.0_test_2017.json", {"images": []}, "item 1: KeyError: 'annotations'"),
        ("valse", "foil-it.json", None, r"holds no foil-it.json.*From: .*Licence: "),
        ("nebula", PARQUET, {"cand": ["A."], "refs": [[]], "score": [1]}, "nothing names the image of the caption"),
        ("polaris", PARQUET, b"PAR1", r"cannot read .*, item 1: [\s\S]*Polaris needs"),
        ("longcap-arena", "data/dci_val.rel-00000-of-00001.parquet", None, r"no split dci_val\.rel, only "),
        ("vicr", "vicr.csv", "image,caption,ratings\n1.jpg,a dog\n", "has 2 fields, but the header has 3"),
        ("longcapvlcp", "pairs.jsonl", [{"correct": "A.", "incorrect": "A."}], "correct and incorrect caption are"),
        ("winoground", "data/images.zip", None, r"holds no images.zip. Winoground needs"),
    ],
)
def test_a_bad_file_is_named(name, file, content, message, tmp_path):
    (write_layout(tmp_path, name) / file).unlink()
    if content is not None:
        is_table = file == PARQUET and isinstance(content, dict)
        write_files(tmp_path, {file: parquet(content) if is_table else content})
    with pytest.raises(DataError, match=message):
        load_benchmark(name, tmp_path)


@pytest.mark.slow
def test_of_a_data_set_on_the_hub_only_the_files_of_a_part_are_asked_for(hub, monkeypatch, tmp_path):
    monkeypatch.setattr("datasets.config.HF_ENDPOINT", hub.endpoint)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    write_files(tmp_path / "arena", {"README.md": b"# Data\n", **LAYOUTS["longcap-arena"]()})
    hub.add_folder("Ka2ukiMatsuda/LongCap-Arena", tmp_path / "arena", kind="datasets")
    assert items_of(load_benchmark("longcap-arena"), tmp_path) == ITEMS["longcap-arena"]
    asked = {path.rpartition("/")[2].partition("-")[0] for _, path in hub.requests if path.endswith(".parquet")}
    assert asked == {"dci_val.desc", "dci_val.rel", "dci_val.flu"}
    with pytest.raises(DataError, match=r"^cannot read yuwd/Polaris, item 1: DatasetNotFoundError[\s\S]*Polaris needs"):
        load_benchmark("polaris")
