"""Arenas: ratings of models from battles of their captions, and how well metrics decide the same battles."""

from reward.metaeval.arena.battles import read_battles
from reward.metaeval.arena.model_ratings import read_ranking
from reward.metaeval.arena.result import ArenaResult, rate_arena
from reward.metaeval.arena.voters import Voter, all_voters

__all__ = ["ArenaResult", "Voter", "all_voters", "rate_arena", "read_battles", "read_ranking"]
