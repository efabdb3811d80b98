"""The report: three files, a page that needs no network, and plots of whatever was found."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from reward.errors import OutputError
from reward.metaeval.bench import BenchTable, run_bench
from reward.metaeval.bench_report import to_json, write_report
from reward.metaeval.benchmarks import load_benchmark
from reward.metaeval.bootstrap import Interval
from reward.metaeval.report import bar_plot, check_report, percent
from reward.registry import MetricSource
from tests.reward.metaeval.small_benchmarks import write_pairs, write_rated


def tables_of(folder: Path) -> list[BenchTable]:
    column = 'sharp & <b>"good"</b>'
    rated = write_rated(folder, 20, change=lambda row: row.update({column: row["good"]}))
    pairs = write_pairs(folder / "pairs", 12)
    benchmarks = [load_benchmark("flickr8k-expert", rated), load_benchmark("pascal-50s", pairs)]
    candidates = [MetricSource("length"), MetricSource(column, is_column=True), MetricSource("given", is_column=True)]
    return run_bench([(each, "path") for each in benchmarks], candidates, resamples=50)


@pytest.mark.slow
def test_the_folder_holds_three_whole_files(tmp_path: Path) -> None:
    tables = tables_of(tmp_path)
    figures = to_json(tables, command="capreward bench <x>", seed=0, resamples=50, references=True)
    folder = tmp_path / "my report" / "deep"
    page = write_report(folder, tables, figures).read_text()
    assert {path.name for path in folder.iterdir()} == {"bench.json", "bench.md", "bench.html"}
    assert json.loads((folder / "bench.json").read_text()) == figures
    assert "<script" not in page
    links = re.findall(r"""\s(?:src|href|xlink:href|srcset)\s*=\s*["']?([^"'\s>]*)""", page)
    assert all(link.startswith(("#", "data:")) for link in links)
    assert not re.search(r"url\(\s*['\"]?(?!#)|@import", page)
    assert "<b>" not in page
    assert "sharp &amp; &lt;b&gt;" in page
    assert page.count('<svg class="chart"') == sum(len(table.columns) for table in tables)
    for svg in re.findall(r"<svg .*?</svg>", page, re.DOTALL):
        ElementTree.fromstring(svg.replace("<svg ", '<svg xmlns:xlink="http://www.w3.org/1999/xlink" ', 1))
        assert not re.search("#(1b2330|5c6878|2f5bea|aab2bf)", svg)  # the page's own names, light or dark
    text = (folder / "bench.md").read_text()
    assert text.count("## ") == 5  # all benchmarks, and each with its other statistics
    assert "| **column:sharp" in text
    assert text.rstrip().splitlines()[-1].startswith("Seed 0; python ")
    assert percent(Interval(float("nan"), float("nan"), float("nan"))) == "-"
    write_report(folder, tables, figures)  # again, over the files that are there


def test_plots_of_odd_figures() -> None:
    nan = float("nan")
    rows = {"no value": Interval(nan, nan, nan), "outside": Interval(0.5, 0.6, 0.7), "$a^$": Interval(-0.1, -0.2, 0)}
    assert ">$a^$<" in bar_plot(rows, best="outside")


def test_a_report_that_cannot_be_written_is_refused_before_anything_is_scored(tmp_path: Path) -> None:
    check_report(tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", *([Path("/proc")] if Path("/proc/self").is_dir() else [])):
        with pytest.raises(OutputError, match=f"cannot write {folder}"):
            check_report(folder)
