"""Runs scorers over many samples: grouping and batching for metrics, resumable scoring of data files for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reward.scoring.dataset import rerank_dataset, score_dataset
    from reward.scoring.summary import ScoringSummary

__all__ = ["ScoringSummary", "rerank_dataset", "score_dataset"]


def __getattr__(name: str) -> Any:
    # On use, because metrics import reward.scoring.grouping and need nothing of the data files.
    if name == "ScoringSummary":
        from reward.scoring.summary import ScoringSummary

        return ScoringSummary
    if name in __all__:
        from reward.scoring import dataset

        return getattr(dataset, name)
    raise AttributeError(f"module 'reward.scoring' has no attribute {name!r}")
