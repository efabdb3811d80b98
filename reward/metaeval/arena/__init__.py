"""Arenas: ratings of models from battles of their captions, and how well metrics decide the same battles."""

from reward.metaeval.arena.ratings import Ratings, bradley_terry_ratings, elo_ratings
from reward.metaeval.arena.simulation import draw_arena
from reward.metaeval.arena.table import Arena, human_points, judge_points, label_points

__all__ = [
    "Arena",
    "Ratings",
    "bradley_terry_ratings",
    "draw_arena",
    "elo_ratings",
    "human_points",
    "judge_points",
    "label_points",
]
