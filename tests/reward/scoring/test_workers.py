"""Processes that prepare pictures: scores as in threads, and whatever dies, nothing is lost and nobody left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from PIL import Image

from reward.metrics.scorer import CaptionScorer
from reward.scoring import score_dataset
from reward.scoring.pictures import PictureReader
from reward.scoring.several import Metrics
from tests.reward.scoring.small_data import read_rows, save_greys
from tests.toys.json_lines import write_lines
from tests.toys.prepared_scorer import PreparedScorer

ROWS = 60
# as people write it first: nothing guards it from being run again by the processes that it starts
SCRIPT = """
from reward.scoring import score_dataset
from tests.toys.prepared_scorer import PreparedScorer

print("begins", flush=True)
score_dataset("data.jsonl", PreparedScorer(), "out.jsonl", part_rows=6, workers=2)
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Greys, an image of which half is missing, one that is not there, and one that no network takes."""
    save_greys(tmp_path)
    for number in range(3, 8):
        Image.radial_gradient("L").resize((30 + number, 20)).save(tmp_path / f"{number}.png")
    (tmp_path / "8.png").write_bytes((tmp_path / "7.png").read_bytes()[:300])
    Image.new("RGB", (600, 1)).save(tmp_path / "10.png")
    rows = [{"image": f"{number // 2 % 11}.png", "candidate": f"c{number}"} for number in range(ROWS)]
    write_lines(tmp_path / "data.jsonl", rows)
    return tmp_path


@pytest.fixture
def expected(data: Path) -> list[dict[str, Any]]:
    score_dataset(data / "data.jsonl", PreparedScorer(), data / "expected.jsonl", part_rows=6, workers=0)
    return read_rows(data / "expected.jsonl")


def start(folder: Path, seconds: float) -> subprocess.Popen[str]:
    (folder / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "PICTURE_SECONDS": str(seconds)}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "script.py"]
    return subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True, **pipes)


def workers_of(run: subprocess.Popen[str], folder: Path) -> tuple[list[psutil.Process], list[psutil.Process]]:
    """Waits for three parts; gives those that prepare pictures, and all processes that the run started."""
    limit = time.monotonic() + 60
    while len(list(folder.glob("out.jsonl.partial/[0-9]*.gz"))) < 3 and run.poll() is None:
        assert time.monotonic() < limit, "nothing was saved in a minute"
        time.sleep(0.01)
    started = psutil.Process(run.pid).children(recursive=True)
    return [each for each in started if each.ppid() != run.pid], started


def test_a_script_that_nothing_guards_has_the_scores_of_threads(data: Path, expected: list[dict[str, Any]]) -> None:
    with start(data, 0) as run:
        out, errors = run.communicate(timeout=120)
    assert (run.returncode, out) == (0, "begins\n"), errors
    assert read_rows(data / "out.jsonl") == expected
    assert [row["error"] is None for row in expected[:22]] == [True] * 16 + [False] * 2 + [False] * 4


@pytest.mark.parametrize("what", ["kill", "Ctrl-C", "a worker dies"])
def test_nothing_is_lost_and_nobody_is_left(what: str, data: Path, expected: list[dict[str, Any]]) -> None:
    with start(data, 0.05) as run:
        workers, started = workers_of(run, data)
        assert len(workers) == 2
        if what == "kill":
            run.kill()
        elif what == "Ctrl-C":
            os.killpg(run.pid, signal.SIGINT)  # as a terminal does
        else:
            workers[0].kill()
        _, errors = run.communicate(timeout=60)
    assert run.returncode
    wanted = {"kill": "", "Ctrl-C": "ScoringInterrupted", "a worker dies": "a process that prepared pictures died"}[
        what
    ]
    assert wanted in errors
    assert "Process" not in errors.partition("Traceback")[0]  # no word of the workers themselves
    assert psutil.wait_procs(started, timeout=10)[1] == []
    with start(data, 0) as again:
        assert again.wait(120) == 0
    assert read_rows(data / "out.jsonl") == expected


class Own(PreparedScorer):
    """As a user's script defines it: other processes cannot be given it."""

    spec = replace(PreparedScorer.spec, name="own")

    @property
    def preparation(self) -> Any:
        return lambda image: image


@pytest.mark.parametrize("scorers", [[Own()], [PreparedScorer(), Own()], ["length"]])
def test_what_cannot_be_given_away_is_prepared_here(scorers: list[CaptionScorer | str]) -> None:
    assert PictureReader.of(Metrics.of(scorers).load(), "").packed() is None
