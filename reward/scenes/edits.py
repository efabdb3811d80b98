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
    nouns = {entity.noun for entity in scene.entities}
    free_nouns = [noun for noun in NOUNS if noun not in nouns]
    free_cells = scene.free_cells()
    if kind == "noun":
        if not free_nouns:
            return None
        return scene.with_entity(entity.noun, replace(entity, noun=rng.choice(free_nouns)))
    if kind == "attribute":
        field, options = rng.choice((("colour", COLOURS), ("colour", COLOURS), ("size", SIZES), ("pattern", PATTERNS)))
        changes: dict[str, Any] = {field: _other(rng, options, getattr(entity, field))}
        return scene.with_entity(entity.noun, replace(entity, **changes))
    if kind == "count":
        count = rng.choice([n for n in range(1, MAX_COUNT + 1) if n != entity.count])
        return scene.with_entity(entity.noun, replace(entity, count=count))
    if kind == "spatial":
        if not free_cells:
            return None
        if scene.sign and rng.random() < 0.15:
            return replace(scene, sign=replace(scene.sign, cell=rng.choice(free_cells)))
        return scene.with_entity(entity.noun, replace(entity, cell=rng.choice(free_cells)))
    if kind == "hallucination":
        if not free_nouns or not free_cells:
            return None
        extra = sample_entity(rng, rng.choice(free_nouns), rng.choice(free_cells))
        return replace(scene, entities=(*scene.entities, extra))
    if kind == "background":
        return replace(scene, background=_other(rng, BACKGROUNDS, scene.background))
    if kind == "scene_text":
        if scene.sign is None:
            return None
        return replace(scene, sign=Sign(_other(rng, WORDS, scene.sign.word), scene.sign.cell))
    if kind in ("actant_swap", "action"):
        action = scene.action
        if action is None:
            return None
        if kind == "actant_swap":
            return replace(scene, action=Action(action.patient, action.verb, action.agent))
        return replace(scene, action=replace(action, verb=_other(rng, ACTIONS, action.verb)))
    raise ValueError(f"unknown kind of error {kind!r}; known: {', '.join(ERRORS)}")


def drop_facts(scene: Scene, keep: float, rng: random.Random) -> set[Fact]:
    """Facts of a caption that states about the share `keep` of a scene: some objects and some attributes are left out.

    Args:
        keep: in [0, 1]; 1 keeps everything.
    """
    facts: set[Fact] = set()
    level = keep**0.5  # objects and attributes are dropped independently, so that together about `keep` remains
    entities = [entity for entity in scene.entities if rng.random() < level]
    if not entities:
        entities = [rng.choice(scene.entities)]
    for entity in entities:
        for fact in entity.facts():
            if fact[0] in ("object", "count") or rng.random() < level:
                facts.add(fact)
    scene_facts = scene.facts()
    for entity in scene.entities:
        scene_facts = scene_facts.difference(entity.facts())
    # Sorted: the order of a set differs between processes, and chance must not follow it.
    for fact in sorted(scene_facts, key=str):
        if rng.random() < keep:
            facts.add(fact)
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
        # Two words stay at least and two go, so that the sentence has begun and does not end.
        keep = rng.randint(2, len(last.words) - 2)
        cut = [*last.words[: keep - 1], replace(last.words[keep - 1], damaged=True)]
        claims = tuple(claim for claim in last.claims if _complete(claim, last.words, keep))
        return Caption((*caption.sentences[:-1], Sentence(tuple(cut), claims)), closed=False)
    damaged = [replace(word, damaged=True) for word in words]
    if kind == "repetition":
        if rng.random() < 0.3:  # a whole sentence again, somewhere later
            again = Sentence(tuple(damaged), sentence.claims)
            sentences = list(caption.sentences)
            sentences.insert(rng.randint(index + 1, len(sentences)), again)
            return replace(caption, sentences=tuple(sentences))
        size = rng.randint(1, min(3, len(words)))
        start = rng.randint(0, len(words) - size)
        words[start + size : start + size] = damaged[start : start + size]
    elif kind == "word_order":
        # Where two equal words stand side by side, another order of them would be the same caption.
        starts = [k for k in range(len(words) - 1) if words[k].text != words[k + 1].text]
        if not starts:
            return None
        size = min(len(words), rng.choice((2, 2, 3, 4)))
        start = rng.choice(starts)
        start = min(start, len(words) - size)
        window = damaged[start : start + size]
        texts = [word.text for word in window]
        shuffled = window[:]
        while [word.text for word in shuffled] == texts:
            rng.shuffle(shuffled)
            if len(set(texts)) == 1:
                return None
        words[start : start + size] = shuffled
    else:  # agreement
        swap = {"is": "are", "are": "is"}
        for nouns in SYNONYMS.values():
            for noun in nouns:
                swap |= {noun: plural(noun), plural(noun): noun}
        # One word of the wrong number is enough: "a red star are in the top left".
        indices = [k for k, word in enumerate(words) if word.text in swap]
        rng.shuffle(indices)
        if not indices:
            return None
        word = words[indices[0]]
        words[indices[0]] = Word(swap[word.text], word.fact, damaged=True)
    changed = Sentence(tuple(words), sentence.claims)
    return replace(caption, sentences=(*caption.sentences[:index], changed, *caption.sentences[index + 1 :]))


def _complete(claim: Fact, words: tuple[Word, ...], keep: int) -> bool:
    """Whether every word that states `claim` is among the first `keep` words."""
    stating = [k for k, word in enumerate(words) if word.fact == claim]
    return bool(stating) and max(stating) < keep
