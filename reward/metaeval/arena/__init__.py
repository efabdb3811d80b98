"""Arenas: ratings of models from battles of their captions, and how well metrics decide the same battles."""

from reward.metaeval.arena.agreement import ArenaAgreement, measure_agreement, score_points
from reward.metaeval.arena.ratings import Ratings, bradley_terry_ratings, elo_ratings
from reward.metaeval.arena.result import ArenaResult, rate_arena
from reward.metaeval.arena.selection import next_battles
from reward.metaeval.arena.table import Arena, human_points
from reward.metaeval.arena.voters import Voter, all_voters, by_column, by_judge, by_metric, by_people

__all__ = [
    "Arena",
    "ArenaAgreement",
    "ArenaResult",
    "Ratings",
    "Voter",
    "all_voters",
    "bradley_terry_ratings",
    "by_column",
    "by_judge",
    "by_metric",
    "by_people",
    "elo_ratings",
    "human_points",
    "measure_agreement",
    "next_battles",
    "rate_arena",
    "score_points",
]
