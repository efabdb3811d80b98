"""Rankings of models that were made elsewhere: CapArena's ranking by people, leaderboards, and files of yours."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reward.data.json_files import read_json
from reward.errors import DataError
from reward.metaeval.arena.agreement import rank_correlations
from reward.metaeval.bootstrap import Interval

SCORE = "score"  # of CapArena-Auto or of a leaderboard, which ranks models as Elo and Bradley-Terry do
PUBLISHED = "caparena"  # the name of the ranking that ships with the package
_FEWEST = 3  # models; the correlation of two is always 1 or -1


@dataclass(frozen=True)
class Ranking:
    """Models and how good they are, from outside the battles.

    Args:
        source: who made it.
        scores: {model: score}, larger is better.
    """

    source: str
    scores: Mapping[str, float]

    def common(self, models: Iterable[str]) -> list[str]:
        """The models that the ranking has, too.

        Raises:
            DataError: fewer than three.
        """
        models = list(models)
        shared = [name for name in models if name in self.scores]
        if len(shared) < _FEWEST:
            raise DataError(
                f"only {len(shared)} of the models are in the ranking of {self.source}, and a correlation needs "
                f"{_FEWEST}. Names must be the same in both; here: {', '.join(models)}; there: {', '.join(self.scores)}"
            )
        return shared

    def correlations(self, scores: Mapping[str, float]) -> dict[str, dict[str, Interval]]:
        """Spearman's rho and Kendall's tau-b with other scores of the models, without intervals; NaN is no score.

        Raises:
            DataError: fewer than three models have both.

        Example:
            >>> ranking = Ranking("people", {"x": 3, "y": 2, "z": 1})
            >>> ranking.correlations({"x": 0.9, "y": 0.1, "z": 0.4, "other": 0.8})["score"]["spearman"].value
            0.5
        """
        shared = self.common(name for name, score in scores.items() if not math.isnan(score))
        first, second = (np.array([[side[name] for name in shared]], dtype=float) for side in (self.scores, scores))
        return {SCORE: rank_correlations(first, second)}


def read_ranking(path: str | os.PathLike[str]) -> Ranking:
    """Reads a ranking: the word `caparena` for the one of CapArena's annotators, or a JSON file.

    The file holds models from best to worst, ["x", "y", ...], or their scores, {"x": 56.2, "y": 44, ...}, larger is
    better; or {"source": "who made it", "ranking": either of the two}.

    Raises:
        DataError: unreadable, or of another form; the message says what is wrong.

    Example:
        >>> list(read_ranking("caparena").scores)[:2]
        ['GPT-4o-0806', 'human']
    """
    if str(path) == PUBLISHED:
        path = Path(__file__).with_name("caparena_ranking.json")
    values = read_json(path)
    source: Any = os.path.basename(path)
    if isinstance(values, dict) and "ranking" in values:
        source, values = values.get("source", source), values["ranking"]
    if isinstance(values, list) and all(isinstance(name, str) for name in values):
        values = {name: float(-place) for place, name in enumerate(values)}
    if not isinstance(values, dict) or not isinstance(source, str) or not values:
        raise DataError(f'{path} must hold models from best to worst, ["x", "y"], or their scores, {{"x": 2, "y": 1}}')
    for name, score in values.items():
        if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
            raise DataError(f"{path}: the score of {name!r} must be a finite number, got {score!r:.60}")
    return Ranking(source, values)
