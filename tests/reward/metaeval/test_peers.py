"""The coefficients of `bench` beside those of scipy and of capevalkit, the kit of VELA's authors, to 1e-12.

capevalkit's dependencies are older than ours, so it is in no extra: `pip install --no-deps capevalkit`.
"""

from __future__ import annotations

import numpy as np
import pytest

from reward.metaeval import evaluate
from tests.reward.metaeval.small_benchmarks import CORRELATIONS, rated

RNG = np.random.default_rng(0)
RATINGS = RNG.integers(1, 5, 120)
TABLES = {
    "ties": (np.round(RATINGS + RNG.normal(size=120)), RATINGS),
    "no ties among the scores": (RATINGS + RNG.normal(size=120), np.round(RATINGS / 4, 2)),
    "missing scores": (np.where(np.arange(120) % 7, np.round(RNG.normal(size=120), 1), np.nan), RATINGS),
    "constant scores": (np.full(120, 0.5), RATINGS),
    "constant ratings": (RNG.normal(size=120), np.full(120, 3)),
}


def own(scores: np.ndarray, ratings: np.ndarray) -> dict[str, float]:
    """All coefficients of a table; rows without a score are left out."""
    return evaluate(rated([[float(each)] for each in ratings]), scores, resamples=1).details["overall"]


@pytest.mark.parametrize("name", TABLES)
def test_coefficients_are_those_of_scipy(name: str) -> None:
    scores, ratings = TABLES[name]
    known = ~np.isnan(scores)
    with np.errstate(all="ignore"):
        expected = {
            kind.replace("-", "_"): np.nan if "constant" in name else value(scores[known], ratings[known]).statistic
            for kind, value in CORRELATIONS.items()
        }
    assert own(scores, ratings) == pytest.approx(expected, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("name", TABLES)
def test_coefficients_are_those_of_capevalkit_but_for_constants(name: str) -> None:
    why = "capevalkit is not installed: pip install --no-deps capevalkit"
    peer = pytest.importorskip("capevalkit.domain.evaluation.correlations", reason=why, exc_type=ImportError)
    scores, ratings = TABLES[name]
    known = ~np.isnan(scores)
    if not known.all():
        with pytest.raises(ValueError, match="NaN"):  # bench leaves such rows out, and counts them
            peer.kendall_correlations(scores, ratings)
    found, theirs = own(scores, ratings), peer.kendall_correlations(scores[known], ratings[known])
    for kind in ("tau_b", "tau_c"):
        value = theirs[f"kendall_{kind}"] / 100
        if "constant" in name:
            assert (value, np.isnan(found[kind])) == (0, True)
        else:
            assert found[kind] == pytest.approx(value, abs=1e-12)
