"""Answers what a GPU answers, on the first card that somebody has: one command, offline, in 20 minutes.

    make gpu                           # writes runs/gpu/STAGE.json as it goes, and runs/gpu.md, to be pasted
    make gpu SIMULATED=1               # without a card: counts, and small networks on the CPU; runs/gpu-simulated.md
    make gpu GPU="--only scores --again"

Every stage runs in a process of its own and leaves its file. Stopped, the same command goes on with the stages that are
not done. A stage that fails or lacks memory says so, and the others go on.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks.gpu import card
from tests.benchmarks.gpu.results import (
    DONE,
    FAILED,
    MEMORY,
    STOPPED,
    TIME,
    Report,
    Result,
    markdown,
    read_result,
    write_result,
)
from tests.benchmarks.gpu.stages import STAGES

__all__ = ["main", "run_stage"]

Start = Callable[[str, argparse.Namespace, float], None]


def main(argv: Sequence[str] | None = None, start: Start | None = None) -> int:
    """Runs the stages; the exit status is 0 if all are done, 1 if not, 2 if there is no card.

    `start` runs a stage, which leaves its file; by default in a process.
    """
    options = parse(argv)
    if not options.simulated and (missing := card.what_is_missing()):
        print(missing, file=sys.stderr)
        return 2
    facts = card.facts(options.simulated)
    if options.stage:
        write_result(options.output, run_stage(options.stage, options, facts))
        return 0
    if not options.simulated and torch.cuda.get_device_properties(0).total_memory < 0.95 * card.LEAST * 1e9:
        print(f"The stages were made for {card.LEAST} GB; here, those that lack memory will say so.")
    results, end = [], time.monotonic() + 60 * options.minutes
    for name in options.only or STAGES:
        result = read_result(options.output, name)
        if options.again or result is None or result.status != DONE or result.facts != facts:
            result = _run(name, options, facts, end, start or _start)
        else:
            print(f"{name}: is done", flush=True)
        results.append(result)
        page = markdown(results, facts, datetime.now(timezone.utc).strftime("%d %B %Y"))
        options.output.with_suffix(".md").write_text(page, encoding="utf-8")
    print(f"-> {options.output.with_suffix('.md')}")
    return int(any(result.status != DONE for result in results))


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulated", action="store_true", help="without a card")
    parser.add_argument("--only", nargs="+", choices=list(STAGES), metavar="STAGE", help=f"of {', '.join(STAGES)}")
    parser.add_argument("--again", action="store_true", help="also the stages that are done")
    parser.add_argument("--minutes", type=float, help="no stage begins or goes on later; default: 20, simulated 120")
    parser.add_argument("--output", type=Path, help="folder; default: runs/gpu, or runs/gpu-simulated")
    parser.add_argument("--stage", choices=list(STAGES), help=argparse.SUPPRESS)  # what a stage's process is given
    options = parser.parse_args(argv)
    options.minutes = options.minutes or (120 if options.simulated else 20)
    options.output = options.output or Path("runs/gpu-simulated" if options.simulated else "runs/gpu")
    return options


def run_stage(name: str, options: argparse.Namespace, facts: dict[str, str]) -> Result:
    """Runs a stage in this process; what it raises is in the result."""
    status, begin = DONE, time.monotonic()
    report = Report(lambda: write_result(options.output, result(STOPPED)))

    def result(status: str) -> Result:
        note = "; ".join([*report.faults, *dict.fromkeys(report.notes)])
        return Result(name, status, facts, time.monotonic() - begin, note, report.tables)

    place = card.Place(options.simulated, options.output / name)
    shutil.rmtree(place.folder, ignore_errors=True)  # of a stage that was stopped
    place.folder.mkdir(parents=True)
    try:
        STAGES[name].run(report, place)
    except torch.cuda.OutOfMemoryError as error:
        status = MEMORY
        report.note(str(error).partition(". ")[0])
    except Exception as error:
        traceback.print_exc()
        status = FAILED
        report.note(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]:.200}")
    finally:
        shutil.rmtree(place.folder, ignore_errors=True)
    if report.faults:
        status = FAILED
    return result(status)


def _run(name: str, options: argparse.Namespace, facts: dict[str, str], end: float, start: Start) -> Result:
    """Runs a stage as long as there is time, and says how it went, also if it left no file."""
    slow = 5 if options.simulated else 1  # what a CPU of a laptop may take longer
    left = min(end - time.monotonic(), 60 * slow * STAGES[name].minutes)
    if left <= 1:
        write_result(options.output, Result(name, TIME, facts, note="the same command goes on"))
    else:
        print(f"{name}: {STAGES[name].what}", flush=True)
        (options.output / f"{name}.json").unlink(missing_ok=True)
        begin, why = time.monotonic(), "its process ended without a result"
        try:
            start(name, options, left)
        except subprocess.TimeoutExpired:
            why = f"stopped after {left:.0f} s"
        found = read_result(options.output, name)
        if found is None or found.status == STOPPED:
            seconds, tables = time.monotonic() - begin, found.tables if found else {}
            write_result(options.output, Result(name, FAILED, facts, seconds, f"{why}; see {name}.log", tables))
    result = read_result(options.output, name)
    assert result is not None  # it has just been written
    print(f"{name}: {result.status}, {result.seconds:.0f} s. {result.note}", flush=True)
    return result


def _start(name: str, options: argparse.Namespace, seconds: float) -> None:
    """In a process, since a fault of CUDA ends all later work of the process that met it."""
    options.output.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.benchmarks.gpu", "--stage", name, "--output", str(options.output)]
    more: dict[str, Any] = {"env": {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}}
    with (options.output / f"{name}.log").open("wb") as log:
        more |= {"stdout": log, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
        subprocess.run([*command, *["--simulated"] * options.simulated], timeout=seconds, check=False, **more)
