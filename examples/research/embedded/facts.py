"""Dense labels of scenes and captions, and the losses on them: facts as coordinates of a vector, cells as classes."""

from __future__ import annotations

import random
from collections.abc import Iterable

import torch
from torch.nn import functional as F

from reward.scenes import Caption
from reward.scenes.graph import (
    ACTIONS,
    BACKGROUNDS,
    COLOURS,
    GRID,
    MAX_COUNT,
    NOUNS,
    PATTERNS,
    SIZES,
    WORDS,
    Fact,
    Scene,
)

__all__ = [
    "CELL_LABELS",
    "COORDINATES",
    "cell_labels",
    "cell_losses",
    "excerpt",
    "fact_loss",
    "fact_vector",
    "scene_vector",
]


def _coordinates() -> dict[tuple[str | int, ...], int]:
    names: list[tuple[str | int, ...]] = [("object", noun) for noun in NOUNS]
    for kind, options in (
        ("colour", COLOURS),
        ("size", SIZES),
        ("pattern", PATTERNS),
        ("count", range(1, MAX_COUNT + 1)),
    ):
        names += [(kind, noun, option) for noun in NOUNS for option in options]
    # A position is two coordinates and an action is two, so that what is half right is half right in the vector too.
    names += [(axis, noun, k) for axis in ("row", "column") for noun in (*NOUNS, "sign") for k in range(GRID)]
    names += [(role, noun, verb) for role in ("agent", "patient") for noun in NOUNS for verb in ACTIONS]
    names += [("text", word) for word in WORDS] + [("background", name) for name in BACKGROUNDS]
    # Of relations, how far down and to the right an object lies: see `scene_vector`.
    names += [(axis, noun) for axis in ("down", "across") for noun in NOUNS]
    return {name: index for index, name in enumerate(names)}


COORDINATES = _coordinates()
# Weights (F,) of the squared errors while a tower is trained alone. Counts and actions are learned last, because a
# picture has few of them; a larger weight moves when they are learned, not what their best value is.
_WEIGHTS = {"count": 3.0, "agent": 6.0, "patient": 6.0, "down": 2.0, "across": 2.0}
HARD = torch.tensor([_WEIGHTS.get(str(name[0]), 1.0) for name in COORDINATES])


def fact_vector(facts: Iterable[Fact]) -> torch.Tensor:
    """What a caption claims, as a float vector (F,): 1 where a fact is stated, and relations as pushes on two objects.

    "The star is above the ring" pushes the star up and the ring down by 1.
    """
    vector = torch.zeros(len(COORDINATES))
    for fact in facts:
        if fact[0] == "position":
            row, column = divmod(int(fact[2]), GRID)
            vector[COORDINATES["row", fact[1], row]] = vector[COORDINATES["column", fact[1], column]] = 1.0
        elif fact[0] == "action":
            vector[COORDINATES["agent", fact[1], fact[2]]] = vector[COORDINATES["patient", fact[3], fact[2]]] = 1.0
        elif fact[0] == "spatial":
            axis = "down" if fact[2] in ("above", "below") else "across"
            push = 1.0 if fact[2] in ("below", "right") else -1.0
            vector[COORDINATES[axis, fact[1]]] += push
            vector[COORDINATES[axis, fact[3]]] -= push
        else:
            vector[COORDINATES[fact]] = 1.0
    return vector


def scene_vector(scene: Scene) -> torch.Tensor:
    """What a picture shows, as a float vector (F,): its facts, and of each object its row and column from -1 to 1.

    The product with the pushes of `fact_vector` is how far the objects of a relation lie apart in the direction that is
    claimed: positive for true relations, negative or 0 for false ones.
    """
    vector = fact_vector(scene.facts())
    for entity in scene.entities:
        row, column = divmod(entity.cell, GRID)
        vector[COORDINATES["down", entity.noun]] = row - 1.0
        vector[COORDINATES["across", entity.noun]] = column - 1.0
    return vector


def fact_loss(stated: torch.Tensor, truth: torch.Tensor, *, weights: torch.Tensor | float = 1.0) -> torch.Tensor:
    """Squared error of what a tower states (B, at least F) about facts (B, F), summed over them."""
    return (weights * (stated[:, : truth.shape[1]] - truth).square()).sum(1).mean()


# Classes a cell: noun (with sign and empty), colour, size, pattern, count, word, action by role; 0 is "none".
CELL_LABELS = (
    len(NOUNS) + 2,
    len(COLOURS) + 1,
    len(SIZES) + 1,
    len(PATTERNS) + 1,
    MAX_COUNT + 1,
    len(WORDS) + 1,
    2 * len(ACTIONS) + 1,
)


def cell_labels(scene: Scene) -> torch.Tensor:
    """Integer labels (cells, len(CELL_LABELS)) of what each cell shows."""
    labels = torch.zeros(GRID * GRID, len(CELL_LABELS), dtype=torch.long)
    for entity in scene.entities:
        role = 0
        if scene.action and entity.noun in (scene.action.agent, scene.action.patient):
            role = 1 + ACTIONS.index(scene.action.verb) + (len(ACTIONS) if entity.noun == scene.action.patient else 0)
        labels[entity.cell] = torch.tensor(
            [
                NOUNS.index(entity.noun) + 1,
                COLOURS.index(entity.colour) + 1,
                SIZES.index(entity.size) + 1,
                PATTERNS.index(entity.pattern) + 1,
                entity.count,
                0,
                role,
            ]
        )
    if scene.sign:
        labels[scene.sign.cell, 0] = len(NOUNS) + 1
        labels[scene.sign.cell, 5] = WORDS.index(scene.sign.word) + 1
    return labels


def cell_losses(logits: torch.Tensor, labels: torch.Tensor) -> list[torch.Tensor]:
    """Cross-entropy of logits (B, cells, sum of classes) with `cell_labels` of B scenes, for each kind of label."""
    # Empty cells are half of all: without weights the heads first learn to say "nothing".
    occupied = (labels[..., 0] > 0).float() * 0.8 + 0.2
    return [
        (F.cross_entropy(part.transpose(1, 2), labels[..., kind], reduction="none") * occupied).mean()
        for kind, part in enumerate(logits.split(list(CELL_LABELS), dim=-1))
    ]


def excerpt(caption: Caption, rng: random.Random, most: int) -> Caption:
    """One to `most` neighbouring sentences of a caption."""
    size = min(len(caption.sentences), rng.randint(1, most))
    first = rng.randint(0, len(caption.sentences) - size)
    closed = caption.closed or first + size < len(caption.sentences)
    return Caption(caption.sentences[first : first + size], closed)
