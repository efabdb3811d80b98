"""`capreward score` in a process of its own, to be killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


class Command:
    """`capreward score data.jsonl --metric picture` in its own process; the metric is installed by an entry point."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder = folder
        plugin = folder / "plugin" / "picture-0.1.dist-info"
        plugin.mkdir(parents=True)
        (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: picture\nVersion: 0.1\n")
        (plugin / "entry_points.txt").write_text("[capreward.metrics]\npicture = tests.picture_scorer:SPEC\n")
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(plugin.parent)]),
            "PICTURE_LOG": str(folder / "log.txt"),
            "PICTURE_SECONDS": str(seconds),
        }
        self.output = folder / "out.jsonl"
        self.journal = folder / "out.jsonl.partial"

    def start(self, *options: str) -> subprocess.Popen[str]:
        line = ["score", str(self.folder / "data.jsonl"), "-m", "picture", "-o", str(self.output), *options]
        command = [sys.executable, "-m", "reward.cli.main", *line]
        return subprocess.Popen(command, env=self.environment, stderr=subprocess.PIPE, text=True)

    def start_and_wait_for_rows(self, rows: int, *options: str) -> subprocess.Popen[str]:
        process = self.start(*options)
        wait_for_rows(process, self.journal, rows)
        return process


def wait_for_rows(process: subprocess.Popen[str], journal: Path, rows: int) -> None:
    """Waits until the process has saved so many."""
    limit = time.monotonic() + 60
    while not journal.exists() or journal.read_bytes().count(b"\n") < 1 + rows:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < limit, "no rows were saved in a minute"
        time.sleep(0.01)
