"""The English of the scenes: words and sentence templates, with which captions are both written and read."""

from __future__ import annotations

from dataclasses import dataclass

from reward.scenes.graph import Fact


@dataclass(frozen=True)
class Word:
    """One word (with its punctuation) of a caption, the fact it states if any, and whether it is damaged."""

    text: str
    fact: Fact | None = None
    damaged: bool = False


@dataclass(frozen=True)
class Sentence:
    """Words of one sentence, in order, without capital and full stop, and the facts it claims."""

    words: tuple[Word, ...]
    claims: tuple[Fact, ...]


SYNONYMS: dict[str, tuple[str, ...]] = {
    "circle": ("circle", "disc"),
    "square": ("square", "box"),
    "triangle": ("triangle",),
    "star": ("star",),
    "heart": ("heart",),
    "ring": ("ring", "hoop"),
}
SIZE_WORDS: dict[str, tuple[str, ...]] = {"big": ("big", "large"), "small": ("small", "little")}
PATTERN_WORDS: dict[str, tuple[str, ...]] = {
    "plain": ("plain", "solid"),
    "striped": ("striped",),
    "dotted": ("dotted", "spotted"),
}
NUMBERS: dict[int, tuple[str, ...]] = {1: ("a", "one"), 2: ("two",), 3: ("three",), 4: ("four",)}
ING = {"chase": "chasing", "push": "pushing", "pull": "pulling", "guard": "guarding"}
PAST = {"chase": "chased", "push": "pushed", "pull": "pulled", "guard": "guarded"}
RELATION_PHRASES = {"above": "above", "below": "below", "left": "to the left of", "right": "to the right of"}
BACKGROUND_PHRASES = {
    "field": "a grassy field",
    "beach": "a sandy beach",
    "sea": "a calm sea",
    "night": "a night sky",
    "snow": "a snowy plain",
}
_ROWS = (("top", "upper"), ("middle",), ("bottom", "lower"))
_COLUMNS = (("left",), ("centre",), ("right",))
# cell -> phrases that name it; the first is the plain one
POSITION_PHRASES: dict[int, tuple[str, ...]] = {
    row * 3 + column: tuple(f"{r} {c}" for r in _ROWS[row] for c in _COLUMNS[column])
    for row in range(3)
    for column in range(3)
}

# Slots: {np} number + attributes + noun; {pos} position; {be} is/are; {the_a} {the_b} nouns; {attrs} size and pattern.
TEMPLATES: dict[str, tuple[str, ...]] = {
    "entity": (
        "there {be} {np} in the {pos}",
        "{np} {be} in the {pos}",
        "in the {pos} there {be} {np}",
        "the {pos} holds {np}",
        "{np} can be seen at the {pos}",
        "at the {pos} one can see {np}",
    ),
    "entity_no_position": ("there {be} {np}", "the picture shows {np}", "{np} can be seen"),
    "attributes": ("the {the_a} {be} {attrs}", "the {the_a} in the picture {be} {attrs}"),
    "place": ("the {the_a} {be} in the {pos}", "the {the_a} can be found at the {pos}"),
    "action": (
        "the {the_a} {be} {ing} the {the_b}",
        "the {the_b} {be_b} being {past} by the {the_a}",
        "one can see the {the_a} {ing} the {the_b}",
    ),
    "spatial": ("the {the_a} {be} {relation} the {the_b}",),
    "sign": (
        "a sign in the {pos} says {text}",
        "the sign at the {pos} reads {text}",
        "the word {text} is written on a sign in the {pos}",
    ),
    "sign_no_position": ("a sign says {text}", "the word {text} is written on a sign"),
    "sign_place": ("a sign stands in the {pos}",),
    "background": (
        "the background is {background}",
        "all of this is set on {background}",
        "behind everything lies {background}",
    ),
}

# Sentences that claim nothing: they make captions longer, not better.
FILLER = (
    "it is a simple drawing",
    "the colours are easy to make out",
    "nothing else is going on here",
    "the whole thing looks neat and tidy",
    "one could look at it for a while",
    "the mood is calm and friendly",
    "it seems to be made by hand",
    "the style is clean and modern",
)


def plural(noun: str) -> str:
    """Plural of a noun of the scenes.

    Example:
        >>> plural("box"), plural("star")
        ('boxes', 'stars')
    """
    return noun + ("es" if noun.endswith(("s", "x")) else "s")
