"""`capreward score` in a process of its own, to be killed."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from reward.scoring.parts import rows_of

ROOT = Path(__file__).resolve().parents[3]


class Command:
    """`capreward score data.jsonl --metric picture` in its own process; the metric is installed by an entry point."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder = folder
        plugin = folder / "plugin" / "picture-0.1.dist-info"
        plugin.mkdir(parents=True)
        (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: picture\nVersion: 0.1\n")
        (plugin / "entry_points.txt").write_text("[capreward.metrics]\npicture = tests.toys.picture_scorer:SPEC\n")
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(plugin.parent)]),
            "PICTURE_LOG": str(folder / "log.txt"),
            "PICTURE_SECONDS": str(seconds),
        }
        self.output = folder / "out.jsonl"
        self.parts = folder / "out.jsonl.partial"

    def start(self, *options: str) -> subprocess.Popen[str]:
        line = ["score", str(self.folder / "data.jsonl"), "-m", "picture", "-o", str(self.output), *options]
        command = [sys.executable, "-m", "reward.cli.main", *line, "--part-rows", "16"]
        return subprocess.Popen(command, env=self.environment, stderr=subprocess.PIPE, text=True)

    def start_and_wait_for_rows(self, rows: int, *options: str) -> subprocess.Popen[str]:
        process = self.start(*options)
        wait_until(process, lambda: self.saved() >= rows)
        return process

    def saved(self) -> int:
        """Rows in the parts that are done."""
        return sum(len(rows_of(part.name)) for part in self.parts.glob("[0-9]*.gz"))


def wait_until(process: subprocess.Popen[str], is_so: Callable[[], bool]) -> None:
    limit = time.monotonic() + 60
    while not is_so():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < limit, "nothing was saved in a minute"
        time.sleep(0.01)


def count_kept(file: Path) -> int:
    """Answers in a file that another process may be writing."""
    if not file.exists():
        return 0
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=10)) as rows:
            count: int = rows.execute("SELECT COUNT(*) FROM answers").fetchone()[0]
            return count
    except sqlite3.OperationalError:  # it has just been made
        return 0
