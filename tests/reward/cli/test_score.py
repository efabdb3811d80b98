"""`capreward score` and `rerank`: the options reach the function, and what they did is said."""

import io
import json
import subprocess
import sys
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from reward.metrics.words.scorer import LengthScorer
from tests.toys.json_lines import read_lines, write_lines

LONG = "A big red star in the top left."


@pytest.mark.slow
def test_without_output_the_rows_are_shown_and_kept_beside_the_data(run, tmp_path):
    rows = write_lines(tmp_path / "own.jsonl", [{"image": "0", "caption": LONG}, {"image": "1", "caption": ""}])
    out, err = run("score", rows, "-m", "length")
    shown = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if "│" in line]
    why = "candidate is empty: a caption needs at least one visible ch…"
    assert shown == [["0", LONG, "8", "8", ""], ["1", "", "", "0", why]]
    assert "own.scores.parquet" in err
    assert (tmp_path / "own.scores.parquet").is_file()
    lists = write_lines(tmp_path / "lists.jsonl", [{"image": "0", "candidates": ["A star.", LONG]}])
    out, err = run("rerank", lists, "-m", "length")
    assert (LONG in out, "length" in out, "reward" in out + err) == (True, True, False)  # the same number
    assert (tmp_path / "lists.ranked.parquet").is_file()
    (tmp_path / "set").mkdir()
    rows.rename(tmp_path / "set" / "captions.jsonl")
    run("score", tmp_path / "set", "-m", "length")
    assert (tmp_path / "set.scores.parquet").is_file()


def test_it_says_what_was_read_and_what_could_not_be_scored(run, tmp_path):
    rows = [{"caption": "a red star", "refs": ["one red star"]}, {"caption": "", "refs": ["x"]}]
    data, output = write_lines(tmp_path / "captions.jsonl", rows), tmp_path / "scores.jsonl"
    out, err = run("score", data, "--metric", "unigram", "--output", output)
    assert (out, [row["f1"] for row in read_lines(output)]) == ("", [pytest.approx(2 / 3), None])
    assert "columns read: candidate = caption, references = refs; 2 rows" in err
    assert "1 not scored (candidate); the first is row 2: candidate is empty" in err
    out, err = run("score", data, "-m", "length", "-o", tmp_path / "s.parquet", "--quiet")
    assert (out, err.startswith("1 not scored (candidate)")) == ("", True)


def test_pictures_that_are_left_out_are_told_of(run, tmp_path):
    rows = [{"image": {"bytes": b"x", "path": "1.jpg"}, "caption": "a star"}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "data.parquet")
    for command in ("score", "rerank"):
        line = [command, tmp_path / "data.parquet", "-m", "length", "-o", tmp_path / f"{command}.jsonl"]
        assert "left out" not in run(*line)[1]
        assert read_lines(line[-1])[0]["image"] == "data:image/jpeg;base64,eA=="
        told = "pictures inside the data are left out of the output (--drop-images)"
        assert told in run(*line, "--drop-images", "--overwrite")[1]
        assert read_lines(line[-1])[0]["image"] == "1.jpg"


LINES = [{"image": "0", "caption": "a"}, {"image": "0", "caption": "a b c"}, {"image": "1", "caption": None}]


@pytest.mark.parametrize(
    ("line", "rewards"),
    [
        ("score - -m length -o -", [1, 3, None]),
        ("score - -m length --quiet", [1, 3, None]),
        ("score data.jsonl -m length -o - --min-reward 1", [1, 3]),
        ("rerank - -m length -o - --top 1", [3]),
        ("score - -m length -o rows.jsonl --top 50%", [3]),
    ],
)
def test_rows_come_and_go_through_a_pipe(run, tmp_path, monkeypatch, line, rewards):
    monkeypatch.chdir(tmp_path)
    data = write_lines(tmp_path / "data.jsonl", LINES)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data.read_bytes())))
    out, _ = run(*line.split())
    rows = [json.loads(text) for text in out.splitlines()] or read_lines(tmp_path / "rows.jsonl")
    assert [row["reward"] for row in rows] == rewards
    assert {path.name for path in tmp_path.iterdir()} <= {"data.jsonl", "rows.jsonl", "rows.jsonl.summary.json"}


def test_who_reads_a_pipe_may_stop_early(tmp_path):
    data = write_lines(tmp_path / "data.jsonl", [{"caption": "a red star " * 20}] * 2000)
    command = f"{sys.executable} -m capreward score {data} -m length -o - --quiet | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 1)


def test_a_text_that_is_missing_is_told_apart_from_a_score(run, tmp_path, monkeypatch):
    score = LengthScorer.score_groups
    remarks = {0: "the judge gave no explanation"}
    monkeypatch.setattr(LengthScorer, "score_groups", lambda *a: score(*a)._replace(remarks=remarks))
    data = write_lines(tmp_path / "data.jsonl", [{"caption": "a star"}])
    _, err = run("score", data, "-m", "length", "-o", tmp_path / "o.jsonl")
    assert "1 scored, but without a text; the first is row 1: the judge gave no explanation" in err
    assert read_lines(tmp_path / "o.jsonl")[0]["length"] == 2


def test_pictures_alone_are_refused_before_a_data_set_is_made_of_them(run, tmp_path):
    folder = tmp_path / "my photos" / "1"
    folder.mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(folder / "1.png")
    assert run("score", folder.parent, "-m", "length", code=1)[1].startswith(f"error: {folder.parent} holds pictures")
