"""Arenas: ratings of models from battles of their captions, and how well metrics decide the same battles."""

from reward.arena.agreement import ArenaAgreement, measure_agreement, score_points
from reward.arena.deciders import Decider, by_column, by_judge, by_metric, by_people
from reward.arena.ratings import Ratings, bradley_terry_ratings, elo_ratings
from reward.arena.result import ArenaResult, rate_arena
from reward.arena.selection import next_battles, next_pairs
from reward.arena.simulation import draw_arena
from reward.arena.table import Arena, human_points, label_points

__all__ = [
    "Arena",
    "ArenaAgreement",
    "ArenaResult",
    "Decider",
    "Ratings",
    "bradley_terry_ratings",
    "by_column",
    "by_judge",
    "by_metric",
    "by_people",
    "draw_arena",
    "elo_ratings",
    "human_points",
    "label_points",
    "measure_agreement",
    "next_battles",
    "next_pairs",
    "rate_arena",
    "score_points",
]
