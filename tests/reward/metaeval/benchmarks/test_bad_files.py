"""Files of benchmarks that are missing, damaged or malformed: the error names the file, the place and the field."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from reward.errors import DataError
from reward.metaeval.benchmarks import load_benchmark
from reward.metaeval.benchmarks.contrast import SUGARCREPE, VALSE
from tests.reward.metaeval.benchmarks.test_winoground import packed
from tests.reward.metaeval.small_benchmarks import write_files

Files = dict[str, Any]
NAN = float("nan")

RATED = {"image": "a.jpg", "candidate": "A dog.", "references": ["A cat.", " "], "ratings": [1, 2.5], "metric": 0.25}
PAIR = {"image": "a.jpg", "captions": ["A dog.", "A cat."], "label": 1, "category": "HC", "metric": [0.5, 1]}
QUADRUPLE = {"images": ["a.jpg", None], "captions": ["A dog.", "A cat."], "metric": [1, 2, 3, None]}
TEXT = {"image": "a.jpg", "candidate": "One.", "item": "x", "category": "IC"}
TABLE = {"cand": "A.", "file_name": "1.jpg", "refs": [], "score": 1}
FOIL = {"id": 7, "image_id": 42, "caption": "A cat runs.", "foil": True}
FOILS = {
    "images": [{"id": 42, "file_name": "42.jpg"}, {"id": 5, "file_name": "5.jpg"}],
    "annotations": [FOIL, FOIL | {"caption": "A dog runs.", "foil": False}, FOIL | {"caption": "A horse runs."}],
}
COCO = {"annotations": [{"id": 1, "image_id": 42, "caption": "One dog."}]}
NOCAPS = {
    "image_path": "13.jpg",
    "references": ["A baby."],
    "domain": "near",
    "baseline": "A shirt.",
    "foil": "A skirt.",
}
NEGATIVE = {"filename": "42.jpg", "caption": "A dog on grass.", "negative_caption": "Grass on a dog."}
FOILED = {"dataset": "SWiG", "image_file": "run.jpg", "caption": "A man runs.", "foil": "A man sits."}
FOILED |= {"mturk": {"caption": 3}}  # type: ignore[dict-item]
EXAMPLE = {
    "image_0": "ex_0_img_0",
    "image_1": "ex_0_img_1",
    "caption_0": "a dog on a man",
    "caption_1": "a man on a dog",
    "tag": "Noun",
}
ZIP, VICR = packed(), "image,caption,ratings"


def common(row: Any, *before: Any) -> Files:
    return {"a.jsonl": [*before, row]}


def foils(**changed: Any) -> Files:
    """FOIL's files with another third annotation."""
    rows = [*FOILS["annotations"][:2], FOIL | changed]
    return {"foilv1.0_test_2017.json": FOILS | {"annotations": rows}, "captions_val2014.json": COCO}


def table(row: dict[str, Any]) -> Files:
    """A split with one row."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([row]), sink)
    return {"test.parquet": sink.getvalue().to_pybytes()}


def contrast(name: str, names: Sequence[str], rows: dict[str, Any]) -> Files:
    """A folder of files by category, of which one has these entries."""
    return {f"{other}.json": rows if other == name else {} for other in names}


def without(row: dict[str, Any], name: str) -> dict[str, Any]:
    return {field: value for field, value in row.items() if field != name}


# By benchmark: the files, and the message.
BAD: dict[str, list[tuple[Files, str]]] = {
    "ratings": [
        (common({"candidate": "A."}), r"a\.jsonl, line 1 has no field 'ratings'; it has: candidate"),
        *[
            (common(row, RATED), rf"a\.jsonl, line 2.*{message}")
            for row, message in [
                ({"ratings": [1]}, "has no field 'candidate'"),
                ({**RATED, "ratings": []}, r"ratings must be numbers, one per rater, got \[\]"),
                ({**RATED, "ratings": [True]}, "ratings must be numbers"),
                ({**RATED, "ratings": {"fluency": ["3"]}}, "ratings must be numbers"),
                ('{"candidate": "A.", "ratings": [1e999]}', "ratings must be finite numbers, got 'inf'"),
                ('{"candidate": "A.", "ratings": [1], "x": 1%s}' % ("0" * 400), "x must be finite numbers, got '1000"),
                ({**RATED, "candidate": None}, "candidate must be text, got None"),
                ({**RATED, "references": "A cat."}, "references must be a list of texts, got 'A cat.'"),
                *[
                    ({**RATED, "category": value}, "category must be text or a whole number, got ")
                    for value in (["IC"], True, 1.5)
                ],
                ({**RATED, "image": 3}, "image must be a path, got 3"),
                ({**RATED, "image": ""}, "image must be a path, got ''"),
                ("{", "is not valid JSON"),
                ("[" * 100_000, "is not valid JSON"),
                ("[1]", "must be a JSON object, got list"),
                ('{"ratings": [Infinity]}', "is not valid JSON: Infinity is not a number"),
                ('{"ratings": [-Infinity]}', "-Infinity is not a number"),
            ]
        ],
    ],
    "pairs": [
        *[(common({**PAIR, "label": label}), "label must be 0, 1 or null") for label in (2, True, "1")],
        *[(common({**PAIR, "captions": texts}), "captions must be a list of 2 texts") for texts in (["A."], "AB")],
    ],
    "quadruples": [
        (common({**QUADRUPLE, "images": images}), "images must be a list of two") for images in (["a"], "ab", None)
    ],
    "mmhe": [
        (common({**RATED, "ratings": ratings}, {**RATED, "ratings": {"fluency": [1]}}), f"text 2: .*, got '{name}'")
        for ratings, name in [({"fluency": [1], "overall": [2]}, "overall"), ([1], "overall"), ({"Clar": [1]}, "Clar")]
    ],
    "mmhe-pairs": [
        (common(*({**TEXT, **change} for change in changes)), message)
        for changes, message in [
            ([{"best": -1}, {"best": 1}], "line 2: best must be how many people chose the text, .*, got -1"),
            ([{"best": 1}], "line 1: item must be of two texts or more, .*, one of them chosen, got 'x'"),
            ([{"best": 0}, {"best": 1, "image": "b.jpg"}], "line 1: item must be .*, equal in image and question"),
            ([{"best": n, "question": " ", "category": "VQA"} for n in (0, 1)], "text 1: a text of VQA answers a que"),
        ]
    ],
    "nebula": [
        (table(row), rf"test\.parquet, row 1.*{message}")
        for row, message in [
            ({"cand": "A.", "refs": ["B."]}, "no field 'score' or 'human_score'; it has: cand, refs"),
            (without(TABLE, "refs"), "no field 'refs' or 'references'"),
            ({**TABLE, "cand": 3}, "cand must be text, got 3"),
            ({**TABLE, "refs": "no list"}, "refs must be a list of texts"),
            ({**TABLE, "refs": [1]}, r"refs must be a list of texts, got \[1\]"),
            ({**TABLE, "score": "x"}, "score must be a finite number, got 'x'"),
            ({**TABLE, "score": True}, "score must be a finite number, got True"),
            (without(TABLE, "file_name"), "nothing that names its image"),
            ({**TABLE, "file_name": " "}, "file_name must be the name of an image"),
        ]
    ],
    "polaris": [({"test.parquet": b"PAR1"}, r"test\.parquet cannot be read as Parquet")],
    "vicr": [
        ({"vicr.csv": "image,caption\n1.jpg,a dog\n"}, "row 1 has no field 'ratings'; it has: image, caption"),
        *[
            ({"vicr.csv": f"{VICR}\n1.jpg,a dog,{bad}\n"}, f"ratings must be a number from 1 to 5, got '?{bad}")
            for bad in ("6", "0.9", "nan", "inf", "x")
        ],
        ({"vicr.csv": f"{VICR},rating_2\n1.jpg,a dog,5,x\n"}, "rating_2 must be a number from 1 to 5, got 'x'"),
        ({"vicr.csv": f"{VICR}\nhttp://x/,a dog,4\n"}, "image must be the address or name of a file, got 'http://x/'"),
        ({"vicr.csv": f"{VICR}\n1.jpg,a dog\n"}, "has 2 fields, but the header has 3"),
    ],
    "evalmuse-40k": [
        ({"train_list.json": [{"prompt": "A", "img_path": "a", "total_score": bad}]}, f"total_score must be {like}")
        for bad, like in ((3, "a list, got 3"), ([4, 6], "a list of ratings from 1 to 5"))
    ],
    "genai-bench": [
        ({"genai_image.json": {"1": {}}}, "prompt 1 has no field 'prompt'"),
        ({"genai_image.json": {"1": 3}}, "prompt 1 must be a JSON object, got int"),
        *[
            ({"genai_image.json": {"1": {"prompt": "A.", "models": {"x": ratings}}}}, f"x must be a list{message}")
            for ratings, message in [(3, ", got 3"), *((bad, " of ratings from 1 to 5") for bad in ([6], ["5"], [NAN]))]
        ],
    ],
    "foil": [
        *[(foils(id=bad), "annotation 3: id must be a whole number, got ") for bad in (True, 1.5, "1", None)],
        *[(foils(foil=bad), "annotation 3: foil must be true or false, got ") for bad in (1, "true")],
        *[(foils(caption=bad), "annotation 3: caption must be text, got ") for bad in (None, 3, ["a"])],
        (foils(id=9), "annotation 3: the id 9 has no caption that is not a foil"),
        (foils(foil=False), "annotation 3: the id 7 has two captions that are not foils"),
        (foils(image_id=5), "the image 5 has no captions in captions_val2014.json"),
        (foils(image_id=6), "annotation 3: there is no image with the id 6"),
        (foils() | {"foilv1.0_test_2017.json": {"images": []}}, "has no field 'annotations'"),
        (foils() | {"foilv1.0_test_2017.json": FOILS | {"images": [{"id": 42}]}}, "image 1 has no field 'file_name'"),
        ({"foilv1.0_test_2017.json": FOILS}, r"holds no captions_val2014.json or annotations/.*cocodataset.org"),
    ],
    "nocaps-foil": [
        ({"nocaps-val-foil.json": [NOCAPS, without(NOCAPS, name)]}, f"nocaps-val-foil.json, entry 2.*{name}")
        for name in NOCAPS
    ],
    "sugarcrepe": [
        (contrast("swap_obj", SUGARCREPE, {"1": NEGATIVE, "2": without(NEGATIVE, name)}), f"swap_obj.*entry 2.*{name}")
        for name in NEGATIVE
    ],
    "valse": [
        *[
            (contrast("relations", VALSE, {"1": FOILED, "2": without(FOILED, name)}), f"relations.*, entry 2.*{name}")
            for name in FOILED
        ],
        *[
            (contrast("relations", VALSE, {"1": FOILED | {"mturk": bad}}), "entry 1: mturk must be an object, got ")
            for bad in ([], None)
        ],
    ],
    "pascal-50s": [
        ({"pascal_50s.json": {category: [{**PAIR, "references": [], **change}]}}, message)
        for category, change, message in [
            ("HH", {}, "category must be HC, HI, HM, MM, got 'HH'"),
            ("HC", {"label": 2}, "HC, pair 1: label must be"),
            ("HC", {"captions": ["x", 3]}, "HC, pair 1: captions must be a list of 2 texts"),
        ]
    ],
    "winoground": [
        *[
            ({"examples.jsonl": [EXAMPLE, without(EXAMPLE, name)], "images.zip": ZIP}, f"jsonl, line 2.*{name}")
            for name in ("image_0", "image_1", "caption_0", "caption_1")
        ],
        ({"examples.jsonl": [EXAMPLE | {"tag": 5}], "images.zip": ZIP}, "line 1: tag must be text, got 5"),
        ({"examples.jsonl": [EXAMPLE]}, r"holds no images.zip. Winoground needs"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("benchmark", "files", "message"), [(name, *row) for name, rows in BAD.items() for row in rows]
)
def test_bad_files_are_refused_by_place(benchmark: str, files: Files, message: str, tmp_path: Path) -> None:
    write_files(tmp_path, files)
    alone = len(files) == 1 and "test.parquet" not in files  # the file itself, else its folder
    data = tmp_path / next(iter(files)) if alone else tmp_path
    with pytest.raises(DataError, match=message):
        load_benchmark(benchmark, data)


JSON_FILES = {
    "foil": "foilv1.0_test_2017.json",
    "nocaps-foil": "nocaps-val-foil.json",
    "pascal-50s": "pascal_50s.json",
}


@pytest.mark.parametrize("name", JSON_FILES)
@pytest.mark.parametrize("text", ["", "{", '{"a": 1, "a": 2}', "[1]", "3", '{"images": 1, "HC": [[]], "0": []}'])
def test_json_of_another_kind_is_refused_by_name(name: str, text: str, tmp_path: Path) -> None:
    write_files(tmp_path, {JSON_FILES[name]: text, "captions_val2014.json": {"annotations": []}})
    with pytest.raises(DataError, match=JSON_FILES[name]):
        load_benchmark(name, tmp_path / JSON_FILES[name])
