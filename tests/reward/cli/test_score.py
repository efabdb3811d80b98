"""`capreward score` and `rerank`: the options reach the function, and what they did is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reward.cli.conftest import Run
from tests.toys.json_lines import read_lines, write_lines

LONG = "A big red star in the top left."


@pytest.mark.slow
def test_without_output_the_rows_are_shown_and_kept_beside_the_data(run: Run, tmp_path: Path) -> None:
    rows = write_lines(tmp_path / "own.jsonl", [{"image": "0", "caption": LONG}, {"image": "1", "caption": ""}])
    out, err = run("score", rows, "-m", "length")
    shown = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if "│" in line]
    why = "candidate is empty: a caption needs at least one visible ch…"
    assert shown == [["0", LONG, "8", "8", ""], ["1", "", "", "0", why]]
    assert "own.scores.parquet" in err
    assert (tmp_path / "own.scores.parquet").is_file()
    lists = write_lines(tmp_path / "lists.jsonl", [{"image": "0", "candidates": ["A star.", LONG]}])
    assert LONG in run("rerank", lists, "-m", "length")[0]
    assert (tmp_path / "lists.ranked.parquet").is_file()
    assert run("score", rows, "-m", "length", "--quiet", "--overwrite")[0] == ""
    (tmp_path / "set").mkdir()
    rows.rename(tmp_path / "set" / "captions.jsonl")
    run("score", tmp_path / "set", "-m", "length")
    assert (tmp_path / "set.scores.parquet").is_file()


def test_it_says_what_was_read_and_what_could_not_be_scored(run: Run, tmp_path: Path) -> None:
    rows = [{"caption": "a red star", "refs": ["one red star"]}, {"caption": "", "refs": ["x"]}]
    data, output = write_lines(tmp_path / "captions.jsonl", rows), tmp_path / "scores.jsonl"
    out, err = run("score", data, "--metric", "unigram", "--output", output)
    assert out == ""
    assert [row["f1"] for row in read_lines(output)] == [pytest.approx(2 / 3), None]
    assert "columns read: candidate = caption, references = refs; 2 rows" in err
    assert "1 not scored (candidate); the first is row 2: candidate is empty" in err
    assert "scored 2 rows" in err
    out, err = run("score", data, "-m", "length", "-o", tmp_path / "s.parquet", "--quiet")
    assert (out, err.startswith("1 not scored (candidate)")) == ("", True)
