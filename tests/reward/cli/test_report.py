"""`capreward report`, and what pages of all reports promise: they need nothing else, and show what was scored."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from reward.errors import DataError, OutputError
from reward.metaeval.bench import run_bench
from reward.metaeval.benchmarks import load_benchmark
from reward.registry import MetricSource
from reward.report.bench import bench_report
from reward.report.page import check_report
from reward.report.scored_data import read_scored
from reward.report.scores import scores_report
from tests.reward.cli.conftest import Run
from tests.reward.metaeval.small_benchmarks import write_pairs, write_rated
from tests.reward.scoring.small_data import save_greys
from tests.toys.json_lines import write_lines

pytestmark = pytest.mark.slow


class Page(HTMLParser):
    """Pictures and texts of a page, which may load nothing and has no colours of its own in its plots."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.pictures: list[str] = []
        self.texts: list[str] = []
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"https?://(?!www\.w3\.org)|url\(\s*['\"]?(?!#)|@import", text)
        self.plots = re.findall(r"<svg .*?</svg>", text, re.DOTALL)
        for plot in self.plots:
            ElementTree.fromstring(plot.replace("<svg ", '<svg xmlns:xlink="http://www.w3.org/1999/xlink" ', 1))
            assert not re.search("#(1b2330|5c6878|2f5bea|8a94a3)", plot)  # light or dark, the page says
        self.feed(text)
        self.shown = " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        values = dict(attrs)
        assert tag not in ("script", "link", "iframe")
        for name in ("src", "href", "xlink:href", "srcset"):
            assert values.get(name, "#").startswith(("#", "data:"))
        if tag == "img":
            self.pictures.append(values["src"])

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())


@pytest.mark.parametrize("scores", [[0.5] * 3, [1e20] * 3, [0.1, math.nextafter(0.1, 1), 0.1], [1e17, 1e17 + 16, 1e17]])
def test_equal_scores_have_a_histogram(tmp_path: Path, run: Run, scores: list[float]) -> None:
    data = write_lines(tmp_path / "scores.jsonl", [{"candidate": "A dog.", "reward": score} for score in scores])
    run("report", data, "-o", tmp_path / "report.html")
    assert len(Page(tmp_path / "report.html").plots) == 1


def test_the_page_of_scores_shows_everything(tmp_path: Path, run: Run) -> None:
    rows = [
        {"image": f"greys/{row % 3}.png", "candidate": "a <b> & dog " * (1 + row % 7), "relevance": row / 90}
        | {"reward": (row * 79) % 91 / 91, "error": None}
        for row in range(90)
    ]
    for row in range(9, 90, 10):
        rows[row] |= {"relevance": None, "reward": None, "error": f"cannot read 'x{row}.png': {row} bytes"}
    save_greys(tmp_path / "greys")
    (tmp_path / "greys" / "2.png").unlink()
    output = tmp_path / "new" / "report.html"
    line = ("report", write_lines(tmp_path / "scores.jsonl", rows), "-o", output, "--examples", 4)
    _, told = run(*line)
    assert "9 of 90 captions have no reward" in told
    assert "pictures are left out, as they could not be read; the first: image file" in told
    assert told.count("name the folder that image paths start from with --image-root") == 1
    page = Page(output)
    for part in ("Scores", "relevance", "Best,", "Worst,", "a <b> & dog", "Errors: 1 kind"):
        assert part in page.shown
    assert "cannot read …: … bytes 9 10.00 row 10: cannot read 'x9.png': 9 bytes" in page.shown
    assert 0 < page.shown.count("no picture: ") == 8 - len(page.pictures)
    assert all(source.startswith("data:image/jpeg;base64,") for source in page.pictures)
    assert "is there already" in run(*line, code=1)[1]


@pytest.mark.parametrize("form", ["rows", "lists"])
def test_what_was_scored_is_found_again(form: str, tmp_path: Path, run: Run) -> None:
    """Columns of their own names, two captions an image, in a folder with a blank in its name."""
    data, scored, output = save_greys(tmp_path / "my photos"), tmp_path / "scores.jsonl", tmp_path / "report.html"
    said = ["a star " * (row + 1) for row in range(6)]
    rows: list[dict[str, Any]] = [{"pic": f"{row % 3}.png", "said": text} for row, text in enumerate(said)]
    if form == "lists":
        rows = [{"pic": f"{place}.png", "said": said[place::3]} for place in range(3)]
    names = ["--image-column", "pic", "--candidate-column", "said"]
    command = "rerank" if form == "lists" else "score"
    run(command, write_lines(data / "rows.jsonl", rows), "-m", "clipscore", "-o", scored, *names)
    _, told = run("report", scored, "-o", output)
    page = Page(output)
    by = "rewards" if form == "lists" else "reward"
    assert (len(page.pictures), f"captions have no {by}" in told) == (6, False)
    for part in ("a star a star a star", "Scored by clipscore (checkpoint: embedded)."):
        assert part in page.shown
    assert f"clipscore is not shown: it is the same as {by}" in page.shown

    (tmp_path / "scores.jsonl.summary.json").unlink()
    _, told = run("report", scored, "-o", output, "--overwrite")
    page = Page(output)
    assert (page.pictures, "None" in page.shown) == ([], False)
    for part in ("name it with --candidate-column", "name it with --image-column"):
        assert part in page.shown
        assert part in told
    run("report", scored, "-o", output, "--overwrite", *names, "--image-root", data)
    assert len(Page(output).pictures) == 6


def test_what_caption_wrote_is_shown_with_its_candidates(tmp_path: Path, run: Run) -> None:
    folder, output, page = save_greys(tmp_path / "photos"), tmp_path / "captions.jsonl", tmp_path / "report.html"
    (folder / "broken.png").write_bytes(b"none")
    sampling = ["--n", 2, "--max-tokens", 8, "--seed", 0, "--keep-candidates"]
    run("caption", "--model", "embedded", folder, "-m", "clipscore", "-o", output, *sampling)
    run("report", output, "-o", page)
    assert "1 of 4 captions have no reward" in Page(page).shown
    assert len(Page(page).pictures) == 3
    run("report", f"{output}.candidates.jsonl", "-o", page, "--overwrite")
    assert "3 rows with 6 candidates." in Page(page).shown
    assert "Scored by clipscore (checkpoint: embedded)." in Page(page).shown


# What is read


@pytest.mark.parametrize(
    ("scores", "captions", "best", "worst"),
    [
        ([0.9, 0.1, 0.9, 0.5, 0.9, 0.2, 0.1], "xyxzxwy", [(1, 3), (4, 1)], [(2, 2), (6, 1)]),
        ([0.9, 0.5, 0.1, 0.9], "xyzx", [(1, 2), (2, 1)], [(3, 1)]),
    ],
)
def test_equal_rows_of_all_batches_are_shown_once_and_none_is_best_and_worst(
    tmp_path, monkeypatch, scores, captions, best, worst
):
    monkeypatch.setattr("reward.report.scored_data._BATCH", 3)
    rows = [{"image": "a.png", "candidate": text, "reward": x} for text, x in zip(captions, scores, strict=True)]
    found = read_scored(write_lines(tmp_path / "scores.jsonl", rows), examples=2)
    assert found.scores["reward"].tolist() == scores
    shown = ([*zip(kept["row"], kept["count"], strict=True)] for kept in (found.best, found.worst))
    assert [*shown] == [best, worst]


def test_candidates_in_lists_count_one_by_one(tmp_path: Path) -> None:
    lists: list[dict[str, Any]] = [
        {"image": "a.png", "candidates": ["a", "b", "c"], "rewards": [0.5, None, 0.7], "fluency": [0.1, 0.2, 0.3]},
        {"image": "b.png", "candidates": None, "rewards": None, "fluency": None, "error": "broken"},
    ]
    found = read_scored(write_lines(tmp_path / "lists.jsonl", lists))
    assert (found.rows, scores_report(found).warnings[:1]) == (2, ["2 of 4 captions have no rewards"])
    assert [found.scores[name].dropna().tolist() for name in found.scores] == [[0.5, 0.7], [0.1, 0.2, 0.3]]
    assert [*zip(found.best["caption"], found.best["row"], strict=True)] == [("c", 1), ("a", 1)]
    assert found.errors.to_dict() == {2: "broken"}
    lists[0]["fluency"] = [0.5]
    with pytest.raises(DataError, match=r"'rewards' and other columns of .* hold lists of different lengths"):
        read_scored(write_lines(tmp_path / "lists.jsonl", lists))


# The report of a bench


def test_the_folder_of_a_bench_holds_three_whole_files(tmp_path: Path) -> None:
    column = 'sharp & <b>"$a^$"</b>'
    rated = write_rated(tmp_path, 20, change=lambda row: row.update({column: row["good"]}))
    benchmarks = [("flickr8k-expert", rated), ("pascal-50s", write_pairs(tmp_path / "pairs", 12))]
    metrics = [MetricSource("length"), MetricSource(column, is_column=True)]
    tables = run_bench([(load_benchmark(*each), "path") for each in benchmarks], metrics, resamples=20)
    report = bench_report(tables, command="capreward bench <x>", seed=0, resamples=20, references=True)
    folder = tmp_path / "my report" / "deep"
    for _ in range(2):  # again, over the files that are there
        page = Page(report.write(folder))
    assert {path.name for path in folder.iterdir()} == {"bench.json", "bench.md", "bench.html"}
    assert json.loads((folder / "bench.json").read_text()) == report.to_json()
    assert f"column:{column}" in page.shown
    assert len(page.plots) == sum(len(table.columns) for table in tables)
    text = (folder / "bench.md").read_text()
    assert text.count("## ") == 5  # all benchmarks, and each with its other statistics
    assert "| **column:sharp" in text
    assert text.rstrip().splitlines()[-1].startswith("Seed 0; python ")


def test_a_report_that_cannot_be_written_is_refused_before_anything_is_scored(tmp_path: Path) -> None:
    check_report(tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=f"cannot write {tmp_path / 'file'}"):
        check_report(tmp_path / "file")
