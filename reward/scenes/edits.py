"""Makes captions worse: changes one fact of the scene that the writer describes, drops facts, or damages fluency."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from reward.scenes.describe import Caption
from reward.scenes.graph import (
    ACTIONS,
    BACKGROUNDS,
    COLOURS,
    MAX_COUNT,
    NOUNS,
    PATTERNS,
    SIZES,
    WORDS,
    Action,
    Fact,
    Scene,
    Sign,
    sample_entity,
)
from reward.scenes.language import SYNONYMS, Sentence, Word, plural

ERRORS = ("noun", "attribute", "count", "spatial", "actant_swap", "action", "scene_text", "hallucination", "background")
# Points, on the scale to five, that one damage costs.
DAMAGES = {"repetition": 1.0, "word_order": 1.2, "agreement": 0.7, "truncation": 1.3}


def _other(rng: random.Random, options: tuple[str, ...], current: str) -> str:
    return rng.choice([option for option in options if option != current])


def make_error(scene: Scene, kind: str, rng: random.Random) -> Scene | None:
    """A scene that differs from `scene` in one fact of the named kind, or None if the scene allows no such error.

    The scene is edited and not the text, so all mentions agree and the grammar stays correct.

    Args:
        kind: one of `ERRORS`.

    Example:
        >>> from reward.scenes.graph import sample_scene
        >>> scene = sample_scene(random.Random(0))
        >>> wrong = make_error(scene, "action", random.Random(0))
        >>> len(scene.facts() - wrong.facts())
        1
    """
    entity = rng.choice(scene.entities)
    if kind == "noun":
        taken = {other.noun for other in scene.entities}
        free = [option for option in NOUNS if option not in taken]
        if not free:
            return None
        noun = rng.choice(free)
        return scene.with_entity(entity.noun, replace(entity, noun=noun))
    if kind == "attribute":
        field, options = rng.choice((("colour", COLOURS), ("colour", COLOURS), ("size", SIZES), ("pattern", PATTERNS)))
        changes: dict[str, Any] = {field: _other(rng, options, getattr(entity, field))}
        return scene.with_entity(entity.noun, replace(entity, **changes))
    if kind == "count":
        count = rng.choice([n for n in range(1, MAX_COUNT + 1) if n != entity.count])
        return scene.with_entity(entity.noun, replace(entity, count=count))
    if kind == "spatial":
        if scene.sign and scene.free_cells() and rng.random() < 0.15:
            return replace(scene, sign=replace(scene.sign, cell=rng.choice(scene.free_cells())))
        cells = scene.free_cells()
        return scene.with_entity(entity.noun, replace(entity, cell=rng.choice(cells))) if cells else None
    if kind == "hallucination":
        taken = {other.noun for other in scene.entities}
        free, cells = [noun for noun in NOUNS if noun not in taken], scene.free_cells()
        if not free or not cells:
            return None
        extra = sample_entity(rng, rng.choice(free), rng.choice(cells))
        return replace(scene, entities=(*scene.entities, extra))
    if kind == "background":
        return replace(scene, background=_other(rng, BACKGROUNDS, scene.background))
    if kind == "scene_text":
        return replace(scene, sign=Sign(_other(rng, WORDS, scene.sign.word), scene.sign.cell)) if scene.sign else None
    if kind == "actant_swap":
        action = scene.action
        return replace(scene, action=Action(action.patient, action.verb, action.agent)) if action else None
    if kind == "action":
        action = scene.action
        return replace(scene, action=replace(action, verb=_other(rng, ACTIONS, action.verb))) if action else None
    raise ValueError(f"unknown kind of error {kind!r}; known: {', '.join(ERRORS)}")


def drop_facts(scene: Scene, keep: float, rng: random.Random) -> set[Fact]:
    """Facts of a caption that states about the share `keep` of a scene: some objects and some attributes are left out.

    Args:
        keep: in [0, 1]; 1 keeps everything.
    """
    facts: set[Fact] = set()
    level = keep**0.5  # objects and attributes are dropped independently, so that together about `keep` remains
    kept = [entity for entity in scene.entities if rng.random() < level] or [rng.choice(scene.entities)]
    for entity in kept:
        facts.update(fact for fact in entity.facts() if fact[0] in ("object", "count") or rng.random() < level)
    entity_facts = {fact for entity in scene.entities for fact in entity.facts()}
    others = sorted((fact for fact in scene.facts() if fact not in entity_facts), key=str)
    facts.update(fact for fact in others if rng.random() < keep)
    return facts


def damage(caption: Caption, kind: str, rng: random.Random) -> Caption | None:
    """A copy of the caption with one damage to its fluency, or None if the caption has no place for it.

    Args:
        kind: one of `DAMAGES`.
    """
    if kind not in DAMAGES:
        raise ValueError(f"unknown kind of damage {kind!r}; known: {', '.join(DAMAGES)}")
    index = rng.randrange(len(caption.sentences))
    sentence = caption.sentences[index]
    words = list(sentence.words)
    if kind == "truncation":
        last = caption.sentences[-1]
        if not caption.closed or len(last.words) < 4:
            return None
        keep = rng.randint(2, len(last.words) - 2)
        cut = [*last.words[: keep - 1], replace(last.words[keep - 1], damaged=True)]
        claims = tuple(claim for claim in last.claims if _complete(claim, last.words, keep))
        return Caption((*caption.sentences[:-1], Sentence(tuple(cut), claims)), closed=False)
    if kind == "repetition":
        if rng.random() < 0.3:  # a whole sentence again, somewhere later
            again = Sentence(tuple(replace(word, damaged=True) for word in words), sentence.claims)
            place = rng.randint(index + 1, len(caption.sentences))
            return replace(caption, sentences=(*caption.sentences[:place], again, *caption.sentences[place:]))
        size = rng.randint(1, min(3, len(words)))
        start = rng.randint(0, len(words) - size)
        words[start + size : start + size] = [replace(word, damaged=True) for word in words[start : start + size]]
    elif kind == "word_order":
        places = [k for k in range(len(words) - 1) if words[k].text != words[k + 1].text]
        if not places:
            return None
        size = min(len(words), rng.choice((2, 2, 3, 4)))
        start = rng.choice(places)
        start = min(start, len(words) - size)
        window = words[start : start + size]
        shuffled = window[:]
        while [word.text for word in shuffled] == [word.text for word in window]:
            rng.shuffle(shuffled)
            if len({word.text for word in window}) == 1:
                return None
        words[start : start + size] = [replace(word, damaged=True) for word in shuffled]
    else:  # agreement
        swap = {"is": "are", "are": "is"}
        for noun in (name for names in SYNONYMS.values() for name in names):
            swap |= {noun: plural(noun), plural(noun): noun}
        places = [k for k, word in enumerate(words) if word.text in swap]
        rng.shuffle(places)
        if not places:
            return None
        words[places[0]] = Word(swap[words[places[0]].text], words[places[0]].fact, damaged=True)
    changed = Sentence(tuple(words), sentence.claims)
    return replace(caption, sentences=(*caption.sentences[:index], changed, *caption.sentences[index + 1 :]))


def _complete(claim: Fact, words: tuple[Word, ...], keep: int) -> bool:
    """Whether every word that states `claim` is among the first `keep` words."""
    stating = [k for k, word in enumerate(words) if word.fact == claim]
    return bool(stating) and max(stating) < keep
