"""On a Ray cluster of this machine: equal scores, and every row once, whichever processes die meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from integrations.ray_data import score_files
from reward.errors import ConfigError
from reward.scoring import score_dataset
from tests.integrations.ray_data.files import FatalScorer, make_rows, read_folder, save_rows
from tests.toys.json_lines import read_lines, write_lines
from tests.toys.picture_scorer import PictureScorer

pytestmark = pytest.mark.slow

ray = pytest.importorskip("ray")
pytest.importorskip("ray.data")


def test_workers_may_die_and_scores_are_those_of_one_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = make_rows(tmp_path / "in", 40)
    for row in (3, 33):
        rows[row]["candidate"] = f"kill {row}"
        (tmp_path / f"kill-{row}").touch()
    local = write_lines(tmp_path / "in" / "all.jsonl", rows)
    score_dataset(local, PictureScorer(), tmp_path / "local.jsonl")
    local.unlink()
    save_rows(rows, tmp_path / "in", "parquet")
    monkeypatch.setenv("KILL_FOLDER", str(tmp_path))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_worker_niceness", "0")  # else the workers wait for the other tests
    ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    try:
        score_files(tmp_path / "in", FatalScorer(), tmp_path / "out", workers=2, part_rows=8)
        with pytest.raises(ConfigError, match=r"2 workers of 1 CPUs and 0\.5 GPUs do not fit .* 2 CPUs and 0 GPUs"):
            score_files(tmp_path / "in", "length", tmp_path / "gpus", workers=2, gpus=0.5)
        with pytest.raises(ConfigError, match="connected to a Ray cluster already"):
            score_files(tmp_path / "in", "length", tmp_path / "gpus", address="auto")
    finally:
        ray.shutdown()
    assert not list(tmp_path.glob("kill-*"))  # two workers did die
    got, expected = read_folder(tmp_path / "out"), read_lines(tmp_path / "local.jsonl")
    for name in ("id", "brightness", "words", "reward"):
        assert [row[name] for row in got] == [row[name] for row in expected]


DRIVER = """
import sys
from integrations.ray_data import score_files
from tests.toys.picture_scorer import PictureScorer
score_files(sys.argv[1], PictureScorer(), sys.argv[2], workers=1, part_rows=4)
"""


def test_after_the_death_of_the_driver_the_missing_parts_are_made(tmp_path: Path) -> None:
    save_rows(make_rows(tmp_path / "in", 40), tmp_path / "in", "parquet")
    out = tmp_path / "out"
    root = str(Path(__file__).resolve().parents[3])
    environment = {**os.environ, "PICTURE_SECONDS": "0.2", "PYTHONPATH": root, "OMP_NUM_THREADS": "1"}
    environment["RAY_worker_niceness"] = "0"
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path / "in"), str(out)], env=environment)
    try:
        deadline = time.monotonic() + 200
        while not list(out.glob("part-*")) and time.monotonic() < deadline and driver.poll() is None:
            time.sleep(0.02)
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    before = {path.name: path.stat().st_mtime_ns for path in out.glob("part-*")}
    assert 1 <= len(before) < 10
    summary = score_files(tmp_path / "in", PictureScorer(), out, workers=0, part_rows=4)
    assert [row["id"] for row in read_folder(out)] == list(range(40))
    assert (summary.rows, summary.already_done) == (40, False)
    assert summary.resumed_rows >= 4 * len(before)
    assert before.items() <= {path.name: path.stat().st_mtime_ns for path in out.glob("part-*")}.items()
    again = score_files(tmp_path / "in", PictureScorer(), out, part_rows=4)
    assert again.already_done
    assert (again.rows, again.errors) == (40, summary.errors)
