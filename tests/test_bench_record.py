"""What `make bench` keeps: counted work, ratios beside a baseline, and the picture."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.benchmarks import measuring, record
from tests.benchmarks.roofline import count_bytes, least_seconds


def test_work_and_traffic_of_a_layer_by_hand() -> None:
    layer = torch.nn.Linear(64, 32, bias=False)
    with torch.inference_mode(), FlopCounterMode(display=False) as flops, count_bytes() as moved:
        layer(torch.ones(8, 64)).view(-1)
    made = 8 * 64  # torch.ones
    assert flops.get_total_flops() == 2 * 8 * 64 * 32
    assert moved() >= 4 * (made + 8 * 64 + 64 * 32 + 8 * 32)
    assert moved() <= 4 * (3 * made + 8 * 64 + 64 * 32 + 8 * 32)
    assert (least_seconds(100, 10, 50, 10), least_seconds(100, 40, 50, 10)) == (2.0, 4.0)


def test_a_run_is_kept_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stages = {"vela": {"decode": 0.25, "prefix": 0.75}}
    monkeypatch.setattr(record, "run", lambda name: {"ratios": {"faster": 2.0, "new": 1.0}, "stages": stages})
    baseline, output = tmp_path / "baseline.json", tmp_path / "runs" / "bench.json"
    arguments = ["--only", "bench_sizes", "--output", str(output), "--baseline", str(baseline)]
    record.main(arguments)
    assert "nothing to compare with" in capsys.readouterr().out
    other = {"bench_sizes: faster": 4.0, "bench_sizes: gone": 1.0, "bench_judges: elsewhere": 1.0}
    baseline.write_text(json.dumps({"machine": {"date": "then"}, "ratios": other}))
    record.main(arguments)
    printed = capsys.readouterr().out
    assert "0.50 times" in printed
    assert "3 of 3 ratios" in printed  # one changed, one new, one not measured
    assert "elsewhere" not in printed
    kept = json.loads(output.read_text())
    assert {"cpu", "cores", "torch", "date"} <= kept["machine"].keys()
    assert kept["ratios"] == {"bench_sizes: faster": 2.0, "bench_sizes: new": 1.0}
    picture = ElementTree.parse(output.with_suffix(".svg")).getroot()
    assert picture.tag.endswith("svg")
    assert "prefers-color-scheme" in output.with_suffix(".svg").read_text()
    record.main([*arguments, "--save-baseline"])
    assert set(json.loads(baseline.read_text())["ratios"]) == set(other) | set(kept["ratios"])
    with pytest.raises(SystemExit):
        record.main(["--only", "bench_nothing"])


def test_figures_are_recorded_only_for_make_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CAPREWARD_BENCH", raising=False)
    measuring.record({"a": 1.0})
    monkeypatch.setenv("CAPREWARD_BENCH", str(tmp_path / "file"))
    measuring.record({"a": 1.0}, stages={"vela": {}})
    assert json.loads((tmp_path / "file").read_text()) == {"ratios": {"a": 1.0}, "stages": {"vela": {}}}


@pytest.mark.parametrize("name", sorted(path.stem for path in record.FOLDER.glob("bench_*.py")))
def test_every_benchmark_records_ratios(name: str) -> None:
    assert "record({" in (record.FOLDER / f"{name}.py").read_text(encoding="utf-8")
