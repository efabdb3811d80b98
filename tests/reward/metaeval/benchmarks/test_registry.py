"""Every benchmark says what files it needs, and reads the common JSONL form of its items."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reward.errors import DataError
from reward.metaeval import evaluate
from reward.metaeval.benchmarks import (
    Benchmark,
    PreferencePair,
    Quadruple,
    RatedCaption,
    benchmark_spec,
    list_benchmarks,
    load_benchmark,
)
from tests.reward.metaeval.small_benchmarks import write_lines

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


def test_all_benchmarks_are_there() -> None:
    assert set(list_benchmarks()) == {
        *("longcap-arena", "flickr8k-expert", "flickr8k-cf", "composite", "polaris", "nebula", "vicr", "scenes"),
        *(
            "mmhe",
            "mmhe-pairs",
            "genai-bench",
            "evalmuse-40k",
            "scenes-pairs",
            "ratings",
            "pairs",
            "quadruples",
            *NEEDED,
        ),
    }


@pytest.mark.parametrize("name", EXTERNAL)
def test_every_benchmark_says_what_it_needs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)  # between its retries
    spec = benchmark_spec(name)
    assert spec.files
    assert spec.origin
    assert spec.statistic in {"tau-b", "tau-c", "accuracy", "auc", "group"}
    assert spec.checked == "schema"  # no published files are here
    assert spec.ties == ("wrong" if name in NEEDED else "half")
    terms = re.escape(spec.licence) if spec.licence else "licence is not known to us"
    needs = f"{re.escape(f'{spec.title} needs {spec.files}. From: {spec.origin}.')} .*{terms}.*--data"
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.md").write_text("Nothing here.")
    (tmp_path / "empty.jsonl").touch()
    assert NEEDED.get(name, "") in spec.files
    for data in (tmp_path / "absent", tmp_path / "empty", tmp_path / "other", tmp_path / "empty.jsonl", None):
        for part in (None, *spec.parts):
            with pytest.raises(DataError, match=needs):
                load_benchmark(name, data, part=part)


SHARED = {"image": "a.jpg", "references": ["One dog.", " "], "category": "HC"}
ROWS: dict[Any, dict[str, Any]] = {
    RatedCaption: {**SHARED, "candidate": "A dog.", "ratings": [1, 2], "metric": 0.5},
    PreferencePair: {**SHARED, "captions": ["A dog.", "A cat."], "label": 1, "metric": [0.5, 0.25]},
    Quadruple: {"images": ["a.jpg", "b.jpg"], "captions": ["x y", "y x"], "category": "HC", "metric": [1, 2, 3, 4]},
}


@pytest.mark.parametrize("name", EXTERNAL)
def test_every_benchmark_reads_the_common_form(name: str, tmp_path: Path) -> None:
    form = benchmark_spec(name).form
    row = ROWS[form] | ({"ratings": {"fluency": [1, 2]}} if name == "mmhe" else {})
    path = write_lines(tmp_path / "any.jsonl", row, {**row, "metric": [None] * 4 if form is Quadruple else None})
    benchmark = load_benchmark(name, path)
    first, second = benchmark.items
    assert isinstance(first, form)
    assert isinstance(second, form)
    assert (first.category, len(benchmark.items)) == ("HC", 2)
    assert first.columns["metric"] == (tuple(row["metric"]) if isinstance(row["metric"], list) else 0.5)
    (tmp_path / "pictures").mkdir()
    elsewhere = load_benchmark(name, path, images=tmp_path / "pictures", limit=1)
    for item, folder in ((first, tmp_path), (elsewhere.items[0], tmp_path / "pictures")):
        assert (item.images[0] if isinstance(item, Quadruple) else item.image) == folder / "a.jpg"
        assert isinstance(item, Quadruple) or item.references == ("One dog.",)
    write_lines(path, "")
    with pytest.raises(DataError, match="holds nothing to score"):
        load_benchmark(name, path)
    write_lines(path, row, {**row, "category": True})
    with pytest.raises(DataError, match="line 2: category must be text"):
        load_benchmark(name, path)
    assert len(load_benchmark(name, path, limit=1).items) == 1  # the rest is not read


def test_judgments_of_ones_own(tmp_path: Path) -> None:
    pair = {"image": "a.jpg", "captions": ["A dog.", "A cat."], "label": 0, "mine": [0.9, 0.1]}
    pairs = load_benchmark("pairs", write_lines(tmp_path / "pairs.jsonl", pair, {**pair, "mine": [0.2, 0.2]}))
    found = evaluate(pairs, np.array([item.columns["mine"] for item in pairs.items]), resamples=10)
    assert found.estimates["overall"].value == 0.75  # a tie is half right
    four = {"images": ["a.jpg", "b.jpg"], "captions": ["A dog.", "A cat."], "mine": [0.9, 0.1, 0.2, 0.8]}
    [item] = load_benchmark("quadruples", write_lines(tmp_path / "four.jsonl", four)).items
    assert item.columns == {"mine": (0.9, 0.1, 0.2, 0.8)}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("flickr", {}, r"no benchmark is named 'flickr'; there are: .*flickr8k-cf"),
        ("longcap-arena", {"data": "", "part": "TestC"}, "has no part 'TestC'; its parts: TestA, TestB, val"),
        ("composite", {"data": "", "part": "test"}, "composite has no part 'test'; its parts: none"),
        ("composite", {"data": "", "images": "absent"}, r"no folder .*absent of images"),
        ("scenes", {"limit": 0}, "limit must be at least 1, got 0"),
        (
            "ratings",
            {"data": ""},
            r"not a \.jsonl file in the common form\. Your ratings needs a \.jsonl file",
        ),
    ],
)
def test_unknown_names_parts_and_folders(tmp_path: Path, name: str, options: dict[str, Any], message: str) -> None:
    paths = {option: tmp_path / options[option] for option in ("data", "images") if option in options}
    with pytest.raises(DataError, match=message):
        load_benchmark(name, **{**options, **paths})


def test_columns_are_those_that_every_item_has_a_place_for() -> None:
    spec = benchmark_spec("flickr8k-expert")
    nan = float("nan")
    columns = [{"a": 1.0, "b": nan, "c": nan}, {"a": nan, "b": nan, "d": 1.0}]
    items = [RatedCaption("A.", {"overall": (1.0,)}, columns=values) for values in columns]
    assert Benchmark(spec, items).column_names == ("a",)
    assert Benchmark(spec, []).column_names == ()
    pair = PreferencePair(("A.", "B."), 0, columns={"a": (nan, 1.0)})
    four = Quadruple((None, None), ("A.", "B."), columns={"a": (nan,) * 4})
    assert Benchmark(spec, [pair]).column_names == ("a",)
    assert Benchmark(spec, [four]).column_names == ()


def test_captions_that_no_metric_can_score_are_none() -> None:
    rated = [RatedCaption(text, {"overall": (1.0,)}, references=("\u200b", "A dog.")) for text in ("A.", " ", "\ud800")]
    first, *others = Benchmark(benchmark_spec("vicr"), rated).samples()
    assert first is not None
    assert first.references == ("A dog.",)
    assert others == [None, None]
    scenes = load_benchmark("scenes", limit=2)
    for references in (True, False):
        samples = scenes.samples(references=references)
        assert [sample is not None and bool(sample.references) for sample in samples] == [references] * 2
    assert [len(item.ratings) for item in scenes.items if isinstance(item, RatedCaption)] == [3, 3]
