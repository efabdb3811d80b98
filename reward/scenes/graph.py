"""Scene graphs: what a picture can show, how a random one is made, and which facts are true of it."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass, replace
from typing import TypeAlias

NOUNS = ("circle", "square", "triangle", "star", "heart", "ring")
COLOURS = ("red", "green", "blue", "yellow", "purple", "orange")
SIZES = ("big", "small")
PATTERNS = ("plain", "striped", "dotted")
ACTIONS = ("chase", "push", "pull", "guard")
WORDS = ("OPEN", "STOP", "SALE", "EXIT", "TAXI", "CAFE", "PARK", "BANK")
BACKGROUNDS = ("field", "beach", "sea", "night", "snow")
GRID = 3  # cells a side; cell = row * GRID + column
MAX_COUNT = 4

# A fact is a tuple whose first item names its kind:
#   ("object", noun) ("colour"|"size"|"pattern", noun, value) ("count", noun, n) ("position", noun or "sign", cell)
#   ("action", agent, verb, patient) ("text", word) ("background", name) ("spatial", noun, relation, noun)
Fact: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True)
class Entity:
    """One object, or a group of `count` alike objects, in one cell."""

    noun: str
    colour: str
    size: str
    pattern: str
    count: int
    cell: int

    def facts(self) -> list[Fact]:
        """The six facts of an entity: that it is there, its colour, size, pattern, count and position."""
        return [
            ("object", self.noun),
            ("colour", self.noun, self.colour),
            ("size", self.noun, self.size),
            ("pattern", self.noun, self.pattern),
            ("count", self.noun, self.count),
            ("position", self.noun, self.cell),
        ]


@dataclass(frozen=True)
class Action:
    """`agent` does `verb` to `patient`; both are nouns of the scene."""

    agent: str
    verb: str
    patient: str


@dataclass(frozen=True)
class Sign:
    """A sign with one word on it."""

    word: str
    cell: int


@dataclass(frozen=True)
class Scene:
    """Everything that is true of one picture. Nouns are unique, so a noun identifies its entity.

    Example:
        >>> scene = sample_scene(random.Random(0))
        >>> Scene.from_json(scene.to_json()) == scene
        True
    """

    entities: tuple[Entity, ...]
    action: Action | None
    sign: Sign | None
    background: str

    def facts(self) -> frozenset[Fact]:
        """Every fact a complete caption states (spatial relations follow from positions and are not listed)."""
        facts = [fact for entity in self.entities for fact in entity.facts()]
        if self.action:
            facts.append(("action", self.action.agent, self.action.verb, self.action.patient))
        if self.sign:
            facts += [("text", self.sign.word), ("position", "sign", self.sign.cell)]
        return frozenset([*facts, ("background", self.background)])

    def is_true(self, fact: Fact) -> bool:
        """Whether the scene makes a fact true; also decides spatial relations between its objects."""
        if fact[0] == "spatial":
            cells = {entity.noun: entity.cell for entity in self.entities}
            first, second = cells.get(str(fact[1])), cells.get(str(fact[3]))
            return first is not None and second is not None and fact[2] in relations(first, second)
        return fact in self.facts()

    def entity(self, noun: str) -> Entity:
        """The entity of a noun; KeyError if there is none."""
        for entity in self.entities:
            if entity.noun == noun:
                return entity
        raise KeyError(noun)

    def with_entity(self, noun: str, changed: Entity) -> Scene:
        """A copy in which the entity `noun` is `changed`; the action follows a changed noun."""
        action = self.action
        if action and changed.noun != noun:
            # The action names its objects by their nouns, of which one is another now.
            swap = {noun: changed.noun}
            action = Action(swap.get(action.agent, action.agent), action.verb, swap.get(action.patient, action.patient))
        entities = tuple(changed if entity.noun == noun else entity for entity in self.entities)
        return replace(self, entities=entities, action=action)

    def free_cells(self) -> list[int]:
        """Cells that hold neither an entity nor the sign."""
        used = {entity.cell for entity in self.entities}
        if self.sign:
            used.add(self.sign.cell)
        return [cell for cell in range(GRID * GRID) if cell not in used]

    def to_json(self) -> str:
        """One line of JSON, stable for equal scenes."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Scene:
        """Reads what `to_json` wrote."""
        raw = json.loads(text)
        return cls(
            entities=tuple(Entity(**entity) for entity in raw["entities"]),
            action=Action(**raw["action"]) if raw["action"] else None,
            sign=Sign(**raw["sign"]) if raw["sign"] else None,
            background=raw["background"],
        )


def relations(first: int, second: int) -> set[str]:
    """Spatial relations of cell `first` to cell `second`: a subset of above, below, left, right."""
    row, column = divmod(first, GRID)
    second_row, second_column = divmod(second, GRID)
    names = set()
    if row < second_row:
        names.add("above")
    if row > second_row:
        names.add("below")
    if column < second_column:
        names.add("left")
    if column > second_column:
        names.add("right")
    return names


def sample_entity(rng: random.Random, noun: str, cell: int) -> Entity:
    """A random entity of the given noun and cell; groups are a quarter of them."""
    count = 1 if rng.random() < 0.7 else rng.randint(2, MAX_COUNT)
    return Entity(noun, rng.choice(COLOURS), rng.choice(SIZES), rng.choice(PATTERNS), count, cell)


def sample_scene(rng: random.Random) -> Scene:
    """A random scene: three or four entities, one action between two of them, mostly a sign, a background."""
    cells = rng.sample(range(GRID * GRID), 5)
    nouns = rng.sample(NOUNS, rng.choice((3, 3, 4)))
    entities = tuple(sample_entity(rng, noun, cell) for noun, cell in zip(nouns, cells, strict=False))
    agent, patient = rng.sample(nouns, 2)
    sign = Sign(rng.choice(WORDS), cells[4]) if rng.random() < 0.8 else None
    return Scene(entities, Action(agent, rng.choice(ACTIONS), patient), sign, rng.choice(BACKGROUNDS))
