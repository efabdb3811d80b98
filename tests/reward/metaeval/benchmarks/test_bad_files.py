"""Files of benchmarks that are missing, damaged or malformed: the error names the file, the place and the field."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from reward.errors import DataError
from reward.metaeval.benchmarks import load_benchmark
from reward.metaeval.benchmarks.contrast import SUGARCREPE, VALSE
from tests.reward.metaeval.small_benchmarks import write_files

Files = dict[str, Any]

RATED = {"image": "a.jpg", "candidate": "A dog.", "references": ["A cat.", " "], "ratings": [1, 2.5], "metric": 0.25}
PAIR = {"image": "a.jpg", "captions": ["A dog.", "A cat."], "label": 1, "category": "HC", "metric": [0.5, 1]}
QUADRUPLE = {"images": ["a.jpg", None], "captions": ["A dog.", "A cat."], "metric": [1, 2, 3, None]}
TEXT = {"image": "a.jpg", "candidate": "One.", "item": "x", "category": "IC"}
FOIL = {"id": 7, "image_id": 42, "caption": "A cat runs.", "foil": True}
FOILS = {
    "images": [{"id": 42, "file_name": "42.jpg"}, {"id": 5, "file_name": "5.jpg"}],
    "annotations": [FOIL, FOIL | {"caption": "A dog runs.", "foil": False}],
}
COCO = {"annotations": [{"id": 1, "image_id": 42, "caption": "One dog."}]}
EXAMPLE = {"image_0": "a", "image_1": "b", "caption_0": "x y", "caption_1": "y x", "tag": "Noun"}


def lines(*rows: Any) -> Files:
    return {"a.jsonl": [*rows]}


def foils(**changed: Any) -> Files:
    """FOIL's files with one more foil."""
    rows = [*FOILS["annotations"], FOIL | changed]
    return {"foilv1.0_test_2017.json": FOILS | {"annotations": rows}, "captions_val2014.json": COCO}


def table(row: dict[str, Any]) -> Files:
    """A split with one row."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([row]), sink)
    return {"test.parquet": sink.getvalue().to_pybytes()}


# By benchmark: the files, and the message.
BAD: dict[str, list[tuple[Files, str]]] = {
    "ratings": [
        (lines({"candidate": "A."}), r"a\.jsonl, line 1 has no field 'ratings'; it has: candidate"),
        *[
            (lines(RATED, row), rf"(a\.jsonl, line 2|line 2 of .*a\.jsonl|item 2).*{message}")
            for row, message in [
                ({"ratings": [1]}, "has no field 'candidate'"),
                ({**RATED, "ratings": [True]}, "ratings must be numbers"),
                ({**RATED, "ratings": {"fluency": ["3"]}}, "ratings must be numbers"),
                ('{"candidate": "A.", "ratings": [1e999]}', "ratings must be finite numbers"),
                ('{"candidate": "A.", "ratings": [1], "x": 1%s}' % ("0" * 400), "OverflowError"),
                ({**RATED, "candidate": None}, "candidate must be text, got None"),
                ({**RATED, "references": "A cat."}, "references must be a list of texts, got 'A cat.'"),
                ({**RATED, "category": 1.5}, "category must be text or a whole number, got 1.5"),
                ({**RATED, "image": 3}, "image must be a path, got 3"),
                ({**RATED, "image": ""}, "image must be a path, got ''"),
                ("{", "Expecting property name"),
                ("[" * 100_000, "recursion"),
            ]
        ],
        (lines(RATED, "[1]"), "line 2 is no object"),
    ],
    "pairs": [
        *[(lines({**PAIR, "label": label}), "label must be 0, 1 or null") for label in (2, True, "1")],
        *[(lines({**PAIR, "captions": texts}), "captions must be a list of two texts") for texts in (["A."], "AB")],
    ],
    "quadruples": [(lines({**QUADRUPLE, "images": one}), "images must be a list of two") for one in (["a"], "ab")],
    "mmhe": [
        (lines({**RATED, "ratings": {"fluency": [1], "Clar": [2]}}), "text 1: the criteria are .*, got 'Clar'"),
        (lines(RATED), "text 1: the criteria are .*, got 'overall'"),
    ],
    "mmhe-pairs": [
        (lines(*({**TEXT, **change} for change in changes)), message)
        for changes, message in [
            ([{"best": -1}, {"best": 1}], "line 1: best must be how many people chose the text, .*, got -1"),
            ([{"best": 1}], "line 1: item must be of two texts or more, .*, one of them chosen, got 'x'"),
            ([{"best": 0}, {"best": 1, "image": "b.jpg"}], "line 1: item must be .*, equal in image and question"),
        ]
    ],
    "nebula": [
        (table({"cand": "A.", "refs": [], "score": 1}), "nothing names the image of the caption 'A.'"),
        (table({"cand": 3, "file_name": "1.jpg", "refs": [], "score": 1}), "item 1: candidate must be text, got 3"),
        (table({"cand": "A.", "file_name": "1", "refs": "no list", "score": 1}), "references must be a list of texts"),
        (table({"cand": "A.", "file_name": "1.jpg", "refs": [], "score": "x"}), "item 1: TypeError"),
    ],
    "polaris": [({"test.parquet": b"PAR1"}, "cannot read .*, item 1: .*")],
    "vicr": [
        ({"vicr.csv": "image,caption\n1.jpg,a dog\n"}, "item 1: KeyError: 'ratings'"),
        ({"vicr.csv": "image,caption,ratings\n1.jpg,a dog,x\n"}, "item 1: ValueError: could not convert .*'x'"),
        ({"vicr.csv": "image,caption,ratings\nhttp://x/,a dog,4\n"}, "item 1: image must be a path, got ''"),
        ({"vicr.csv": "image,caption,ratings\n1.jpg,a dog\n"}, "has 2 fields, but the header has 3"),
    ],
    "evalmuse-40k": [({"train_list.json": [{"prompt": "s", "img_path": "a"}]}, "item 1: KeyError: 'total_score'")],
    "genai-bench": [
        ({"genai_image.json": {"1": {"models": {"x": [1]}}}}, "item 1: KeyError: 'prompt'"),
        ({"genai_image.json": {"1": 3}}, "item 1: TypeError"),
        ({"genai_image.json": {"1": {"prompt": "A.", "models": {"x": ["5"]}}}}, "item 1: TypeError"),
    ],
    "foil": [
        (foils(caption=3), "item 2: captions must be a list of two texts"),
        (foils(id=9), "item 2: KeyError: 9"),
        (foils(image_id=5), "item 2: KeyError: 5"),
        (foils(image_id=6), "item 2: KeyError: 6"),
        (foils() | {"foilv1.0_test_2017.json": {"images": []}}, "item 1: KeyError: 'annotations'"),
        ({"foilv1.0_test_2017.json": FOILS}, r"holds no captions_val2014.json.*cocodataset.org"),
    ],
    "nocaps-foil": [({"nocaps-val-foil.json": [{"image_path": "13.jpg"}]}, "item 1: KeyError: 'references'")],
    "sugarcrepe": [
        ({f"{name}.json": {"1": {"filename": "42.jpg"}} for name in SUGARCREPE}, "item 1: KeyError: 'caption'")
    ],
    "valse": [({f"{name}.json": {"1": {"mturk": None}} for name in VALSE}, "item 1: TypeError")],
    "pascal-50s": [({"pascal_50s.json": {"HC": [{**PAIR, "label": 2}]}}, "item 1: label must be 0, 1 or null")],
    "longcapvlcp": [
        (lines({"image": "a.jpg", "correct": "A.", "incorrect": "A."}), "line 1: correct and incorrect caption are"),
        (lines({"image": "a.jpg", "correct": "A."}), "item 1: KeyError: 'incorrect'"),
    ],
    "winoground": [
        ({"examples.jsonl": [EXAMPLE | {"tag": 5.5}], "images/a.png": b""}, r"holds no images.zip. Winoground needs"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("benchmark", "files", "message"), [(name, *row) for name, rows in BAD.items() for row in rows]
)
def test_bad_files_are_refused_by_place(benchmark: str, files: Files, message: str, tmp_path: Any) -> None:
    write_files(tmp_path, files)
    alone = len(files) == 1 and "test.parquet" not in files  # the file itself, else its folder
    data = tmp_path / next(iter(files)) if alone else tmp_path
    with pytest.raises(DataError, match=message):
        load_benchmark(benchmark, data)


@pytest.mark.parametrize("text", ["", "{", '{"a": 1, "a": 2}', "[1]", "3", '{"images": 1, "HC": [[]], "0": []}'])
def test_json_of_another_kind_is_refused_by_name(text: str, tmp_path: Any) -> None:
    for name, file in {"foil": "foilv1.0_test_2017.json", "pascal-50s": "pascal_50s.json"}.items():
        write_files(tmp_path, {file: text, "captions_val2014.json": {"annotations": []}})
        with pytest.raises(DataError, match=file):
            load_benchmark(name, tmp_path / file)
