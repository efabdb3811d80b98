"""Scores and reranks data files of any size, so that a run that was stopped can go on."""

from reward.scoring.batch_scorer import BatchScorer
from reward.scoring.dataset import rerank_dataset, score_dataset
from reward.scoring.summary import ScoringSummary

__all__ = ["BatchScorer", "ScoringSummary", "rerank_dataset", "score_dataset"]
