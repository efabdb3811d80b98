"""Flickr8k-Expert and Flickr8k-CF: the published text files and CLIPScore's JSON give the same items."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, DatasetDict
from PIL import Image

from reward.errors import DataError
from reward.metaeval.benchmarks import RatedCaption, load_benchmark
from reward.metaeval.scoring import score_benchmark
from reward.metrics.fleur.scorer import FleurScorer
from tests.reward.metaeval.small_benchmarks import write_files
from tests.toy_judges import RecordingJudge

DATA = Path(__file__).parents[5] / "shared" / "data" / "flickr8k_expert_fleur.jsonl.gz"
CAPTIONS = {
    "1_a.jpg": ["A dog  runs .", "A dog .", "The dog is out ."],
    "2_b.jpg": ["A cat sits .", "A cat .", "The cat is in ."],
}
EXPERT = """\
1_a.jpg\t2_b.jpg#0\t1\t1\t2
1_a.jpg\t1_a.jpg#1\t4\t4\t4
2_b.jpg\t1_a.jpg#0\t1\t2\t3
"""
CROWD = """\
1_a.jpg\t2_b.jpg#0\t0\t0\t3
1_a.jpg\t1_a.jpg#1\t1\t3\t0
2_b.jpg\t1_a.jpg#0\t0.3333333333333333\t1\t2
1_a.jpg\t2_b.jpg#1\t0.5\t2\t2
"""


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    lines = [f"{image}#{place}\t{text}\n" for image, texts in CAPTIONS.items() for place, text in enumerate(texts)]
    files = {"ExpertAnnotations.txt": EXPERT, "CrowdFlowerAnnotations.txt": CROWD}
    return write_files(tmp_path / "Flickr8k_text", {"Flickr8k.token.txt": "".join(lines), **files})


def entry(image: str, references: list[str], *judgments: tuple[str, float]) -> dict[str, Any]:
    """An image as in flickr8k.json."""
    path = f"Flicker8k_Dataset/{image}"
    rows = [{"image_id": image, "image_path": path, "caption": text, "rating": rating} for text, rating in judgments]
    return {"human_judgement": rows, "image_id": image, "image_path": path, "ground_truth": references}


def summary(path: Path, name: str, **options: Any) -> list[tuple[Any, ...]]:
    items = load_benchmark(name, path, **options).items
    assert all(isinstance(item, RatedCaption) for item in items)
    return [(item.image_id, item.candidate, item.ratings["overall"], item.references) for item in items]  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["flickr8k-expert", "flickr8k-cf"])
def test_refleur_sees_the_references_of_both_data_sets(texts: Path, name: str) -> None:
    for image in CAPTIONS:
        Image.new("RGB", (8, 8)).save(texts.parent / image)
    judge = RecordingJudge("0.5")
    for references in (True, False):
        data = load_benchmark(name, texts, images=texts.parent)
        score_benchmark(data, FleurScorer(judge, draws=1), references=references)
    seen = [sum(text in each.text for text in ("The dog is out .", "The cat is in .")) for each in judge.asked]
    assert seen == [1] * (len(seen) // 2) + [0] * (len(seen) // 2)


def test_expert_leaves_out_candidates_that_are_references(texts: Path) -> None:
    dog, cat = ("A dog runs .", "A dog .", "The dog is out ."), ("A cat sits .", "A cat .", "The cat is in .")
    expected = [("1_a.jpg", "A cat sits .", (1, 1, 2), dog), ("2_b.jpg", "A dog runs .", (1, 2, 3), cat)]
    for path in (texts, texts.parent, texts / "ExpertAnnotations.txt"):
        assert summary(path, "flickr8k-expert") == expected
    data = {
        "1_a": entry("1_a.jpg", CAPTIONS["1_a.jpg"], *(("A cat sits .", rating) for rating in (1.0, 1.0, 2.0))),
        "2_b": entry("2_b.jpg", CAPTIONS["2_b.jpg"], *(("A dog  runs .", rating) for rating in (1.0, 2.0, 3.0))),
    }
    write_files(texts.parent, {"flickr8k.json": data})
    for path in (texts.parent, texts.parent / "flickr8k.json"):
        assert summary(path, "flickr8k-expert") == expected


def test_crowd_takes_candidates_out_of_the_references(texts: Path) -> None:
    dog, cat = ("A dog runs .", "The dog is out ."), ("A cat sits .", "A cat .", "The cat is in .")
    expected = [
        ("1_a.jpg", "A cat sits .", (0.0,), dog),
        ("1_a.jpg", "A dog .", (1.0,), dog),
        ("1_a.jpg", "A cat .", (0.5,), dog),
        ("2_b.jpg", "A dog runs .", (1 / 3,), cat),
    ]
    for path in (texts, texts.parent, texts / "CrowdFlowerAnnotations.txt"):
        assert summary(path, "flickr8k-cf") == expected
    judgments = (("A cat sits .", 0.0), ("A dog .", 1.0), ("A cat .", 0.5))
    data = {
        "1_a.jpg": entry("1_a.jpg", list(dog), *judgments),
        "2_b.jpg": entry("2_b.jpg", list(cat), ("A dog runs .", 1 / 3), ("A dog .", float("nan"))),
    }
    write_files(texts.parent, {"crowdflower_flickr8k.json": data})
    assert summary(texts.parent, "flickr8k-cf") == expected


def test_images_are_in_the_folder_of_the_archive(texts: Path) -> None:
    def image(**options: Any) -> Any:
        return load_benchmark("flickr8k-expert", texts.parent, **options).items[0].image  # type: ignore[union-attr]

    elsewhere = texts.parent / "elsewhere"
    assert image() == texts.parent / "1_a.jpg"
    (texts.parent / "Flicker8k_Dataset").mkdir()
    assert image() == texts.parent / "Flicker8k_Dataset" / "1_a.jpg"
    for folder in (elsewhere, elsewhere / "images"):
        folder.mkdir()
        assert image(images=elsewhere) == folder / "1_a.jpg"


def test_a_caption_twice_in_a_row_is_two_items(tmp_path: Path) -> None:
    judgments = [("A.", rating) for rating in (1.0, 1.0, 2.0, 4.0, 4.0, float("nan"))]
    write_files(tmp_path, {"flickr8k.json": {"1": entry("1.jpg", ["B."], *judgments)}})
    assert [row[2] for row in summary(tmp_path, "flickr8k-expert")] == [(1, 1, 2), (4, 4)]


def test_tables_of_the_hub_are_one_judgment_a_row(tmp_path: Path) -> None:
    rows = {"imgid": ["1.jpg"] * 4, "cand": ["A.", "A.", "A.", "B."], "refs": [["C."]] * 4, "human_score": [1, 2, 2, 4]}
    (tmp_path / "expert").mkdir()
    Dataset.from_dict(rows).to_parquet(tmp_path / "expert" / "test-00000-of-00001.parquet")
    expected = [("1.jpg", "A.", (1, 2, 2), ("C.",)), ("1.jpg", "B.", (4,), ("C.",))]
    assert summary(tmp_path, "flickr8k-expert") == expected
    DatasetDict({"test": Dataset.from_dict(rows)}).save_to_disk(tmp_path / "saved")
    assert summary(tmp_path / "saved", "flickr8k-expert") == expected
    with pytest.raises(DataError, match=r"neither CrowdFlowerAnnotations.txt nor crowdflower_flickr8k.json"):
        load_benchmark("flickr8k-cf", tmp_path)


@pytest.mark.skipif(not DATA.exists(), reason="the published ratings and scores are not here")
def test_published_data_have_5664_pairs_in_either_form(tmp_path: Path) -> None:
    benchmark = load_benchmark("flickr8k-expert", DATA)
    assert len(benchmark.items) == 5664
    assert benchmark.column_names == ("fleur_raw", "fleur")
    items = [item for item in benchmark.items if isinstance(item, RatedCaption)]
    assert {len(item.ratings["overall"]) for item in items} == {3}
    assert not any(item.candidate in item.references for item in items)
    data: dict[str, Any] = {}
    for item in items:
        key = item.image_id.removesuffix(".jpg")
        data.setdefault(key, entry(item.image_id, list(item.references)))["human_judgement"] += [
            {"image_id": key, "caption": item.candidate, "rating": rating} for rating in item.ratings["overall"]
        ]
    write_files(tmp_path, {"flickr8k.json": data})
    assert sorted(summary(tmp_path, "flickr8k-expert")) == sorted(summary(DATA, "flickr8k-expert"))
