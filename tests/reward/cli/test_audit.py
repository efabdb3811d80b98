"""`capreward audit`: tables, JSON, a report, and an exit code for a CI."""

from __future__ import annotations

import json
from pathlib import Path

from tests.reward.cli.conftest import Run
from tests.toys.json_lines import write_lines


def test_the_command_prints_tables_and_fails_above_a_share(run: Run, tmp_path: Path) -> None:
    out, err = run("audit", "-m", "length", "--images", 3, "--most", 2, "--fail-above", "0.5", code=3)
    assert "repeated caption" in out
    assert "100" in out
    assert "wins in 100.0% of captions, above 50.0%" in err
    assert json.loads(run("audit", "-m", "length", "--images", 2, "--json", "--quiet")[0])["images"] == 2


def test_the_report_is_written(run: Run, tmp_path: Path) -> None:
    good = [{"candidate": f"A dog runs on grass. It has {n} legs. The sky is blue."} for n in range(6)]
    write_lines(tmp_path / "good.jsonl", good)
    out, _ = run("audit", "-m", "length", "--data", tmp_path / "good.jsonl", "-o", tmp_path / "a report")
    assert "repeated caption" in out
    page = (tmp_path / "a report" / "audit.html").read_text()
    assert "<svg" in page
    assert "repeated nouns" in page
    figures = json.loads((tmp_path / "a report" / "audit.json").read_text())
    assert figures["metrics"]["length"]["attacks"]["repeated caption"]["wins"]["value"] == 1
