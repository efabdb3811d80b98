"""Writes captions that state a given set of facts about a scene, in varied wording."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reward.scenes.graph import Entity, Fact, Scene, relations
from reward.scenes.language import (
    BACKGROUND_PHRASES,
    FILLER,
    ING,
    NUMBERS,
    PAST,
    PATTERN_WORDS,
    POSITION_PHRASES,
    RELATION_PHRASES,
    SIZE_WORDS,
    SYNONYMS,
    TEMPLATES,
    Sentence,
    Word,
    plural,
)

_SLOT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Style:
    """How a caption is written.

    Args:
        split: probability that size and pattern of an entity, and its place, get sentences of their own.
        filler: number of sentences that claim nothing.
        spatial: number of sentences on how two objects lie to each other.
        order: "scene" (objects in reading order, background first) or "random".
    """

    split: float = 0.0
    filler: int = 0
    spatial: int = 0
    order: str = "random"


@dataclass(frozen=True)
class Caption:
    """A caption as sentences of words, each word with the fact it states."""

    sentences: tuple[Sentence, ...]
    closed: bool = True  # False: the last sentence breaks off without a full stop

    @property
    def claims(self) -> frozenset[Fact]:
        """Facts that the caption states, true or not."""
        return frozenset(claim for sentence in self.sentences for claim in sentence.claims)

    def words(self) -> list[Word]:
        """Words as written: first ones capitalised, last ones with their full stop."""
        words: list[Word] = []
        for index, sentence in enumerate(self.sentences):
            for position, word in enumerate(sentence.words):
                text = word.text
                if position == 0:
                    text = text[:1].upper() + text[1:]
                if position == len(sentence.words) - 1 and (self.closed or index < len(self.sentences) - 1):
                    text += "."
                words.append(Word(text, word.fact, word.damaged))
        return words

    @property
    def text(self) -> str:
        """The caption as a string."""
        return " ".join(word.text for word in self.words())


def describe(
    scene: Scene, rng: random.Random, *, facts: Iterable[Fact] | None = None, style: Style | None = None
) -> Caption:
    """Writes a caption that states the given facts of a scene and no others, spatial relations apart.

    Args:
        scene: what is described; for a caption with errors, the scene as its writer believes it to be.
        rng: source of wording.
        facts: facts to state; None states all. An attribute whose object is not stated is left out, and an object
            is always stated with its count.
        style: see `Style`.

    Example:
        >>> from reward.scenes.graph import sample_scene
        >>> rng = random.Random(3)
        >>> scene = sample_scene(rng)
        >>> caption = describe(scene, rng)
        >>> caption.claims == scene.facts()
        True
    """
    style = style or Style()
    stated = set(scene.facts() if facts is None else facts)
    names = {entity.noun: rng.choice(SYNONYMS[entity.noun]) for entity in scene.entities}
    blocks: list[list[Sentence]] = []
    present = [entity for entity in scene.entities if ("object", entity.noun) in stated]
    if style.order == "scene":
        present.sort(key=lambda entity: entity.cell)
    for entity in present:
        blocks.append(_entity_sentences(entity, names[entity.noun], stated, style, rng))
    blocks += [[sentence] for sentence in _sign_sentences(scene, stated, rng)]
    closing: list[list[Sentence]] = []
    nouns = {entity.noun for entity in present}
    action = scene.action
    has_action = action is not None and ("action", action.agent, action.verb, action.patient) in stated
    if action and has_action and {action.agent, action.patient} <= nouns:
        closing.append([_pair_sentence("action", scene, names, action.agent, action.patient, action.verb, rng)])
    pairs = [(first, second) for first in present for second in present if first is not second]
    for first, second in rng.sample(pairs, min(style.spatial, len(pairs))):
        relation = rng.choice(sorted(relations(first.cell, second.cell)))
        closing.append([_pair_sentence("spatial", scene, names, first.noun, second.noun, relation, rng)])
    opening: list[list[Sentence]] = []
    background: Fact = ("background", scene.background)
    if background in stated:
        phrase = [Word(word, background) for word in BACKGROUND_PHRASES[scene.background].split()]
        opening.append([_fill(rng.choice(TEMPLATES["background"]), {"background": phrase}, [background])])
    fillers = []
    for text in rng.sample(FILLER, style.filler):
        fillers.append([Sentence(tuple(map(Word, text.split())), ())])
    if style.order == "scene":
        ordered = [*opening, *blocks, *closing, *fillers]
    else:
        rng.shuffle(blocks)
        if rng.random() < 0.5:
            ordered = [*opening, *blocks]
        else:
            ordered = [*blocks, *opening]
        # Actions and relations say "the star": they come after the sentences that bring the star in.
        ordered += closing
        for filler in fillers:
            ordered.insert(rng.randint(0, len(ordered)), filler)
    return Caption(tuple(sentence for block in ordered for sentence in block))


def _fill(template: str, slots: dict[str, Sequence[Word]], claims: Iterable[Fact]) -> Sentence:
    words: list[Word] = []
    for piece in template.split():
        slot = _SLOT.fullmatch(piece)
        if slot:
            words += slots[slot.group(1)]
        else:
            words.append(Word(piece))
    return Sentence(tuple(words), tuple(claims))


def _be(count: int) -> list[Word]:
    return [Word("is" if count == 1 else "are")]


def _noun(entity: Entity, name: str) -> Word:
    return Word(plural(name) if entity.count > 1 else name, ("object", entity.noun))


def _entity_sentences(entity: Entity, name: str, facts: set[Fact], style: Style, rng: random.Random) -> list[Sentence]:
    """One to three sentences about an entity: the first brings it in, others add to it."""
    noun = entity.noun
    stated = {str(fact[0]): fact for fact in entity.facts() if fact in facts}
    later: set[str] = set()  # kinds of facts that get a sentence of their own
    for kind in ("size", "pattern", "position"):
        if kind in stated and rng.random() < style.split:
            later.add(kind)
    attributes: list[Word] = []
    for kind, options in (("size", SIZE_WORDS), ("pattern", PATTERN_WORDS)):
        if kind in stated and kind not in later:
            value = getattr(entity, kind)
            attributes.append(Word(rng.choice(options[value]), stated[kind]))
    if "colour" in stated:
        attributes.append(Word(entity.colour, stated["colour"]))
    stated["count"] = ("count", noun, entity.count)  # English cannot name an object without its number
    number = Word(rng.choice(NUMBERS[entity.count]), stated["count"])
    head = _noun(entity, name)
    be = _be(entity.count)
    first_claims = [fact for kind, fact in stated.items() if kind not in later]
    slots: dict[str, Sequence[Word]] = {"be": be, "np": _with_article([number, *attributes, head])}
    if "position" in stated and "position" not in later:
        slots["pos"] = _position(entity.cell, stated["position"], rng)
        sentences = [_fill(rng.choice(TEMPLATES["entity"]), slots, first_claims)]
    else:
        sentences = [_fill(rng.choice(TEMPLATES["entity_no_position"]), slots, first_claims)]
    if later & {"size", "pattern"}:
        attrs: list[Word] = []
        claims = []
        for kind, options in (("size", SIZE_WORDS), ("pattern", PATTERN_WORDS)):
            if kind in later:
                if attrs:
                    attrs.append(Word("and"))
                attrs.append(Word(rng.choice(options[getattr(entity, kind)]), stated[kind]))
                claims.append(stated[kind])
        slots = {"the_a": [Word(head.text, ("object", noun))], "be": be, "attrs": attrs}
        sentences.append(_fill(rng.choice(TEMPLATES["attributes"]), slots, claims))
    if "position" in later:
        slots = {
            "the_a": [Word(head.text, ("object", noun))],
            "be": be,
            "pos": _position(entity.cell, stated["position"], rng),
        }
        sentences.append(_fill(rng.choice(TEMPLATES["place"]), slots, [stated["position"]]))
    return sentences


def _with_article(words: list[Word]) -> list[Word]:
    if words[0].text == "a" and words[1].text[0] in "aeiou":
        return [Word("an", words[0].fact), *words[1:]]
    return words


def _position(cell: int, fact: Fact, rng: random.Random) -> list[Word]:
    return [Word(word, fact) for word in rng.choice(POSITION_PHRASES[cell]).split()]


def _sign_sentences(scene: Scene, stated: set[Fact], rng: random.Random) -> list[Sentence]:
    if not scene.sign:
        return []
    text: Fact = ("text", scene.sign.word)
    position: Fact = ("position", "sign", scene.sign.cell)
    pos = _position(scene.sign.cell, position, rng)
    word = [Word(scene.sign.word, text)]
    if text in stated and position in stated:
        return [_fill(rng.choice(TEMPLATES["sign"]), {"pos": pos, "text": word}, [text, position])]
    if text in stated:
        return [_fill(rng.choice(TEMPLATES["sign_no_position"]), {"text": word}, [text])]
    if position in stated:
        return [_fill(rng.choice(TEMPLATES["sign_place"]), {"pos": pos}, [position])]
    return []


def _pair_sentence(
    kind: str, scene: Scene, names: dict[str, str], a: str, b: str, link: str, rng: random.Random
) -> Sentence:
    fact: Fact = (kind, a, link, b)
    first = scene.entity(a)
    second = scene.entity(b)
    slots: dict[str, Sequence[Word]] = {
        "the_a": [Word(_noun(first, names[a]).text, fact)],
        "the_b": [Word(_noun(second, names[b]).text, fact)],
        "be": _be(first.count),
        "be_b": _be(second.count),
    }
    if kind == "action":
        slots["ing"] = [Word(ING[link], fact)]
        slots["past"] = [Word(PAST[link], fact)]
    else:
        slots["relation"] = [Word(piece, fact) for piece in RELATION_PHRASES[link].split()]
    return _fill(rng.choice(TEMPLATES[kind]), slots, [fact])
