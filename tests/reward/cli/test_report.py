"""`capreward report`, and what pages of all reports promise: they need nothing else, and show what was scored."""

import json
import math
import re
from functools import partial
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from markupsafe import Markup

from reward.errors import DataError, OutputError
from reward.metaeval import Interval
from reward.metaeval.bench import run_bench
from reward.registry import MetricSource
from reward.report.bench import bench_report
from reward.report.plots import BEST, curve, histogram, intervals
from reward.report.report import Report, check_report
from reward.report.scored_data import read_scored
from reward.report.scores import scores_report
from reward.report.tables import Table
from tests.reward.metaeval.small_benchmarks import load_rated
from tests.reward.scoring.small_data import save_greys
from tests.toys.json_lines import write_lines
from tests.toys.pages import Page, rows_of

pytestmark = pytest.mark.slow
INTERVALS = {
    "<a> & $b$": Interval(0.5, 0.4, 0.6),
    "low": Interval(-0.05, -0.1, 0.0),
    "nothing": Interval(math.nan, math.nan, math.nan),
}
RISE = [(step, step / 50) for step in range(1, 50)]


@pytest.mark.parametrize(
    ("draw", "shown"),
    [
        (partial(intervals, INTERVALS, "F1 & more", colours={"low": BEST}), (">-0.050<", "F1 &amp;", "--best")),
        (partial(intervals, INTERVALS, "wins, %", scale=100), ("&lt;a&gt; &amp; $b$", ">50.0<", "--plain")),
        (partial(curve, {"reward": RISE}), ("reward", "--best", "mean of 9")),
        (partial(curve, dict.fromkeys("abcde", RISE[:3])), (">d<", ">e<", "--bad", ">step<")),
        (partial(histogram, np.array([]), "a$", "rows"), ("a$", "% of the rows")),
    ],
)
def test_plots_show_their_rows_in_the_colours_of_the_page(draw, shown):
    plot = str(draw())
    ElementTree.fromstring(plot.replace("<svg ", '<svg xmlns:xlink="http://www.w3.org/1999/xlink" ', 1))
    assert not re.search("#(1b2330|5c6878|2f5bea|8a94a3|b7791f|14804a|c22f3d)", plot)  # light or dark, the page says
    assert [text for text in shown if text not in plot] == []


def spans(plot, style):
    """Width and height of the paths of a style."""
    paths = re.findall(rf'<path d="([^"]*)"[^/]*{style}', plot)
    points = [re.findall(r"[ML] (\S+) (\S+)", path) for path in paths]
    return [np.ptp(np.array(path, dtype=float), axis=0) for path in points]


@pytest.mark.parametrize("scores", [[0.5] * 3, [1e20] * 3, [0.1, math.nextafter(0.1, 1)], [1e17, 1e17 + 16]])
def test_equal_scores_have_a_histogram_of_shares(scores):
    plot = histogram(np.array(scores), "reward")
    [area] = spans(plot, r"fill: var\(--best\)")
    assert (area > 1).all()
    assert re.search(r">(100|50)</text>", plot)


def test_a_curve_follows_its_points():
    points, means, *_ = spans(curve({"reward": RISE}), r"stroke: var\(--best\)")
    assert 0.8 < means[1] / points[1] < 1


@pytest.mark.parametrize(
    ("scores", "sentence"),
    [
        ([0.0] * 6 + [0.3, 0.5, 0.9], "6 of 9 rows (67 %) have 0.000, the lowest."),
        ([1.0] * 5 + [0.0, 0.2], "5 of 7 rows (71 %) have 1.000, the highest."),
        ([0.5] * 4, "4 of 4 rows (100 %) have 0.500."),
        ([0.1, 0.2, 0.3, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0], None),
    ],
)
def test_a_pile_of_equal_scores_is_explained_and_equal_columns_are_shown_once(tmp_path, scores, sentence):
    rows = [{"candidate": f"a dog {row}", "a_reward": 1 - row / 20} for row in range(len(scores))]
    rows = [{**row, "b_length": score, "b_reward": score} for row, score in zip(rows, scores, strict=True)]
    report = scores_report(read_scored(write_lines(tmp_path / "scores.jsonl", rows)))
    page = Page(report.write(tmp_path / "page.html"))
    assert ("pile" in page.shown, page.shown.count(str(sentence))) == (sentence is not None, int(sentence is not None))
    assert "b_length is not shown: it is the same as b_reward." in page.shown
    assert len(page.plots) == 2


def test_a_page_names_rows_columns_and_plots_by_files():
    path = "clipscore=/home/me/runs/best"
    frame = pd.DataFrame({"": [path, "/a/clip", "/b/clip"], path: [1, 2, 3]})
    shown = Report("", "", "", {}, [Table("", frame)], [], plots=[("", {path: Markup})]).html()
    assert (shown.count(f' title="{path}">clipscore=best</'), "<td>/a/clip</td>" in shown) == (3, True)
    assert "runs" not in intervals({path: Interval(0.5, 0.4, 0.6)})


def test_the_page_of_scores_shows_everything(tmp_path, run):
    rows = []
    for row in range(90):
        scores = {"relevance": row / 90, "reward": (row * 79) % 91 / 91, "error": None}
        if row % 10 == 9:
            scores = {"relevance": None, "reward": None, "error": f"cannot read 'x{row}.png': {row} bytes"}
        rows.append({"image": f"greys/{row % 3}.png", "candidate": "a <b> & dog " * (1 + row % 7), **scores})
    save_greys(tmp_path / "greys")
    (tmp_path / "greys" / "2.png").unlink()
    output = tmp_path / "new" / "report.html"
    line = ("report", write_lines(tmp_path / "scores.jsonl", rows), "-o", output)
    _, err = run(*line)
    assert "9 of 90 rows have no reward" in err
    assert "pictures are left out, as they could not be read; the first: image file" in err
    assert err.count("name the folder that image paths start from with --image-root") == 1
    page = Page(output)
    errors = "cannot read …: … bytes 9 10.00 row 10: cannot read 'x9.png': 9 bytes"
    for part in ("Scores", "relevance", "Best,", "Worst,", "a <b> & dog", "Kinds of errors: 1", errors):
        assert part in page.shown
    assert 0 < page.shown.count("no picture: ") == 12 - len(page.pictures)
    assert len(page.plots) == 2
    assert "is there already" in run(*line, code=1)[1]


@pytest.mark.parametrize(("command", "by"), [("score", "reward"), ("rerank", "rewards")])
def test_what_was_scored_is_found_again(command, by, tmp_path, run):
    """Columns of their own names, two captions an image, in a folder with a blank in its name."""
    data, scored, output = save_greys(tmp_path / "my photos"), tmp_path / "scores.jsonl", tmp_path / "report.html"
    texts = ["a star " * (row + 1) for row in range(6)]
    rows = [{"pic": f"{row % 3}.png", "text": text} for row, text in enumerate(texts)]
    if command == "rerank":
        rows = [{"pic": f"{row}.png", "text": texts[row::3]} for row in range(3)]
    names = ["--image-column", "pic", "--candidate-column", "text"]
    run(command, write_lines(data / "rows.jsonl", rows), "-m", "clipscore", "-o", scored, *names)
    _, err = run("report", scored, "-o", output)
    page = Page(output)
    assert (len(page.pictures), f"have no {by}" in err) == (6, False)
    same = f"clipscore is not shown: it is the same as {by}"
    for part in ("a star a star a star", "Scored by clipscore (weights for drawings).", same):
        assert part in page.shown

    (tmp_path / "scores.jsonl.summary.json").unlink()
    _, err = run("report", scored, "-o", output, "--overwrite", "--candidate-column", "text")
    page = Page(output)
    assert (page.pictures, "None" in page.shown, "name it with --image-column" in err) == ([], False, True)
    run("report", scored, "-o", output, "--overwrite", *names, "--image-root", data)
    assert len(Page(output).pictures) == 6


@pytest.mark.parametrize(
    ("scores", "captions", "best", "worst"),
    [
        ([0.9, 0.1, 0.9, 0.5, 0.9, 0.2, 0.1], "xyxzxwy", [(1, 3), (4, 1)], [(2, 2), (6, 1)]),
        ([0.9, 0.5, 0.1, 0.9], "xyzx", [(1, 2), (2, 1)], [(3, 1)]),
    ],
)
def test_equal_rows_are_shown_once_and_none_is_best_and_worst(tmp_path, monkeypatch, scores, captions, best, worst):
    monkeypatch.setattr("reward.report.scored_data._BATCH", 3)
    rows = [{"image": "a.png", "candidate": text, "reward": x} for text, x in zip(captions, scores, strict=True)]
    data = read_scored(write_lines(tmp_path / "scores.jsonl", rows), examples=2)
    assert data.scores["reward"].tolist() == scores
    assert [[*zip(frame["row"], frame["count"], strict=True)] for frame in (data.best, data.worst)] == [best, worst]


@pytest.mark.parametrize("cell", ["1,234", "much", "inf"])
def test_a_cell_that_is_no_score_is_named_with_its_row(cell, tmp_path):
    (tmp_path / "scores.csv").write_text(f"caption;reward\na;0,5\nb;{cell}\n")
    with pytest.raises(DataError, match=f"row 2: column 'reward' must hold scores, got '{cell}'"):
        read_scored(tmp_path / "scores.csv")


def test_a_column_of_texts_that_are_all_missing_is_empty_and_no_row_is_named(tmp_path):
    rows = pd.DataFrame({"candidate": ["a", "b"], "reward": [0.5, 0.7], "note": pd.array([None, None], "string")})
    rows.to_parquet(tmp_path / "scores.parquet")
    with pytest.raises(DataError, match="has a score in 'note', so there is nothing to report: the column is empty"):
        read_scored(tmp_path / "scores.parquet", by="note")


def test_candidates_in_lists_count_one_by_one(tmp_path):
    lists = [
        {"image": "a.png", "candidates": ["a", "b", "c"], "rewards": [0.5, None, 0.7], "fluency": [0.1, 0.2, 0.3]},
        {"image": "b.png", "candidates": None, "rewards": None, "fluency": None, "error": "broken"},
    ]
    data = read_scored(write_lines(tmp_path / "lists.jsonl", lists))
    report = scores_report(data)
    assert (report.notes, report.warnings[0]) == (["2 rows with 4 candidates."], "2 of 4 candidates have no rewards")
    assert [data.scores[name].dropna().tolist() for name in data.scores] == [[0.5, 0.7], [0.1, 0.2, 0.3]]
    assert [*zip(data.best["caption"], data.best["row"], strict=True)] == [("c", 1), ("a", 1)]
    assert data.errors.to_dict() == {2: "broken"}
    lists[0]["fluency"] = [0.5]
    with pytest.raises(DataError, match=r"'rewards' and other columns of .* hold lists of different lengths"):
        read_scored(write_lines(tmp_path / "lists.jsonl", lists))


def test_the_folder_of_a_report_holds_three_whole_files(tmp_path):
    column = 'sharp & <b>"$a^$"</b>'
    rated = load_rated(tmp_path, 20, change=lambda row: row.update({column: 1}))
    metrics = [MetricSource(column, is_column=True), MetricSource("length")]
    tables = run_bench([(rated, "path")] * 2, metrics, resamples=20)  # of one title
    report = bench_report(tables, command="capreward bench <x>", seed=0, resamples=20, references=True)
    folder = tmp_path / "my report" / "deep"
    for _ in range(2):  # again, over the files that are there
        page = Page(report.write(folder))
    assert {path.name for path in folder.iterdir()} == {"bench.json", "bench.md", "bench.html"}
    unknown = {"value": None, "low": None, "high": None}  # all scores are equal
    figures = json.loads((folder / "bench.json").read_text())
    assert rows_of(figures, "Flickr8k-Expert")[f"column:{column}"]["overall"] == unknown
    assert (f"column:{column}" in page.shown, len(page.plots)) == (True, 2)
    assert (folder / "bench.html").read_text().count('<tr class="best"><td>length</td>') == 2
    text = (folder / "bench.md").read_text()
    assert (text.count("## "), text.count("| **length** | **"), "nan" in text) == (3, 2, False)
    assert re.match("python .* · seed 0 · 20 resamples", text.splitlines()[-1])

    # One file alone names no other, and what LaTeX would read as commands is text.
    alone = report.write(tmp_path / "alone.html")
    assert [path.name for path in tmp_path.glob("alone*")] == ["alone.html"]
    assert ".json" not in alone.read_text()
    tex = report.write(tmp_path / "alone.tex").read_text()
    assert r'column:sharp \& \textless{}b\textgreater{}"\$a\textasciicircum{}\$"\textless{}/b' in tex
    assert (tex.count(r"\begin{tabular}"), tex.count(r"\textbf{length} & \textbf{")) == (3, 2)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=f"cannot write {tmp_path / 'file'}"):
        check_report(tmp_path / "file")
