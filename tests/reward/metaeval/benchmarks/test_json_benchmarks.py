"""GenAI-Bench and MMHE, each of one JSON file: what becomes labels, categories, ratings and score columns."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from reward.errors import DataError
from reward.metaeval.bench import MetricSource, run_bench
from reward.metaeval.bench_report import notes
from reward.metaeval.benchmarks import load_benchmark
from reward.metaeval.benchmarks.mmhe import CRITERIA
from reward.metaeval.scoring import score_benchmark
from reward.metrics.harmoniceval.scorer import HarmonicScorer
from tests.reward.metaeval.small_benchmarks import write_files, write_lines
from tests.toys.toy_judges import RecordingJudge

# GenAI-Bench: every image of every generator is an item, with its prompt as the caption

GENAI = {
    "00000": {"id": "00000", "prompt": "A red ball.", "models": {"DALLE_3": [5, 4, 5], "SDXL_Base": [1, None, 2]}},
    "00001": {"id": "00001", "prompt": "Two cats.", "models": {"DALLE_3": [3, 3, 3], "SDXL_Base": [None]}},
}


def test_images_of_generators(tmp_path: Path) -> None:
    write_files(tmp_path, {"genai_image.json": GENAI, "SDXL_Base/00000.png": b"", "elsewhere/x": b""})
    for data, images in ((tmp_path, None), (tmp_path / "genai_image.json", None), (tmp_path, tmp_path / "elsewhere")):
        rows = load_benchmark("genai-bench", data, images=images).rows
        root, ending = images or tmp_path, "" if images else ".png"
        names = ["captions", "ratings", "category", "image_id", "images"]
        assert list(rows[names].itertuples(index=False, name=None)) == [
            (("A red ball.",), {"overall": (5, 4, 5)}, "DALLE_3", "DALLE_3/00000", (root / "DALLE_3" / "00000",)),
            (
                ("A red ball.",),
                {"overall": (1, 2)},
                "SDXL_Base",
                "SDXL_Base/00000",
                (root / "SDXL_Base" / f"00000{ending}",),
            ),
            (("Two cats.",), {"overall": (3, 3, 3)}, "DALLE_3", "DALLE_3/00001", (root / "DALLE_3" / "00001",)),
        ]


def test_the_two_typing_errors_of_the_published_file_count_as_they_are_and_are_told(tmp_path: Path) -> None:
    odd = {"1": {"prompt": "A.", "models": {"x": [4, 41, 3], "y": [5, 5, 33]}}}
    write_files(tmp_path, {"genai_image.json": odd})
    with pytest.warns(UserWarning, match=r"outside 1 to 5 count as they are.*\[33, 41\]"):
        rows = load_benchmark("genai-bench", tmp_path).rows
    assert rows["ratings"].tolist() == [{"overall": (4, 41, 3)}, {"overall": (5, 5, 33)}]


# MMHE: five criteria, and triplets whose best text is paired with each of the others


def triplet(*best: int, **shared: Any) -> list[dict[str, Any]]:
    texts = zip(("One.", "Two.", "Three."), best, strict=True)
    return [{"image": "a.jpg", "candidate": text, "best": count, **shared} for text, count in texts]


def test_best_of_three_becomes_pairs(tmp_path: Path) -> None:
    asked = triplet(0, 1, 0, item="a", category="VQA", question="How many?", overall=2.5)
    asked[1]["overall"] = 4
    path = write_lines(tmp_path / "a.jsonl", *asked, *triplet(1, 0, 2, item="b", category="IC", overall=None))
    benchmark = load_benchmark("mmhe-pairs", path)
    found = benchmark.rows
    better = [(texts[int(n)], texts[1 - int(n)]) for texts, n in zip(found["captions"], found["label"], strict=True)]
    assert better == [
        *(("Two.", "One."), ("Two.", "Three."), ("One.", "Two."), ("One.", "Three.")),
        *(("Three.", "One."), ("Three.", "One."), ("Three.", "Two."), ("Three.", "Two.")),
    ]
    assert {*found["label"]} == {0, 1}  # the better one is not always in the same place
    assert found["question"][[0, 2]].tolist() == ["How many?", None]
    assert (found["images"][0], found["image_id"][0]) == ((tmp_path / "a.jpg",), "a.jpg")
    assert benchmark.columns["overall"][0].tolist() == [2.5, 4]
    contexts = [(each.question, each.task) for each in benchmark.samples() if each is not None]
    assert (contexts[0], contexts[-1]) == (("How many?", "VQA"), (None, "IC"))


@pytest.mark.parametrize("name", ["mmhe", "mmhe-pairs"])
def test_answers_are_judged_with_their_question_or_not_at_all(name: str, tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg")
    lines = triplet(1, 0, 0, item="a", category="VDU", question="How many?", ratings={name: [3] for name in CRITERIA})
    benchmark = load_benchmark(name, write_lines(tmp_path / "a.jsonl", *lines))
    judge = RecordingJudge(distribution={"4": 1.0})
    scorer = HarmonicScorer(judge, criteria=["correctness"])
    found = score_benchmark(benchmark, scorer)
    other = score_benchmark(benchmark, HarmonicScorer(judge, prompt={**scorer.prompt.to_json(), "version": "mine"}))
    assert found.errors == {}
    assert re.fullmatch(r"harmonic-\d+ [0-9a-f]{16}", found.prompt)
    assert other.prompt.startswith("mine ")
    assert other.prompt[-16:] != found.prompt[-16:]
    del judge.asked[3:]
    assert ["Question about the document:\n> How many?" in question.text for question in judge.asked] == [True] * 3
    [table] = run_bench([(benchmark, None)], [MetricSource("length")], resamples=20)
    assert any("does not read the questions of" in note for note in notes([table], resamples=20))
    for line in lines:
        del line["question"]
    with pytest.raises(DataError, match="text 1: a text of VDU answers a question; add it as `question`"):
        load_benchmark(name, write_lines(tmp_path / "b.jsonl", *lines))
