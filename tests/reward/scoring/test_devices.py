"""Scoring in several processes: the same output, whatever dies meanwhile."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reward.errors import ConfigError
from reward.scoring import score_dataset
from reward.scoring.devices import parse_devices
from tests.reward.scoring.command import Command
from tests.reward.scoring.small_data import make_data, save_greys
from tests.toys.json_lines import read_lines, write_lines
from tests.toys.picture_scorer import PictureScorer

pytestmark = pytest.mark.slow

TWO = ("--devices", "cpu,cpu")


@pytest.mark.parametrize(
    ("scorer", "options", "message"),
    [
        (PictureScorer(), {"devices": "cpu,cpu"}, "'picture' is a scorer that is loaded already"),
        ("length", {"devices": "cpu,,cpu"}, "devices must be auto, or names such as"),
        ("length", {"devices": []}, "devices must be auto, or names such as"),
        ("cider", {"devices": ["cpu", "cpu"]}, "weighs words by the references of all rows, which one process reads"),
        (PictureScorer(), {"cache": "x"}, "give cache= where it is loaded"),
    ],
)
def test_what_cannot_be_is_refused(scorer: Any, options: dict[str, Any], message: str, tmp_path: Path) -> None:
    data = write_lines(tmp_path / "data.jsonl", [{"candidate": "a", "image": "i.png", "references": ["a"]}])
    with pytest.raises(ConfigError, match=re.escape(message)):
        score_dataset(data, scorer, tmp_path / "out.jsonl", **options)
    assert not list(tmp_path.glob("out*"))


def test_one_device_needs_no_other_process(tmp_path: Path) -> None:
    data = write_lines(tmp_path / "data.jsonl", [{"candidate": "a b"}])
    assert parse_devices("auto")[0] in ("cpu", "cuda:0")
    summary = score_dataset(data, "length", tmp_path / "out.jsonl", devices=["cpu"])
    assert (summary.devices, summary.scored) == ([], 1)


def test_a_death_stops_the_run_and_loses_no_row(tmp_path: Path) -> None:
    lines = make_data(tmp_path, 300).read_text().splitlines()
    lines[250] = json.dumps({"n": 250, "image": "0.png", "candidate": "die"})
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(lines) + "\n")
    command, deaths = Command(tmp_path, seconds=0), tmp_path / "deaths"
    command.environment["PICTURE_DEATHS"] = str(deaths)
    deaths.write_text("x")  # whoever comes to the row dies, once
    process = command.start(*TWO)
    message = " ".join(process.communicate()[1].split())
    assert process.returncode == 1
    assert "the process of device 'cpu' died (exit code -9) over rows 241 to 256: perhaps memory was short" in message
    assert "Traceback" not in message
    saved = command.saved()
    assert 64 <= saved < 300
    process = command.start(*TWO)
    message = process.communicate()[1]
    assert process.returncode == 0, message
    assert deaths.read_text() == ""
    assert f"scored 300 rows ({saved} of them by an earlier run) by 2 processes (cpu, cpu)" in message
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PICTURE_DEATHS", str(deaths))
        score_dataset(data, PictureScorer(), tmp_path / "one.jsonl")
    assert command.output.read_text() == (tmp_path / "one.jsonl").read_text()


def children(pid: int) -> Iterator[int]:
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it ended meanwhile
            continue
        if parent == pid:
            yield int(status.parent.name)


def test_a_run_that_is_ended_leaves_no_process_and_goes_on(tmp_path: Path) -> None:
    save_greys(tmp_path)
    rows = [{"image": f"{row // 3 % 3}.png", "candidate": f"c{row}"} for row in range(600)]
    write_lines(tmp_path / "data.jsonl", rows)
    command = Command(tmp_path, seconds=0.01)
    saved = 0
    for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        process = command.start_and_wait_for_rows(saved + 64, *TWO)
        workers = [pid for pid in children(process.pid) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        assert len(workers) == 2
        process.send_signal(number)
        message = process.communicate()[1]
        assert (process.returncode, "Traceback" in message) == (code, False), message
        limit = time.monotonic() + 20
        while any(Path(f"/proc/{pid}").exists() for pid in workers):
            assert time.monotonic() < limit, "a process outlived its parent"
            time.sleep(0.05)
        saved = command.saved()
    assert 128 <= saved < 600
    command.environment["PICTURE_SECONDS"] = "0"
    assert command.start().wait() == 0
    assert [row["candidate"] for row in read_lines(command.output)] == [row["candidate"] for row in rows]
