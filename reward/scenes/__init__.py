"""A synthetic world that says what is true about itself: scenes, pictures, captions, errors, raters and an oracle."""

from reward.scenes.describe import Caption, Style, describe
from reward.scenes.edits import DAMAGES, ERRORS, damage, drop_facts, make_error
from reward.scenes.error_pairs import CATEGORIES, ErrorPair, make_pair, make_pair_dataset
from reward.scenes.graph import Action, Entity, Scene, Sign, sample_scene
from reward.scenes.oracle import FactScores, Oracle, StatedFacts
from reward.scenes.render import render
from reward.scenes.samples import (
    ASPECTS,
    Ratings,
    make_candidate,
    make_dataset,
    make_rated_sample,
    make_references,
    rate,
    rate_text,
)

__all__ = [
    "ASPECTS",
    "CATEGORIES",
    "DAMAGES",
    "ERRORS",
    "Action",
    "Caption",
    "Entity",
    "ErrorPair",
    "FactScores",
    "Oracle",
    "Ratings",
    "Scene",
    "Sign",
    "StatedFacts",
    "Style",
    "damage",
    "describe",
    "drop_facts",
    "make_candidate",
    "make_dataset",
    "make_error",
    "make_pair",
    "make_pair_dataset",
    "make_rated_sample",
    "make_references",
    "rate",
    "rate_text",
    "render",
    "sample_scene",
]
