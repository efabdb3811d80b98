"""GenAI-Bench and MMHE, each of one JSON file: what becomes labels, categories, ratings and score columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from reward.errors import DataError
from reward.metaeval.bench import MetricSource, run_bench
from reward.metaeval.bench_report import notes
from reward.metaeval.benchmarks import PreferencePair, RatedCaption, load_benchmark
from reward.metaeval.benchmarks.mmhe import CRITERIA
from reward.metaeval.scoring import score_benchmark
from reward.metrics.harmoniceval.scorer import HarmonicScorer
from tests.reward.metaeval.small_benchmarks import write_files, write_lines
from tests.toy_judges import RecordingJudge

# GenAI-Bench: every image of every generator is an item, with its prompt as the caption

GENAI = {
    "00000": {"id": "00000", "prompt": "A red ball.", "models": {"DALLE_3": [5, 4, 5], "SDXL_Base": [1, None, 2]}},
    "00001": {"id": "00001", "prompt": "Two cats.", "models": {"DALLE_3": [3, 3, 3], "SDXL_Base": [None]}},
}


def test_images_of_generators(tmp_path: Path) -> None:
    write_files(tmp_path, {"genai_image.json": GENAI, "SDXL_Base/00000.png": b"", "elsewhere/x": b""})
    for data, images in ((tmp_path, None), (tmp_path / "genai_image.json", None), (tmp_path, tmp_path / "elsewhere")):
        items = load_benchmark("genai-bench", data, images=images).items
        found = [item for item in items if isinstance(item, RatedCaption)]
        rows = [(item.candidate, item.ratings["overall"], item.category, item.image_id, item.image) for item in found]
        root, ending = images or tmp_path, "jpeg" if images else "png"
        assert rows == [
            ("A red ball.", (5, 4, 5), "DALLE_3", "DALLE_3/00000", root / "DALLE_3" / "00000.jpeg"),
            ("A red ball.", (1, 2), "SDXL_Base", "SDXL_Base/00000", root / "SDXL_Base" / f"00000.{ending}"),
            ("Two cats.", (3, 3, 3), "DALLE_3", "DALLE_3/00001", root / "DALLE_3" / "00001.jpeg"),
        ]


# MMHE: five criteria, and triplets whose best text is paired with each of the others


def triplet(*best: int, **shared: Any) -> list[dict[str, Any]]:
    texts = zip(("One.", "Two.", "Three."), best, strict=True)
    return [{"image": "a.jpg", "candidate": text, "best": count, **shared} for text, count in texts]


def test_criteria(tmp_path: Path) -> None:
    row = {"image": "a.jpg", "candidate": "One.", "ratings": {name: [1, 2, 5] for name in CRITERIA}, "category": "IC"}
    benchmark = load_benchmark("mmhe", write_lines(tmp_path / "a.jsonl", row))
    (item,) = benchmark.items
    assert isinstance(item, RatedCaption)
    assert (benchmark.aspects, item.category, item.ratings["clarity"]) == (CRITERIA, "IC", (1, 2, 5))


def test_best_of_three_becomes_pairs(tmp_path: Path) -> None:
    asked = triplet(0, 1, 0, item="a", category="VQA", question="How many?", overall=2.5)
    asked[1]["overall"] = 4
    path = write_lines(tmp_path / "a.jsonl", *asked, *triplet(1, 0, 2, item="b", category="IC", overall=None))
    benchmark = load_benchmark("mmhe-pairs", path)
    found = [item for item in benchmark.items if isinstance(item, PreferencePair)]
    better = [(item.captions[item.label or 0], item.captions[1 - (item.label or 0)]) for item in found]
    assert better == [
        *(("Two.", "One."), ("Two.", "Three."), ("One.", "Two."), ("One.", "Three.")),
        *(("Three.", "One."), ("Three.", "One."), ("Three.", "Two."), ("Three.", "Two.")),
    ]
    assert {item.label for item in found} == {0, 1}  # the better one is not always in the same place
    assert (found[0].category, found[0].question, found[2].question) == ("VQA", "How many?", None)
    assert (found[0].image, found[0].image_id, found[0].columns) == (tmp_path / "a.jpg", "a.jpg", {"overall": (2.5, 4)})
    contexts = [(each.question, each.task) for each in benchmark.samples() if each is not None]
    assert (contexts[0], contexts[-1]) == (("How many?", "VQA"), (None, "IC"))


@pytest.mark.parametrize("name", ["mmhe", "mmhe-pairs"])
def test_answers_are_judged_with_their_question_or_not_at_all(name: str, tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg")
    lines = triplet(1, 0, 0, item="a", category="VDU", question="How many?", ratings={"clarity": [3]})
    benchmark = load_benchmark(name, write_lines(tmp_path / "a.jsonl", *lines))
    judge = RecordingJudge(distribution={"4": 1.0})
    assert score_benchmark(benchmark, HarmonicScorer(judge, criteria=["correctness"])).errors == {}
    assert ["Question about the document:\n> How many?" in question.text for question in judge.asked] == [True] * 3
    [table] = run_bench([(benchmark, None)], [MetricSource("length")], resamples=20)
    assert any("does not read the questions of" in note for note in notes([table], resamples=20))
    for line in lines:
        del line["question"]
    with pytest.raises(DataError, match="text 1: a text of VDU answers a question; add it as `question`"):
        load_benchmark(name, write_lines(tmp_path / "b.jsonl", *lines))
