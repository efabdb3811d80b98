"""On a Ray cluster of this machine: scores are those of one machine, and every row is there once, though a worker dies.

What the death of the driver costs is in `tests/test_part_engine.py` and, with a cluster, in `tests/engines`.
"""

import pytest

from integrations.ray_data import score_files
from reward.errors import ConfigError
from reward.scoring import score_dataset
from tests.integrations.ray_data.files import make_rows, read_folder, save_rows
from tests.toys.json_lines import read_lines, write_lines
from tests.toys.picture_scorer import PictureScorer

pytestmark = pytest.mark.slow

ray = pytest.importorskip("ray")
pytest.importorskip("ray.data")


def test_a_worker_may_die_and_scores_are_those_of_one_machine(tmp_path, monkeypatch):
    deaths = tmp_path / "deaths"
    monkeypatch.setenv("PICTURE_DEATHS", str(deaths))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_worker_niceness", "0")  # else the workers wait for the other tests
    rows = make_rows(tmp_path / "in")
    rows[13]["candidate"] = "die once"
    deaths.write_text("")
    local = write_lines(tmp_path / "in" / "all.jsonl", rows)
    score_dataset(local, PictureScorer(), tmp_path / "local.jsonl")
    local.unlink()
    save_rows(rows, tmp_path / "in", "parquet")
    deaths.write_text("x")
    ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    try:
        score_files(tmp_path / "in", PictureScorer(), tmp_path / "out", workers=2, part_rows=8)
        with pytest.raises(ConfigError, match=r"2 workers of 1 CPUs and 0\.5 GPUs do not fit .* 2 CPUs and 0 GPUs"):
            score_files(tmp_path / "in", "length", tmp_path / "gpus", workers=2, gpus=0.5)
        with pytest.raises(ConfigError, match="no Ray cluster can be reached at auto: "):
            score_files(tmp_path / "in", "length", tmp_path / "gpus", address="auto")
    finally:
        ray.shutdown()
    assert deaths.read_text() == ""  # a worker did die
    got, expected = read_folder(tmp_path / "out"), read_lines(tmp_path / "local.jsonl")
    for name in ("id", "brightness", "words", "reward"):
        assert [row[name] for row in got] == [row[name] for row in expected]
