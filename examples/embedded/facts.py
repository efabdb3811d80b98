"""Facts of the synthetic world as coordinates of a vector: the dense labels on which both CLIP towers are aligned."""

from __future__ import annotations

from collections.abc import Iterable

import torch

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

__all__ = ["CELL_LABELS", "COORDINATES", "HARD", "cell_labels", "fact_figures", "fact_vector"]


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
    return {name: index for index, name in enumerate(names)}


COORDINATES = _coordinates()
# Weights (F,) of the squared errors. Counts and actions are learned last, because a picture has few of them; a larger
# weight moves when they are learned, not what their best value is.
HARD = torch.tensor([3.0 if name[0] in ("count", "agent", "patient") else 1.0 for name in COORDINATES])


def fact_vector(facts: Iterable[Fact]) -> torch.Tensor:
    """Float vector (F,) with 1 where a fact is stated; spatial relations follow from positions and have none."""
    vector = torch.zeros(len(COORDINATES))
    for fact in facts:
        if fact[0] == "position":
            row, column = divmod(int(fact[2]), GRID)
            vector[COORDINATES["row", fact[1], row]] = vector[COORDINATES["column", fact[1], column]] = 1.0
        elif fact[0] == "action":
            vector[COORDINATES["agent", fact[1], fact[2]]] = vector[COORDINATES["patient", fact[3], fact[2]]] = 1.0
        elif fact[0] != "spatial":
            vector[COORDINATES[fact]] = 1.0
    return vector


def fact_figures(stated: torch.Tensor, truth: torch.Tensor) -> dict[str, float]:
    """Squared error of what a tower states (N, F), and the share of the true facts of each kind that it states."""
    figures = {"mse": float((stated - truth).square().sum(1).mean())}
    for kind in sorted({name[0] for name in COORDINATES}):
        index = [k for name, k in COORDINATES.items() if name[0] == kind]
        figures[kind] = float(truth[:, index].mul(stated[:, index] > 0.5).sum() / truth[:, index].sum())
    return figures


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
