"""`capreward bench`: what it prints and writes, and its exit codes."""

import json
import re
import shutil

import pytest
from rich.cells import cell_len

from reward.cli.terminal import print_table
from tests.reward.metaeval.small_benchmarks import use_metrics, write_rated
from tests.toys.pages import rows_of
from tests.toys.picture_scorer import PictureScorer


def flickr(data):
    return ("bench", "--benchmark", f"flickr8k-expert={data}", "--resamples", 100)


@pytest.fixture
def run(run, monkeypatch, tmp_path):
    """The command in a narrow terminal, with metrics of the test's own."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("PICTURE_LOG", str(tmp_path / "scored.log"))
    use_metrics(monkeypatch)
    return run


@pytest.fixture
def data(tmp_path):
    return write_rated(tmp_path / "folder with spaces", 30)


def row_names(table):
    return [line.split("│")[1].strip() for line in table.splitlines() if line.startswith("│")]


@pytest.mark.slow
def test_the_table_has_metrics_and_columns_and_the_folder_keeps_the_scores(run, data, tmp_path):
    line = (*flickr(data), "--metric", "picture", "-m", "length", "--score-column", "good", "-s", "bad")
    for _ in range(2):
        out, err = run(*line, "--output", tmp_path / "my report")
        assert row_names(out) == ["picture", "length", "column:good", "column:bad"]
        assert "Flickr8k-Expert: tau-c x 100, 30 items" in out
        assert "best" in out
        assert "picture on Flickr8k-Expert, 30 captions" in err
    assert len((tmp_path / "scored.log").read_text().splitlines()) == 30
    assert {path.suffix for path in (tmp_path / "my report").iterdir()} == {"", ".json", ".md", ".html"}


def test_json_is_one_object(run, data, monkeypatch):
    own = PictureScorer.score

    def chatty(*arguments, **options):
        print("tokenizing ...")  # as libraries do
        return own(*arguments, **options)

    monkeypatch.setattr(PictureScorer, "score", chatty)
    out, err = run(*flickr(data), "-m", "picture", "-s", "good", "--json", "--seed", 3, "--limit", 16)
    figures = json.loads(out)
    assert "tokenizing ..." in err
    assert "scoring" in err  # progress
    assert (figures["seed"], figures["resamples"], figures["references"]) == (3, 100, True)
    assert figures["command"].startswith("capreward bench --benchmark 'flickr8k-expert=")
    rows = rows_of(figures, "Flickr8k-Expert: tau-c x 100, 16 items")
    assert [(name, row["p (overall)"] == "best") for name, row in rows.items()] == [
        ("picture", False),
        ("column:good", True),
    ]
    [benchmark] = figures["benchmarks"]
    assert benchmark["data"] == str(data)
    assert 100 * benchmark["details"]["picture"]["overall"]["tau_c"] == rows["picture"]["overall"]["value"]


def test_quiet_says_nothing_but_what_went_wrong(run, data):
    assert run(*flickr(data), "-m", "length", "--quiet")[1] == ""
    (data.parent / "1.png").unlink()
    _, err = run(*flickr(data), "-m", "picture", "--quiet")
    assert "picture on Flickr8k-Expert: 3 of 30 captions not scored; the first: image file" in err


@pytest.mark.parametrize("width", [40, 120])
def test_a_wide_table_is_cut_between_columns(width, monkeypatch, capsys):
    heads = ["", *(f"aspect {number}" for number in range(8))]
    rows = [["[/b]", *(f"{number}1.2 [30.0, 40.0]" for number in range(8))], ["猫:dog:", *"abcdefgh"]]
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    print_table(heads, rows, title="Title", best=1)
    piped = capsys.readouterr().out
    assert piped.count("Title") == piped.count("[/b]") == piped.count("猫:dog:") == 1  # nobody's terminal: one table
    monkeypatch.setenv("FORCE_COLOR", "1")  # which rich takes for a terminal
    print_table(heads, rows, title="Title", best=1)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert max(map(cell_len, shown.splitlines())) <= width
    assert shown.count("[/b]") == shown.count("猫:dog:") == shown.count("Title") > 1
    assert all(shown.count(text) == 1 for text in (*heads[1:], *rows[0][1:]))


def test_all_metrics_are_those_that_can_score_and_images_may_lie_elsewhere(run, data, tmp_path):
    out, _ = run(*flickr(data), "--metric", "all", "-m", "length", "--score-column", "good")
    assert row_names(out) == ["length", "unigram", "picture", "column:good"]
    (tmp_path / "photos").mkdir()
    for image in data.parent.glob("*.png"):
        shutil.move(image, tmp_path / "photos" / image.name)
    out, err = run(*flickr(data))
    assert row_names(out) == ["length", "unigram"]
    assert "left out: picture (looks at the images" in err
    out, _ = run(*flickr(data), "-m", "picture", "--images", tmp_path / "photos")
    assert row_names(out) == ["picture"]


def test_a_metric_that_scores_nothing_ends_in_1_after_the_table(run, tmp_path):
    data = write_rated(tmp_path, 12, change=lambda row: row.update(candidate="fail " + row["candidate"]))
    line = (*flickr(data), "-m", "picture", "-m", "length")
    out, err = run(*line, code=1)
    assert "error: nothing to evaluate for picture: the caption says fail" in err
    lines = [line.split("│")[1:-1] for line in out.splitlines() if "│" in line]
    assert [cell.strip() for cell in lines[0]] == ["picture", "-", "0", "12", "-", "-"]


def test_the_benchmarks_are_listed(run):
    listed = {each["name"]: each for each in json.loads(run("bench", "--list", "--json")[0])["benchmarks"]}
    assert listed["flickr8k-expert"]["statistic"] == "tau-c"
    assert all(f"{name}: " in run("bench", "--list")[0] for name in listed)
