"""`capreward score` and `rerank` as they are first typed: without an output."""

from __future__ import annotations

from pathlib import Path

from tests.reward.cli.conftest import Run
from tests.toys.json_lines import write_lines

LONG = "A big red star in the top left."


def test_without_output_the_rows_are_shown_and_kept_beside_the_data(run: Run, tmp_path: Path) -> None:
    rows = write_lines(tmp_path / "own.jsonl", [{"image": "0", "caption": LONG}, {"image": "1", "caption": ""}])
    out, err = run("score", rows, "-m", "length")
    shown = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if "│" in line]
    why = "candidate is empty: a caption needs at least one visible ch…"
    assert shown == [["0", LONG, "8", "8", ""], ["1", "", "", "", why]]
    assert "own.scores.parquet" in err
    assert (tmp_path / "own.scores.parquet").is_file()
    lists = write_lines(tmp_path / "lists.jsonl", [{"image": "0", "candidates": ["A star.", LONG]}])
    out, _ = run("rerank", lists, "-m", "length")
    assert (tmp_path / "lists.ranked.parquet").is_file()
    assert LONG in out
    assert run("score", rows, "-m", "length", "--quiet", "--overwrite")[0] == ""
    (tmp_path / "set").mkdir()
    rows.rename(tmp_path / "set" / "captions.jsonl")
    run("score", tmp_path / "set", "-m", "length")
    assert (tmp_path / "set.scores.parquet").is_file()
