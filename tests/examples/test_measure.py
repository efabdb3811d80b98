"""The runner of the measurements: pages show what the CSV files hold, a small run writes a table, and what can fail."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from examples.research import measure, stored
from examples.research.tables import TABLES, Table
from reward.cli.app import app

PAGES = {page.name: page.read_text(encoding="utf-8") for page in measure.DOCS.glob("*.md")}


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    return Path(shutil.copytree(measure.DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns("_build")))


def test_the_pages_show_what_the_csv_files_hold(docs: Path) -> None:
    assert measure.write_pages(docs) == []
    placed = re.findall(r"<!-- table: (\w+) -->", "".join(PAGES.values()))
    assert sorted(placed) == sorted(name for name, table in TABLES.items() if table.cells)
    read = {table.csv for table in TABLES.values()} | {"grpo_curve.csv", "grpo_captions.json"}  # of a picture
    others = {file.name for file in (docs / "results").iterdir()} - read
    assert [name for name in others if f"results/{name}" not in "".join(PAGES.values())] == []


@pytest.mark.parametrize(("page", "figure"), [("RESULTS.md", ".961 [.952"), ("PLACEMENT.md", "28.04")])
def test_a_figure_that_was_changed_by_hand_is_put_right(docs: Path, page: str, figure: str) -> None:
    assert figure in PAGES[page]
    (docs / page).write_text(PAGES[page].replace(figure, figure.replace(figure[-1], "7")), encoding="utf-8")
    assert measure.write_pages(docs) == [docs / page]
    assert (docs / page).read_text(encoding="utf-8") == PAGES[page]


def test_results_are_short() -> None:
    assert len(PAGES["RESULTS.md"].split()) <= 1950
    assert len(PAGES["RESEARCH_LOG.md"].split()) <= 1000


def test_a_small_run_writes_a_table_elsewhere_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["best_of_n", "--limit", "2", "--output", str(tmp_path / "two words")]
    assert measure.main(small) == 0
    assert "--scenes 2" in capsys.readouterr().out
    page = tmp_path / "two words" / "docs" / "RESULTS.md"
    text = page.read_text(encoding="utf-8")
    assert re.search(
        r"\| best of 16 by VELA \| [\d.]+ \[.*\n(.*\n)+\n\*`best_of_n` · .*, at most 2 of everything", text
    )
    assert {page.name: page.read_text(encoding="utf-8") for page in measure.DOCS.glob("*.md")} == PAGES

    assert measure.main(small) == 1
    assert "give --resume to go on there" in capsys.readouterr().err
    page.write_text(text.replace(", at most 2 of everything", ""), encoding="utf-8")
    assert measure.main([*small, "--resume"]) == 0
    assert "--scenes 2" not in capsys.readouterr().out  # its command has finished before
    assert page.read_text(encoding="utf-8") == text


def test_what_cannot_be_measured_is_said_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TABLES, "failing", Table(csv="none.csv", cells={}, commands=("python {first}",), cost=""))
    sizes = ["--limit", "2", "--output", str(tmp_path)]
    given = ["--given", f"first={tmp_path / 'missing.py'}"]
    assert measure.main(["parting", *sizes]) == 1
    said = capsys.readouterr().err
    assert "parting: give --given first=PATH" in said
    assert measure.main(["failing", *sizes, *given]) == 1
    assert re.search(r"failing: `.*` ended with exit code 2, see .*failing/log.txt", capsys.readouterr().err)
    assert "missing.py" in (tmp_path / "failing" / "log.txt").read_text(encoding="utf-8")
    for wrong, message in (
        (["nothing"], "no table is called 'nothing'"),
        (["pairs", "--limit", "1"], "--limit must be at least 2"),
        (["parting", "--given", "first"], "--given takes NAME=PATH, got 'first'"),
    ):
        with pytest.raises(SystemExit, match="2"):
            measure.main(wrong)
        assert message in capsys.readouterr().err
    assert measure.main(["--list"]) == 0
    assert re.search(r"parting +20 min, needs --given first=PATH", capsys.readouterr().out)


def test_rows_of_a_benchmark(tmp_path: Path) -> None:
    metrics = ["--metric", "length", "--metric", "unigram", "--cache", str(tmp_path / "scores")]
    done = CliRunner().invoke(app, ["bench", "-b", "scenes", "--limit", "30", *metrics, "--output", str(tmp_path)])
    assert done.exit_code == 0, done.output
    first, second = stored.bench(tmp_path)
    assert {first["metric"], second["metric"]} == {"length", "unigram"}
    assert float(first["mean_low"]) <= float(first["mean"]) <= float(first["mean_high"])
    assert float(second["mean"]) <= float(first["mean"])
