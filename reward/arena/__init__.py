"""Arenas: ratings of models from battles of their captions, and how well metrics decide the same battles."""

from reward.arena.agreement import ArenaAgreement, measure_agreement, score_points
from reward.arena.ratings import Ratings, bradley_terry_ratings, elo_ratings
from reward.arena.result import ArenaResult, rate_arena
from reward.arena.selection import next_battles
from reward.arena.table import Arena, human_points
from reward.arena.voters import Voter, all_voters, by_column, by_judge, by_metric, by_people

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
