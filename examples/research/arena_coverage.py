"""Do the intervals of arena ratings hold what they promise? Many made arenas whose strengths are known.

    python -m examples.research.arena_coverage
    python -m examples.research.arena_coverage --arenas 1000 --models 14 --battles 1500 --json runs/arena_coverage.json

In each arena models of random strengths meet on images. A model has one caption per image, so battles on one image are
not independent, and some end in a tie. For each kind of rating the table says

- how many of the true strengths lie in their 95 % intervals, with the interval of this share over the arenas;
- how many pairs of models are in the right order, and how many arenas wholly so;
- how many pairs have intervals that do not overlap, and how many of these are in the wrong order.

The second row takes the curvature of the likelihood for the intervals, as textbooks do. Elo stands beside: its ratings
are no estimates of the strengths, because with K = 4 they are still near their start, so its first figure is low.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from reward.arena import Arena, bradley_terry_ratings, draw_arena, elo_ratings
from reward.arena.ratings import POINTS_PER_UNIT, START, strength_covariance
from reward.arena.strengths import fit_strengths, win_tables
from reward.metaeval.bootstrap import Interval

__all__: list[str] = []

EXACT, TEXTBOOK, ELO = "Bradley-Terry", "Bradley-Terry, likelihood only", "Elo"


@dataclass(frozen=True)
class Coverage:
    """What the arenas showed of one kind of rating.

    Args:
        covered: share of true strengths inside their intervals, with its 95 % interval over the arenas.
        ordered: share of pairs of models in the right order.
        wholly_ordered: share of arenas with all models in the right order.
        apart: share of pairs whose intervals do not overlap.
        apart_wrongly: share of those that are in the wrong order.
    """

    covered: Interval
    ordered: float
    wholly_ordered: float
    apart: float
    apart_wrongly: float


def simulate(
    arenas: int, *, models: int, battles: int, images: int, ties: float, spread: float, resamples: int, seed: int
) -> tuple[dict[str, Coverage], int]:
    """Rates `arenas` made arenas; those without finite ratings are left out and counted.

    Returns:
        {kind of rating: coverage}, and the number of arenas that were left out.
    """
    inside: dict[str, list[np.ndarray]] = {EXACT: [], TEXTBOOK: [], ELO: []}
    ordered: dict[str, list[np.ndarray]] = {name: [] for name in inside}
    apart: dict[str, list[np.ndarray]] = {name: [] for name in inside}
    upper = np.triu_indices(models, 1)
    left_out = 0
    for number in range(arenas):
        strengths = np.random.default_rng((seed, number)).normal(scale=spread, size=models)
        arena, points = draw_arena(strengths, battles, images=images, ties=ties, seed=seed * arenas + number)
        if len(arena.systems) < models or not np.isfinite(fit_strengths(win_tables(arena, points))).all():
            left_out += 1
            continue
        truth = np.array([strengths[int(name.split()[1]) - 1] for name in arena.systems])
        truth = START + POINTS_PER_UNIT * (truth - truth.mean())
        exact = bradley_terry_ratings(arena, points).ratings
        elo = elo_ratings(arena, points, resamples=resamples, seed=number).ratings
        rows = {
            EXACT: [exact[name] for name in arena.systems],
            TEXTBOOK: textbook_intervals(arena, points),
            ELO: [elo[name] for name in arena.systems],
        }
        right = np.sign(truth[:, None] - truth)[upper]
        for name, intervals in rows.items():
            value, low, high = np.array([[each.value, each.low, each.high] for each in intervals]).T
            inside[name].append((low <= truth) & (truth <= high))
            ordered[name].append(np.sign(value[:, None] - value)[upper] == right)
            above, below = low[:, None] > high, high[:, None] < low
            apart[name].append(np.where(above, 1, np.where(below, -1, 0))[upper] * right)
    return {name: _coverage(inside[name], ordered[name], apart[name]) for name in inside}, left_out


def textbook_intervals(arena: Arena, points: np.ndarray) -> list[Interval]:
    """Intervals from the inverse of the observed information, which knows neither ties nor shared images."""
    strengths = fit_strengths(win_tables(arena, points))[0]
    reach = 1.96 * np.sqrt(np.diag(strength_covariance(arena, points, strengths, sandwich=False)))
    scaled = [START + POINTS_PER_UNIT * values for values in (strengths, strengths - reach, strengths + reach)]
    return [Interval(*map(float, row)) for row in zip(*scaled, strict=True)]


def _coverage(inside: list[np.ndarray], ordered: list[np.ndarray], apart: list[np.ndarray]) -> Coverage:
    shares = np.mean(inside, axis=1)
    error = 1.96 * shares.std(ddof=1) / np.sqrt(len(shares))
    signs = np.concatenate(apart)
    return Coverage(
        covered=Interval(float(shares.mean()), float(shares.mean() - error), float(shares.mean() + error)),
        ordered=float(np.mean(ordered)),
        wholly_ordered=float(np.all(ordered, axis=1).mean()),
        apart=float((signs != 0).mean()),
        apart_wrongly=float((signs < 0).sum() / max(1, (signs != 0).sum())),
    )


def main(argv: Sequence[str] | None = None) -> dict[str, Coverage]:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arenas", type=int, default=500)
    parser.add_argument("--models", type=int, default=8)
    parser.add_argument("--battles", type=int, default=1200)
    parser.add_argument("--images", type=int, default=120)
    parser.add_argument("--ties", type=float, default=0.2, help="chance that two equal models tie")
    parser.add_argument("--spread", type=float, default=1.0, help="standard deviation of the strengths, logistic scale")
    parser.add_argument("--resamples", type=int, default=200, help="of Elo")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = vars(parser.parse_args(argv))
    path = options.pop("json")
    coverage, left_out = simulate(**options)
    print(", ".join(f"{name} {value}" for name, value in options.items()))
    if left_out:
        print(f"{left_out} arenas left out: some model won or lost everything, or was in no battle")
    print("\n| | true strengths in the 95 % interval | pairs in order | arenas in order | pairs apart | wrongly |")
    print("|---|---|---|---|---|---|")
    for name, row in coverage.items():
        shares = (row.ordered, row.wholly_ordered, row.apart, row.apart_wrongly)
        print(f"| {name} | {row.covered} | {' | '.join(f'{share:.3f}' for share in shares)} |")
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        figures = {name: asdict(row) for name, row in coverage.items()}
        path.write_text(json.dumps({"options": options, "left_out": left_out, "ratings": figures}, indent=2) + "\n")
    return coverage


if __name__ == "__main__":
    main()
