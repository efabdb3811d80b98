"""How often does the monitor's rule call simulated runs parted or fallen, when they are not and when they are?

    python -m examples.research.calibrate_monitor
    python -m examples.research.calibrate_monitor --runs 1000 --csv docs/results/monitor_rule.csv

A run is 20 checks after the start. The value of an image at a check is the run's mean plus noise of its own, normal or
(greedy captions mostly stay as they are) mostly 0 with long tails. The noise is independent from check to check, or
drifts with a correlation. Its size is given as the standard deviation of the paired difference of two checks.

The runs that do not part: both measures flat, the reward rising alone, both rising. Those that part: both rise until
check 8, then the second measure falls within 6 checks and stays there, while the reward rises on.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from reward.audit.parting import Z, check_parting

__all__: list[str] = []

CHECKS, PEAK, FALL_OVER = 21, 8, 6
RISE = 0.2 * (1 - np.exp(-np.arange(CHECKS) / 3))


@dataclass(frozen=True)
class Alarms:
    """What the rule said of the runs of one kind.

    Args:
        run: what the two measures do.
        images: held-out images.
        noise: how the noise of an image goes on from check to check.
        fall: of the second measure, from its peak.
        alarms: share of runs that were called parted.
        warned: share of runs that were called parted or fallen.
        median_check: of the first alarms; None without any.
        median_fallen: how far the mean had fallen at the first alarms; None without any.
    """

    run: str
    images: int
    noise: str
    fall: float
    alarms: float
    warned: float
    median_check: float | None
    median_fallen: float | None


NOISES = {
    "independent": (0.0, False),
    "correlation .5": (0.5, False),
    "correlation .8": (0.8, False),
    "correlation .95": (0.95, False),
    "long tails, correlation .5": (0.5, True),
}


def draw_noise(random: np.random.Generator, images: int, noise: str) -> np.ndarray:
    """Noise of variance 1 of each image at each check, (checks, images)."""
    correlation, tails = NOISES[noise]

    def draw() -> np.ndarray:
        if not tails:
            return random.standard_normal(images)
        return (random.random(images) < 0.3) * random.standard_t(3, images) / np.sqrt(0.9)

    values = [draw()]
    for _ in range(CHECKS - 1):
        values.append(correlation * values[-1] + np.sqrt(1 - correlation**2) * draw())
    return np.array(values)


def first_alarms(rewards: np.ndarray, truths: np.ndarray, z: float) -> tuple[int | None, bool]:
    """The first check at which a run is called parted; and whether it is ever called parted or fallen."""
    fallen = False
    for end in range(2, len(rewards) + 1):
        verdict = check_parting(rewards[:end], truths[:end], z=z)
        fallen |= verdict.fallen
        if verdict.parted:
            return end - 1, True
    return None, fallen


def simulate(run: str, images: int, noise: str, fall: float, *, runs: int, deviation: float, z: float) -> Alarms:
    """Draws runs of one kind and asks the rule after every check."""
    steps = np.arange(CHECKS)
    means = {
        "both flat": (np.zeros(CHECKS), np.zeros(CHECKS)),
        "reward rises, second flat": (RISE, np.zeros(CHECKS)),
        "both rise": (RISE, RISE),
        "they part": (
            RISE + 0.01 * steps,
            np.where(steps <= PEAK, RISE, RISE[PEAK] - fall * np.clip((steps - PEAK) / FALL_OVER, 0, 1)),
        ),
    }[run]
    random, alarms = np.random.default_rng(0), []
    for _ in range(runs):
        rewards, truths = (mean[:, None] + deviation / np.sqrt(2) * draw_noise(random, images, noise) for mean in means)
        alarms.append(first_alarms(rewards, truths, z))
    raised = [check for check, _ in alarms if check is not None]
    fallen = [float(means[1].max() - means[1][check]) for check in raised]
    return Alarms(
        run,
        images,
        noise,
        fall,
        len(raised) / runs,
        sum(fallen for _, fallen in alarms) / runs,
        float(np.median(raised)) if raised else None,
        float(np.median(fallen)) if raised else None,
    )


def main(argv: Sequence[str] | None = None) -> list[Alarms]:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000, help="simulated runs of each kind")
    parser.add_argument("--deviation", type=float, default=0.15, help="of an image's paired difference of two checks")
    parser.add_argument("--z", type=float, default=Z, help="standard errors of the rule")
    parser.add_argument("--csv", type=Path, help="file for the figures")
    options = parser.parse_args(argv)
    kinds: list[tuple[str, int, str, float]] = [
        (run, 50, noise, 0.0) for run in ("both flat", "reward rises, second flat", "both rise") for noise in NOISES
    ]
    kinds += [
        ("they part", images, noise, fall)
        for images in (50, 200)
        for noise in ("independent", "correlation .8")
        for fall in (0.02, 0.05, 0.1)
    ]
    results = []
    print("| run | images | noise | fall | called parted | parted or fallen | at check | fallen by then |")
    print("|---|---|---|---|---|---|---|---|")
    for kind in kinds:
        found = simulate(*kind, runs=options.runs, deviation=options.deviation, z=options.z)
        results.append(found)
        at = "" if found.median_check is None else f"{found.median_check:.0f}"
        fallen = "" if found.median_fallen is None else f"{found.median_fallen:.3f}"
        shares = f"{found.alarms:.1%} | {found.warned:.1%}"
        print(f"| {kind[0]} | {kind[1]} | {kind[2]} | {kind[3]:g} | {shares} | {at} | {fallen} |", flush=True)
    if options.csv:
        options.csv.parent.mkdir(parents=True, exist_ok=True)
        with options.csv.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(asdict(results[0])), lineterminator="\n")
            writer.writeheader()
            writer.writerows(asdict(each) for each in results)
    return results


if __name__ == "__main__":
    main()
