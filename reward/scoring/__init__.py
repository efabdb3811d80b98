"""Scores and reranks data files of any size, so that a run that was stopped can go on."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reward.scoring.batch_scorer import BatchScorer
    from reward.scoring.dataset import rerank_dataset, score_dataset
    from reward.scoring.summary import ScoringSummary

__all__ = ["BatchScorer", "ScoringSummary", "rerank_dataset", "score_dataset"]

# A command that scores a file needs no BatchScorer, and one that only reads data none of these.
_HOMES = {
    "BatchScorer": "reward.scoring.batch_scorer",
    "ScoringSummary": "reward.scoring.summary",
    "rerank_dataset": "reward.scoring.dataset",
    "score_dataset": "reward.scoring.dataset",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
