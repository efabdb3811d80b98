"""The stages of `make gpu`, in their order."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.benchmarks.gpu import graphs, places, scores, sizes, steps, training
from tests.benchmarks.gpu.card import Place
from tests.benchmarks.gpu.results import Report

__all__ = ["STAGES", "Stage"]

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Stage:
    """Args:
    what: it finds out.
    run: fills a report.
    minutes: that it may take.
    """

    what: str
    run: Callable[[Report, Place], None]
    minutes: float = 3


def marked_tests(report: Report, place: Place) -> None:
    """The tests marked `gpu`; simulated, they are only collected."""
    files = [str(path) for path in sorted((ROOT / "tests").rglob("test_*.py")) if "mark.gpu" in path.read_text("utf-8")]
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider", "--timeout=150", *files]
    command += ["--collect-only"] if place.simulated else []
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr)
    last = done.stdout.strip().rpartition("\n")[2].strip("= ")
    report.note(last)
    if done.returncode:
        report.faults.append("tests failed; see tests.log")


STAGES: dict[str, Stage] = {
    "tests": Stage("the tests marked gpu", marked_tests),
    "scores": Stage("scores beside the CPU's, in float32 and bfloat16", scores.compare),
    **{
        f"size-{name}": Stage(f"speed and memory of {name} at its paper's size", partial(sizes.measure, name=name), 2)
        for name in sizes.METRICS
    },
    "training": Stage("seconds and memory of a training step of a metric", training.measure),
    **{
        f"grpo-{name}": Stage(f"GRPO of a policy of 3B with {name}", partial(steps.grpo, metric=name), 4)
        for name in steps.REWARDS
    },
    "best-of-n": Stage("best-of-n of a policy of 3B", steps.best_of_n),
    "photos": Stage("memory of the recipe of docs/PHOTOS.md at its size", steps.photos, 4),
    "recipe": Stage("examples/photos_grpo.py, untrained and small", steps.recipe),
    "graphs": Stage("CUDA graphs and torch.compile", graphs.measure, 4),
    "devices": Stage("--devices auto", places.devices),
    "many": Stage("scoring large files", places.many, 4),
    "prefixes": Stage("states of prompts that are kept", places.prefixes),
    "offload": Stage("a reward that leaves the card between calls", places.offload),
}
