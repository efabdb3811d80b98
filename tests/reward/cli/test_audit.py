"""`capreward audit`: tables, JSON, a report, and an exit code for a CI."""

import json
import re

from tests.toys.json_lines import write_lines
from tests.toys.pages import rows_of


def test_the_command_prints_tables_and_ends_in_3_above_a_share(run):
    line = ("audit", "-m", "length", "--images", 3)
    out, err = run(*line, "--fail-above", "0.5", code=3)
    assert re.search(r"repeated caption\D+3\D+100\.0 \[100\.0, 100\.0\].*repeated caption\W+\+", out, re.DOTALL)
    assert "wins in 100.0% of captions, above 50.0%" in err
    out, err = run(*line, "--json", "--quiet", "--fail-above", "1")
    assert (json.loads(out)["images"], err) == (3, "")


def test_the_report_is_written(run, tmp_path):
    good = [{"candidate": f"A dog runs on grass. It has {n} legs. The sky is blue."} for n in range(6)]
    write_lines(tmp_path / "good.jsonl", good)
    run("audit", "-m", "length", "--data", tmp_path / "good.jsonl", "-o", tmp_path / "a report")
    page = (tmp_path / "a report" / "audit.html").read_text()
    assert "fill: var(--best)" in page  # the attack that wins most often
    assert "<svg" in page
    assert "repeated nouns" in page
    figures = json.loads((tmp_path / "a report" / "audit.json").read_text())
    assert rows_of(figures)["repeated caption"]["length"]["value"] == 100
