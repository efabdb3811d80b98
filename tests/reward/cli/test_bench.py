"""`capreward bench` and `capreward compare`: what they print, keep and refuse."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from reward.cli.main import main
from reward.cli.terminal import print_table
from tests.reward.cli.conftest import Run
from tests.reward.metaeval.small_benchmarks import use_metrics, write_pairs, write_rated

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def run(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """The command in a narrow terminal, with metrics and a cache of the test's own."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("PICTURE_LOG", str(tmp_path / "scored.log"))
    use_metrics(monkeypatch)
    return run


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_rated(tmp_path / "folder with spaces", 30)


def scored(tmp_path: Path) -> int:
    log = tmp_path / "scored.log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def rows(out: str) -> list[str]:
    """The first cells of a table."""
    return [line.split("│")[1].strip() for line in out.splitlines() if line.startswith("│")]


FLICKR = ("bench", "--benchmark", "flickr8k-expert", "--resamples", 100)


def test_the_table_and_a_second_run_from_the_cache(run: Run, data: Path, tmp_path: Path) -> None:
    line = (*FLICKR, "--data", data, "--metric", "picture", "-m", "length", "--score-column", "good", "-s", "bad")
    code, out, err = run(*line)
    assert code == 0
    assert rows(out) == ["picture", "length", "column:good", "column:bad"]
    assert "Flickr8k-Expert: tau-c x 100, 30 items" in out
    assert "best" in out
    assert "picture on Flickr8k-Expert, 30 captions" in err
    assert "measured" not in out
    assert scored(tmp_path) == 30
    assert {path.suffix for path in (tmp_path / "xdg" / "capreward" / "scores").iterdir()} == {".jsonl"}
    assert run(*line)[1] == out
    assert scored(tmp_path) == 30
    assert "Captions scored by an earlier run keep the time that was measured then." in run(*line)[2]


def test_json_is_one_object_and_nothing_else(run: Run, data: Path, tmp_path: Path) -> None:
    line = (*FLICKR, "--data", data, "-m", "picture", "-s", "good", "--json", "--seed", 3, "--cache", tmp_path / "c")
    code, out, err = run(*line)
    figures = json.loads(out)
    assert code == 0
    assert (tmp_path / "c").is_dir()
    assert not (tmp_path / "xdg").exists()
    assert (figures["seed"], figures["resamples"], figures["references"]) == (3, 100, True)
    assert figures["command"].startswith("capreward bench --benchmark flickr8k-expert")
    assert {"python", "numpy", "scipy"} <= set(figures["versions"])
    [benchmark] = figures["benchmarks"]
    assert (benchmark["name"], benchmark["items"], benchmark["data"]) == ("flickr8k-expert", 30, str(data))
    metric, column = benchmark["rows"]
    assert (metric["kind"], column["kind"], benchmark["best"]) == ("metric", "column", "column:good")
    assert (metric["scored"], metric["scored_by_this_run"], metric["scored_before"]) == (30, 30, 0)
    assert metric["seconds_per_caption"] > 0
    estimate = column["estimates"]["overall"]
    assert -1 <= estimate["low"] <= estimate["value"] <= estimate["high"] <= 1
    assert column["details"]["overall"]["tau_c"] == estimate["value"]
    assert "scoring" in err  # progress


def test_quiet_says_nothing_but_what_went_wrong(run: Run, data: Path) -> None:
    assert run(*FLICKR, "-d", data, "-m", "length", "--quiet")[2] == ""
    (data.parent / "1.png").unlink()
    code, _, err = run(*FLICKR, "-d", data, "-m", "picture", "--quiet")
    assert code == 0
    assert "picture on Flickr8k-Expert: 3 of 30 captions not scored; the first: image file" in err


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_table_too_wide_for_the_terminal_is_cut_between_columns(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_several_benchmarks_limits_and_the_report(run: Run, data: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pairs = write_pairs(tmp_path / "pairs", 20)
    output = tmp_path / "my report"
    line = ["bench", "-b", f"flickr8k-expert={data}", "-b", f"pascal-50s={pairs}", "--limit", 16, "--resamples", 50]
    code, out, err = run(*line, "-m", "length", "-s", "good", "-o", output)
    assert code == 0
    assert "All benchmarks, x 100" in out
    assert "column:good on Pascal-50S (draw 1): left out, because pascal-50s has no score column" in err
    figures = json.loads((output / "bench.json").read_text())
    assert [each["items"] for each in figures["benchmarks"]] == [16, 16]
    assert (output / "bench.html").stat().st_size > 10_000
    assert "| length |" in (output / "bench.md").read_text()


def test_all_metrics_are_those_that_can_score_the_data(run: Run, data: Path) -> None:
    code, out, _ = run(*FLICKR, "-d", data, "--metric", "all", "-m", "length", "--score-column", "good")
    assert (code, rows(out)) == (0, ["length", "unigram", "picture", "column:good"])
    for image in data.parent.glob("*.png"):
        image.unlink()
    code, out, err = run(*FLICKR, "-d", data)  # without metrics
    assert (code, rows(out)) == (0, ["length", "unigram"])
    assert "left out: picture (looks at the images" in err


def test_images_from_another_folder(run: Run, data: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for image in data.parent.glob("*.png"):
        shutil.move(image, tmp_path / "photos" / image.name)
    code, _, err = run(*FLICKR, "-d", data, "-m", "picture")
    assert code == 1
    assert err.startswith("error: metric 'picture' looks at the images, and none of those of flickr8k-expert exists")
    assert "--images" in err
    assert run(*FLICKR, "-d", data, "-m", "picture", "--images", tmp_path / "photos")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["-b", "flickr"], 1, "error: no benchmark is named 'flickr'; there are: "),
        (["-m", "length"], 2, "is missing; `capreward bench --list` shows"),
        (["-b", "flickr8k-expert", "-d", "absent.jsonl"], 1, "absent.jsonl does not exist. Flickr8k-Expert needs"),
        (["-b", "flickr8k-expert=DATA", "-s", "fleur"], 1, "has no score column 'fleur'; its score columns: good, bad"),
        (["-b", "flickr8k-expert=DATA", "-m", "bleuu"], 1, "error: no metric is named 'bleuu'; installed: "),
        (["-b", "flickr8k-expert=DATA", "-m", "length="], 1, "'length=' is not a metric: write NAME, or NAME=SOURCE"),
        (["-b", "flickr8k-expert=DATA", "-m", "unigram", "--no-references"], 1, "(--no-references withholds them)"),
        (["-b", "flickr8k-expert=DATA", "-b", "scenes", "-d", "DATA"], 2, "goes with one --benchmark; write NAME=PATH"),
        (["-b", "flickr8k-expert=DATA", "-d", "DATA"], 2, "gives a path twice"),
        (["-b", "flickr8k-expert="], 2, "has no path"),
        (["-b", "flickr8k-expert=DATA", "--part", "test"], 1, "has no part 'test'"),
        (["-b", "scenes", "-d", "DATA"], 1, "made on the spot"),
        (["-b", "flickr8k-expert=DATA", "-m", "length", "--limit", "0"], 2, "--limit"),
        (["-b", "flickr8k-expert=DATA", "-m", "length", "--device", "gpu"], 2, "device 'gpu' cannot be used: "),
        (["-b", "flickr8k-expert=DATA", "-m", "length", "--limit", "1"], 1, "error: nothing to evaluate for length"),
        (["-b", "flickr8k-expert=DATA", "-m", "length", "-o", "DATA"], 1, "error: cannot write"),
        (["-b", "flickr8k-expert=DATA", "-m", "length", "--cache", "DATA"], 1, "Choose another with --cache (cache=)"),
        (["-b", "flickr8k-expert=EMPTY", "-m", "length"], 1, "EMPTY"),
        (["-b", "flickr8k-expert=BROKEN", "-m", "length"], 1, "BROKEN"),
    ],
)
def test_wrong_arguments_are_one_line(
    run: Run, data: Path, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    if "-o" in arguments:
        pytest.importorskip("matplotlib")
    empty, broken = tmp_path / "empty.jsonl", tmp_path / "broken.jsonl"
    empty.write_text("")
    broken.write_text('{"image": "a.png"}\n')
    names = {"DATA": str(data), "EMPTY": str(empty), "BROKEN": str(broken)}

    def filled(text: str) -> str:
        for name, path in names.items():
            text = text.replace(name, path)
        return text

    got, out, err = run("bench", *map(filled, arguments))
    assert (got, "Traceback" in err) == (code, False)
    assert filled(message).replace("│", "") in err.replace("│ ", "").replace(" │", "")
    if "evaluate" not in message:
        assert out == ""


def test_a_metric_that_scores_nothing_ends_in_1_after_the_table(run: Run, tmp_path: Path) -> None:
    data = write_rated(tmp_path, 12, change=lambda row: row.update(candidate="fail " + row["candidate"]))
    code, out, err = run(*FLICKR, "-d", data, "-m", "picture", "-m", "length", "--json")
    assert code == 1
    rows = json.loads(out)["benchmarks"][0]["rows"]
    assert [row["errors"] for row in rows] == [12, 0]
    assert rows[0]["first_error"] == "the caption says fail"
    assert "error: nothing to evaluate for picture: the caption says fail" in err
    shown = run(*FLICKR, "-d", data, "-m", "picture", "-m", "length")[1]
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if "│" in line]
    assert lines[0] == ["picture", "-", "0", "12", "-", "-"]
    assert lines[1][-1] == "best"


@pytest.mark.parametrize("kill", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_run_goes_on_where_it_was(run: Run, data: Path, tmp_path: Path, kill: signal.Signals) -> None:
    script = (
        "import pytest; from reward.cli.main import main; from reward.metaeval import scoring\n"
        "from tests.reward.metaeval.small_benchmarks import use_metrics\n"
        "use_metrics(pytest.MonkeyPatch()); scoring.FIRST_CHUNK = scoring.LARGEST_CHUNK = 4; main()"
    )
    line = ["bench", "-b", "flickr8k-expert", "-d", str(data), "-m", "picture", "--resamples", "50", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-c", script, *line],
        cwd=ROOT,
        env={**os.environ, "PICTURE_SECONDS": "0.05"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    while scored(tmp_path) < 8:
        time.sleep(0.01)
        assert process.poll() is None
    process.send_signal(kill)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130 if kill == signal.SIGINT else -kill, b"")
    text = " ".join(err.decode().split())
    if kill == signal.SIGINT:
        assert re.search(r"stopped; \d+ rows are saved in .*run the same again to go on", text)
    assert "Traceback" not in text
    before = scored(tmp_path)
    row = json.loads(run(*line)[1])["benchmarks"][0]["rows"][0]
    assert 4 <= before - 4 <= row["scored_before"] <= before  # at most a chunk is lost
    assert scored(tmp_path) - before == row["scored_by_this_run"] == 30 - row["scored_before"]
    whole = json.loads(run(*line, "--cache", tmp_path / "other")[1])["benchmarks"][0]["rows"][0]
    for name in ("estimates", "details", "counts", "scored", "errors"):
        assert row[name] == whole[name]


def test_what_a_library_prints_does_not_spoil_the_json(run: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.picture_scorer import PictureScorer

    own = PictureScorer.score

    def chatty(self: PictureScorer, samples: Any, **options: Any) -> Any:
        print("tokenizing ...")
        return own(self, samples, **options)

    monkeypatch.setattr(PictureScorer, "score", chatty)
    code, out, err = run(*FLICKR, "-d", data, "-m", "picture", "--json")
    assert code == 0
    assert json.loads(out)["benchmarks"]
    assert "tokenizing ..." in err


def test_shipped_metrics_on_scenes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    names = ["beitscore", "unigram", "length"]
    metrics = [argument for name in names for argument in ("-m", name)]
    line = ["bench", "-b", "scenes", "--limit", "8", "--resamples", "50", "--device", "cpu", "--json", *metrics]
    runs = []
    for _ in range(2):
        monkeypatch.setattr(sys, "argv", ["capreward", *line, "--cache", str(tmp_path)])
        with pytest.raises(SystemExit) as stop:
            main()
        assert not stop.value.code
        [benchmark] = json.loads(capsys.readouterr().out)["benchmarks"]
        runs.append({row["name"]: row for row in benchmark["rows"]})
    assert list(runs[0]) == names
    assert benchmark["columns"] == ["descriptiveness", "relevance", "fluency", "mean"]
    for name in names:
        assert [rows[name]["scored_by_this_run"] for rows in runs] == [8, 0]
        assert runs[0][name]["estimates"] == runs[1][name]["estimates"]
        assert runs[0][name]["devices"] == [f"CPU, {os.cpu_count()} cores"]


def test_list(run: Run) -> None:
    code, out, _ = run("bench", "--list", "--json")
    assert code == 0
    listed = {each["name"]: each for each in json.loads(out)["benchmarks"]}
    assert {"flickr8k-expert", "pascal-50s", "scenes"} <= set(listed)
    assert listed["flickr8k-expert"]["statistic"] == "tau-c"
    code, out, _ = run("bench", "--list")
    assert code == 0
    assert {line.partition(":")[0] for line in out.splitlines() if not line.startswith(" ")} == set(listed)


def test_compare_prints_the_difference_and_shares_the_cache(run: Run, data: Path, tmp_path: Path) -> None:
    run(*FLICKR, "-d", data, "-m", "picture")
    line = ("compare", "column:good", "picture", "-b", "flickr8k-expert", "-d", data, "--resamples", 100)
    code, out, _ = run(*line)
    assert code == 0
    assert scored(tmp_path) == 30
    assert "difference" in out
    assert "column:good" in out.splitlines()[-1]
    figures = json.loads(run(*line, "--json")[1])
    assert (figures["first"], figures["second"], figures["scored"]) == ("column:good", "picture", 30)
    column = figures["columns"]["overall"]
    assert column["difference"]["value"] == pytest.approx(column["first"] - column["second"])
    assert 0 < column["p"] <= 1
    [cells] = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if "│" in line]
    assert cells[:3] == ["overall", f"{100 * column['first']:.1f}", f"{100 * column['second']:.1f}"]
    assert cells[4:] == [f"{column['p']:.2g}" + " *" * (column["p"] < 0.05), "30"]
    assert figures["sentence"] == out.splitlines()[-1]


@pytest.mark.parametrize(
    ("sides", "message"),
    [
        (["column:good", "column:good"], "both sides are column:good"),
        (["length", "column:none"], "no score column 'none'; its score columns: good, bad"),
        (["length", "nope"], "no metric is named 'nope'"),
        (["length", "picture"], "picture could score no caption; the first: the caption says fail"),
    ],
)
def test_compare_refuses(run: Run, tmp_path: Path, sides: list[str], message: str) -> None:
    data = write_rated(tmp_path, 12, change=lambda row: row.update(candidate="fail " + row["candidate"]))
    code, out, err = run("compare", *sides, "-b", "flickr8k-expert", "-d", data, "--resamples", 20)
    assert (code, out) == (1, "")
    assert message in err


def test_the_published_scores_of_fleur(run: Run, shared_folder: Path) -> None:
    data = shared_folder / "data" / "flickr8k_expert_fleur.jsonl.gz"
    if not data.is_file():
        pytest.skip(f"needs {data}")
    code, out, _ = run(*FLICKR, "--data", data, "--score-column", "fleur", "--score-column", "fleur_raw")
    assert code == 0
    assert " 53.0 [" in out
    assert " 34.9 [" in out
