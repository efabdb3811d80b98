"""A reward service for long: 32 clients of many kinds, a process killed each minute, memory, no wrong row.

CAPREWARD_SOAK_MINUTES (2) is how long, CAPREWARD_SOAK_RATE (8) how many requests a second.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import statistics
import threading
import time
from collections import defaultdict
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from tests.engines.service_load import LIMITS, METRICS, PATIENCE, TOKEN, Load, Photos
from tests.loopback_service import LoopbackService, loopback_service

MINUTES = float(os.environ.get("CAPREWARD_SOAK_MINUTES", "2"))
RATE = float(os.environ.get("CAPREWARD_SOAK_RATE", "8"))
SECONDS = 60 * MINUTES
GAP = min(60.0, SECONDS / 6)  # seconds between two kills
WARM = min(600.0, SECONDS / 3)  # then memory must be flat
MOST_GROWTH = 0.05 if MINUTES >= 10 else 0.25  # a short run sees little else than the first growth


class Watch(threading.Thread):
    """Kills processes and looks at memory until it is stopped.

    The first kill ends both at once, the others the younger one, so that the older one grows old.
    """

    def __init__(self, service: LoopbackService) -> None:
        super().__init__()
        self.service, self.stopping = service, threading.Event()
        self.kills: list[float] = []
        self.memory: dict[str, list[tuple[float, float]]] = defaultdict(list)  # {process: [(second, MB)]}
        self.files: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self.problems: list[str] = []

    def run(self) -> None:
        rng, start = random.Random(0), time.monotonic()
        kill_at, born = GAP, dict.fromkeys(self.service.children(), -60.0)
        while not self.stopping.wait(2.0):
            now = time.monotonic() - start
            children = sorted(self.service.children(), key=lambda pid: born.setdefault(pid, now))
            if now >= kill_at and len(children) == 2 and now - born[children[1]] > GAP / 2:
                time.sleep(rng.random())
                for pid in children if not self.kills else children[1:]:
                    os.kill(pid, signal.SIGKILL)
                self.kills.append(now)
                kill_at = now + GAP * rng.uniform(0.9, 1.1)
                continue
            if len(children) < 2 or now - born[children[1]] < GAP / 2:
                continue  # memory is compared where all are up
            commands = self.service.processes()
            others = sorted(pid for pid in commands if pid not in children and "resource_tracker" not in commands[pid])
            names = dict(zip(others, ("first process",), strict=True))
            names |= dict(zip(children, ("older process", "younger process"), strict=True))
            try:
                total = 0.0
                for pid, name in names.items():
                    fields = dict(
                        line.split()[:2] for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
                    )
                    self.memory[name].append((now, int(fields["Rss:"]) / 1024))
                    self.files[name].append((now, len(os.listdir(f"/proc/{pid}/fd"))))
                    total += int(fields["Pss:"]) / 1024
                self.memory["all (PSS)"].append((now, total))
            except OSError as error:
                self.problems.append(str(error))

    def stop(self) -> None:
        self.stopping.set()
        self.join()


def quarters(series: list[tuple[float, float]]) -> list[float]:
    """Medians of the four parts of the time after the warm-up."""
    parts: list[list[float]] = [[], [], [], []]
    for second, value in series:
        if second >= WARM:
            parts[min(3, int(4 * (second - WARM) / (SECONDS - WARM)))].append(value)
    return [statistics.median(part) for part in parts if part]


def standstill() -> float:
    """Seconds since it was started that this machine stood still for want of memory or of its disk (Linux)."""
    files = [Path("/proc/pressure", name) for name in ("memory", "io")]
    lines = [line for file in files if file.exists() for line in file.read_text().splitlines()]
    return sum(int(line.rpartition("=")[2]) / 1e6 for line in lines if line.startswith("full"))


def cpu_seconds(service: LoopbackService) -> float:
    """Of all processes of a service, also of those that ended."""
    ticks = 0
    for pid in service.processes():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15] if pid == service.pid else fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


@pytest.mark.timeout(SECONDS + 400)
def test_soak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPREWARD_TOKEN", TOKEN)
    root = tmp_path / "photos"
    root.mkdir()
    load = Load(Photos(root), "", rate=RATE)
    metrics = [part for name in METRICS for part in ("--metric", name)]
    options = (*metrics, "--devices", "cpu,cpu", *LIMITS)
    with loopback_service(*options, "--image-root", str(root), "--timeout", str(PATIENCE)) as service:
        load.url = f"{service.url},http://127.0.0.1:{service.port + 1}"
        watch, cpu = Watch(service), time.process_time()
        cpu_before, stood = cpu_seconds(service), standstill()
        watch.start()
        try:
            asyncio.run(load.run(SECONDS))
        finally:
            watch.stop()
        cores = [(time.process_time() - cpu) / SECONDS, (cpu_seconds(service) - cpu_before) / SECONDS]
        assert service.stop() == 0

    console = Console(width=140)
    table = Table(title=f"{MINUTES:g} minutes, 32 clients, {RATE:g} requests a second, {len(watch.kills)} times killed")
    for column in ("requests", "", "p50 ms", "p99 ms", "longest ms"):
        table.add_column(column)
    for way, seconds in load.seconds.items():
        cuts = statistics.quantiles(seconds, n=100, method="inclusive") if len(seconds) > 1 else seconds * 99
        table.add_row(way, str(len(seconds)), *(f"{1000 * value:.0f}" for value in (cuts[49], cuts[98], max(seconds))))
    console.print(table)
    table = Table(title="memory and open files, medians of the four quarters after the warm-up")
    for column in ("process", "MB", "change", "files"):
        table.add_column(column)
    grown = {}
    for name, series in watch.memory.items():
        parts = quarters(series)
        grown[name] = max(parts[1:]) / parts[0] - 1
        files = " ".join(f"{value:.0f}" for value in quarters(watch.files.get(name, [])))
        table.add_row(name, " ".join(f"{value:.1f}" for value in parts), f"{100 * grown[name]:+.1f} %", files)
    console.print(table)
    console.print(f"{load.rows} rows compared, {len(load.wrong_rows)} wrong answers, {len(load.unexpected)} unexpected")
    console.print(f"cores: clients {cores[0]:.2f}, service {cores[1]:.2f}")
    console.print(f"the machine stood still for {standstill() - stood:.0f} s for want of memory or of its disk")
    console.print(*load.wrong_rows[:20], *load.unexpected[:20], sep="\n")
    assert load.wrong_rows == []
    assert load.unexpected == []
    assert len(watch.kills) >= 3
    assert max(grown.values()) < MOST_GROWTH, grown
    assert watch.problems == []
