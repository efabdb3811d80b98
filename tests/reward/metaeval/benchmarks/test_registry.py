"""Every benchmark says what files it needs, and reads the common JSONL form of its items, also packed."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reward.errors import DataError
from reward.metaeval.benchmarks import Benchmark, benchmark_spec, list_benchmarks, load_benchmark
from reward.metaeval.benchmarks.items import PAIRS, QUADRUPLES, RATINGS
from tests.reward.metaeval.small_benchmarks import make_benchmark, write_lines

EXTERNAL = [name for name in list_benchmarks() if benchmark_spec(name).checked != "own"]
# A file that each of these needs.
NEEDED = {
    "foil": "foilv1.0_test_2017.json",
    "longcapvlcp": "pairs.jsonl",
    "nocaps-foil": "nocaps-val-foil.json",
    "pascal-50s": "pascal_50s.json",
    "sugarcrepe": "replace_obj.json",
    "valse": "existence.json",
    "winoground": "examples.jsonl",
}


@pytest.mark.parametrize("name", EXTERNAL)
def test_every_benchmark_says_what_it_needs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)  # between its retries
    spec = benchmark_spec(name)
    assert spec.ties == ("wrong" if name in (*NEEDED, "mmhe-pairs") else "half")
    assert NEEDED.get(name, "") in spec.files
    terms = re.escape(spec.licence) if spec.licence else "licence is not known to us"
    needs = f"{re.escape(f'{spec.title} needs {spec.files}. From: {spec.origin}.')} .*{terms}.*--data"
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.jsonl").touch()
    for data in (tmp_path / "absent", tmp_path / "empty", tmp_path / "empty.jsonl", None):
        with pytest.raises(DataError, match=needs):
            load_benchmark(name, data)


SHARED = {"image": "a.jpg", "references": ["One dog.", " "], "category": "HC"}
ROWS: dict[str, dict[str, Any]] = {
    RATINGS: {**SHARED, "candidate": "A dog.", "ratings": [1, None, 2], "metric": 0.5},
    PAIRS: {**SHARED, "captions": ["A dog.", "A cat."], "label": 1, "metric": [0.5, 0.25]},
    QUADRUPLES: {"images": ["a.jpg", "b.jpg"], "captions": ["x y", "y x"], "category": "HC", "metric": [1, 2, 3, 4]},
}


@pytest.mark.parametrize("name", EXTERNAL)
def test_every_benchmark_reads_the_common_form(name: str, tmp_path: Path) -> None:
    form = benchmark_spec(name).form
    row = ROWS[form] | ({"ratings": {"fluency": [1, None, 2]}} if name == "mmhe" else {})
    path = write_lines(tmp_path / "any.jsonl", row, "", {**row, "metric": [None] * 4 if form == QUADRUPLES else None})
    benchmark = load_benchmark(name, path)
    assert (benchmark.rows["category"].tolist(), benchmark.spec.name) == (["HC", "HC"], name)
    np.testing.assert_array_equal(
        benchmark.columns["metric"], [np.ravel(row["metric"]), np.full(benchmark.shape[1], np.nan)]
    )
    (tmp_path / "pictures").mkdir()
    elsewhere = load_benchmark(name, path, images=tmp_path / "pictures", limit=1)
    for item, folder in ((benchmark.rows.iloc[0], tmp_path), (elsewhere.rows.iloc[0], tmp_path / "pictures")):
        assert item["images"][0] == folder / "a.jpg"
        assert item["references"] == (() if form == QUADRUPLES else ("One dog.",))
    if form == RATINGS:
        assert [*benchmark.rows["ratings"][0].values()] == [(1, 2)]
    write_lines(path, row, {**row, "category": True})
    with pytest.raises(DataError, match="line 2: category must be text"):
        load_benchmark(name, path)
    assert len(load_benchmark(name, path, limit=1).rows) == 1  # the rest is not read


def test_fields_of_the_common_form(tmp_path: Path) -> None:
    rated = {"candidate": "A dog.", "ratings": {"fluency": 3, "clarity": [None]}, "category": 2, "x": float("nan")}
    path = write_lines(tmp_path / "a.jsonl", rated, {**rated, "ratings": [None, None]}, {**rated, "ratings": {}})
    (item,) = load_benchmark("ratings", path).rows.itertuples()  # nobody rated the others
    assert (item.ratings, item.category, item.images) == ({"fluency": (3.0,)}, "2", (None,))
    assert item.image_id.endswith("line 1")
    pair = {"image": "/elsewhere/a.jpg", "captions": ["A.", "B."], "question": "What?", "box": [1, 2, 3, 4]}
    pairs = load_benchmark("pairs", write_lines(tmp_path / "b.jsonl", {**pair, "label": None}, {**pair, "label": 0}))
    np.testing.assert_array_equal(pairs.rows["label"], [np.nan, 0])
    (item, _) = pairs.rows.itertuples()
    assert (item.question, item.images[0].box, item.images[0].image) == (
        "What?",
        [1, 2, 3, 4],
        Path("/elsewhere/a.jpg"),
    )


def test_packed_files_and_byte_order_marks(tmp_path: Path) -> None:
    packed, plain = tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl"
    line = '{"candidate": "A dog.", "ratings": [1], "score": NaN}'
    with gzip.open(packed, "wt", encoding="utf-8-sig") as file:
        file.write(line)
    plain.write_text(f"\n{line}", encoding="utf-8-sig")
    for path, number in ((packed, 1), (plain, 2)):
        assert load_benchmark("ratings", path).rows["image_id"].tolist() == [f"{path}, line {number}"]
    for path, content in (
        *((packed, broken) for broken in (packed.read_bytes()[:-12], b"no gzip")),
        (plain, b'{"candidate": "\xff"}'),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match="cannot read"):
            load_benchmark("ratings", path)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("flickr", {}, r"no benchmark is named 'flickr'; there are: .*flickr8k-cf"),
        ("caparena", {}, "a command of their own: capreward arena"),
        ("longcap-arena", {"data": "", "part": "TestC"}, "has no part 'TestC'; its parts: TestA, TestB, val"),
        ("composite", {"data": "", "images": "absent"}, r"no folder .*absent of images"),
        ("scenes", {"limit": 0}, "limit must be at least 1, got 0"),
        ("scenes-pairs", {"data": ""}, "the scenes are made on the spot"),
        ("ratings", {"data": ""}, r"not a \.jsonl file in the common form\. Your ratings needs a \.jsonl file"),
    ],
)
def test_unknown_names_parts_and_folders(tmp_path: Path, name: str, options: dict[str, Any], message: str) -> None:
    paths = {option: tmp_path / options[option] for option in ("data", "images") if option in options}
    with pytest.raises(DataError, match=message):
        load_benchmark(name, **{**options, **paths})


def test_columns_are_those_with_a_number_and_captions_that_no_metric_can_score_are_none() -> None:
    entries: list[dict[str, Any]] = [
        {"candidate": text, "ratings": [1], "references": ["\u200b", "A dog."], "b": None}
        for text in ("A.", " ", "\ud800")
    ]
    entries[1]["a"] = 1.0
    made = make_benchmark(entries, RATINGS, "tau-c")
    np.testing.assert_array_equal(made.columns["a"], [[np.nan], [1], [np.nan]])
    assert list(made.columns) == ["a"]
    first, *others = made.samples()
    assert first is not None
    assert first.references == ("A dog.",)
    assert others == [None, None]
    scenes: Benchmark = load_benchmark("scenes", limit=2)
    for references in (True, False):
        samples = scenes.samples(references=references)
        assert [sample is not None and bool(sample.references) for sample in samples] == [references] * 2
    assert scenes.rows["ratings"].map(len).tolist() == [3, 3]
