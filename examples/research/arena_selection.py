"""How many battles does it save to choose who meets next? Chosen pairs beside random ones, in made arenas.

    python -m examples.research.arena_selection
    python -m examples.research.arena_selection --models 14 --spread 2 --runs 50 --json runs/arena_selection.json

Each arena is run twice, once with pairs drawn by `next_pairs` and once with random pairs, a batch at a time. After each
checkpoint the table has the mean width of the 95 % intervals, in Elo points: of the models' ratings, and of the
difference of each two neighbours in the true ranking; and Kendall's tau of the ranking with the true one. "saved" is
how many of the random battles the chosen ones make unnecessary for the same width: widths shrink with the root of the
number of battles.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np

from reward.arena import Arena, next_pairs
from reward.arena.agreement import rank_correlations
from reward.arena.ratings import POINTS_PER_UNIT
from reward.arena.strengths import fit_strengths, information_matrix, win_probabilities, win_tables

__all__: list[str] = []

CHOSEN, RANDOM = "chosen", "random"
FIGURES = ("width", "width between neighbours", "tau")


def run(truth: np.ndarray, *, choose: bool, checkpoints: Sequence[int], batch: int, seed: int) -> np.ndarray:
    """(checkpoints, 3): the figures of one arena."""
    rng = np.random.default_rng((seed, choose))
    names = [str(number) for number in range(len(truth))]
    chance, everyone = win_probabilities(truth), list(combinations(names, 2))
    rows: list[tuple[str, str, str, str]] = []
    points: list[float] = []
    figures = []
    while len(figures) < len(checkpoints):
        count = min(batch, checkpoints[len(figures)] - len(rows))
        if not rows or not choose:
            drawn = [everyone[place] for place in rng.integers(len(everyone), size=count)]
        else:
            arena = Arena.of(rows)
            drawn = next_pairs(arena, np.array(points), count, systems=names, seed=int(rng.integers(2**31)))
        for one, two in drawn:
            rows.append((str(len(rows)), one, two, ""))
            points.append(float(rng.random() < chance[int(one), int(two)]))
        if len(rows) == checkpoints[len(figures)]:
            figures.append(_figures(Arena.of(rows), np.array(points), truth))
    return np.array(figures)


def _figures(arena: Arena, points: np.ndarray, truth: np.ndarray) -> tuple[float, float, float]:
    places = [int(name) for name in arena.systems]
    wins = np.zeros((len(truth), len(truth)))
    wins[np.ix_(places, places)] = win_tables(arena, points)[0]
    covariance = np.linalg.pinv(information_matrix(wins + wins.T, truth), hermitian=True)
    spread, order = np.diag(covariance), np.argsort(truth)
    neighbours = spread[order[1:]] + spread[order[:-1]] - 2 * covariance[order[1:], order[:-1]]
    widths = [2 * 1.96 * POINTS_PER_UNIT * np.sqrt(np.maximum(each, 0)).mean() for each in (spread, neighbours)]
    ratings = fit_strengths(wins[None], prior=1.0)
    return widths[0], widths[1], float(rank_correlations(ratings, truth[None])["kendall"][0])


def simulate(
    runs: int, *, models: int, spread: float, checkpoints: Sequence[int], batch: int, seed: int
) -> dict[str, np.ndarray]:
    """{"chosen" or "random": figures (runs, checkpoints, 3)}."""
    figures: dict[str, list[np.ndarray]] = {CHOSEN: [], RANDOM: []}
    for number in range(runs):
        truth = np.random.default_rng((seed, number)).normal(scale=spread, size=models)
        for name, rows in figures.items():
            rows.append(
                run(truth, choose=name == CHOSEN, checkpoints=checkpoints, batch=batch, seed=seed * runs + number)
            )
    return {name: np.array(rows) for name, rows in figures.items()}


def main(argv: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--models", type=int, default=14)
    parser.add_argument("--spread", type=float, default=1.5, help="standard deviation of the strengths, logistic scale")
    parser.add_argument("--checkpoints", default="200,400,800", help="numbers of battles")
    parser.add_argument("--batch", type=int, default=20, help="battles that are proposed at a time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = vars(parser.parse_args(argv))
    path = options.pop("json")
    options["checkpoints"] = checkpoints = sorted(map(int, options["checkpoints"].split(",")))
    results = simulate(**options)
    print(", ".join(f"{name} {value}" for name, value in options.items()))
    print(f"\n| battles | pairs | {' | '.join(FIGURES)} | saved |\n|---|---|---|---|---|---|")
    means = {name: rows.mean(axis=0) for name, rows in results.items()}
    for place, battles in enumerate(checkpoints):
        saved = 1 - (means[CHOSEN][place, 0] / means[RANDOM][place, 0]) ** 2
        for name in (RANDOM, CHOSEN):
            width, near, tau = means[name][place]
            last = f"{100 * saved:.0f} %" if name == CHOSEN else ""
            print(f"| {battles} | {name} | {width:.0f} | {near:.0f} | {tau:.3f} | {last} |")
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        figures = {name: rows.tolist() for name, rows in means.items()}
        path.write_text(json.dumps({"options": options, "figures": list(FIGURES), "means": figures}, indent=2) + "\n")
    return results


if __name__ == "__main__":
    main()
