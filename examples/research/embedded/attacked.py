"""Rated captions as a policy writes them: attacked ones, ones that say nothing, and what trained policies wrote."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from reward.audit.attacks import ATTACKS, EMPTY_CAPTIONS, Material, attack
from reward.audit.run import WORSE
from reward.scenes import (
    Caption,
    Oracle,
    Scene,
    Sign,
    Style,
    describe,
    drop_facts,
    make_candidate,
    make_error,
    make_rated_sample,
    rate_text,
    sample_scene,
)
from reward.scenes.edits import ERRORS
from reward.scenes.graph import GRID, MAX_COUNT, NOUNS, WORDS, Fact, sample_entity
from reward.scenes.language import ING, PAST, SYNONYMS, Sentence, Word, plural
from reward.scenes.pairs import SteadyRandom
from reward.scenes.samples import Candidate, RatedSample, Ratings, make_references

__all__ = [
    "ATTACKED",
    "RELATED",
    "WAYS",
    "broken",
    "draw_sample",
    "is_attacked",
    "misnumbered",
    "scene_tagger",
    "true_scores",
    "worsened",
]

RELATED = ["relations", "added relations", "one sentence and relations", "actions"]  # attacks that need more examples
ATTACKED = "attacked"  # among the errors of a candidate whose words are not known one by one
_OTHER_NUMBER = {noun: plural(noun) for names in SYNONYMS.values() for noun in names}
_OTHER_NUMBER |= {several: one for one, several in _OTHER_NUMBER.items()}
_OTHER_VERB = {"is": "are", "are": "is"}
_VERBS = {"is", "are", "can", "be", "seen", "see", "there", "one", "holds", "lies", "says", "reads", "stands"}
_ORACLE = Oracle()
_PARTS = {name: "noun" for names in SYNONYMS.values() for each in names for name in (each, plural(each))}
_PARTS |= dict.fromkeys((*ING.values(), *PAST.values()), "verb")


def scene_tagger(words: Sequence[str]) -> list[str]:
    """Parts of speech of the scenes' words, which are known: nouns and verbs; what else states a fact, adjectives."""
    return [_PARTS.get(word.lower(), "adjective" if len(word) > 4 else "other") for word in words]


def is_attacked(sample: RatedSample) -> bool:
    """Whether the words of the candidate are not known to be right or wrong one by one."""
    return ATTACKED in sample.candidate.errors


def candidate_of(text: str, scene: Scene) -> Candidate:
    """Any text as a candidate, rated by what the oracle reads in it."""
    words = tuple(Word(word) for word in text.split(" ")) or (Word("."),)
    caption = Caption((Sentence(words, tuple(Oracle().read(text).claims)),), closed=False)
    true = rate_text(text, scene)
    return Candidate(caption, (ATTACKED,), (), Ratings(true, {}))


def misnumbered(scene: Scene, rng: random.Random, *, short: bool = False) -> Candidate:
    """A caption in which "the stars" may be said of one star, where sentences link two objects.

    Policies that do not see who acts on whom write such sentences. One needs the earlier sentence to notice.

    Args:
        scene: the truth.
        rng: source of chance.
        short: leaves of the caption what brings the linked objects in, and the link: seen from nearby first, the rule
            is learned in hundreds of updates.
    """
    style = Style(spatial=rng.choice((0, 1, 3)))
    base = describe(scene, rng, style=style) if short or rng.random() < 0.5 else make_candidate(scene, rng).caption
    sentences = list(base.sentences)
    if short:
        links = [each for each in sentences if _links(each)] or sentences[-1:]
        link = rng.choice(links)
        linked = {noun for claim in link.claims for noun in claim if noun in NOUNS}
        sentences = [each for each in sentences if not _links(each) and linked & {c[1] for c in each.claims}] + [link]
    linking = [place for place, each in enumerate(sentences) if _links(each)]
    for place in rng.sample(linking, min(len(linking), rng.choice((0, 1, 1, 2)))):
        words = list(sentences[place].words)
        nouns = [index for index, word in enumerate(words) if word.text in _OTHER_NUMBER]
        for index in rng.sample(nouns, min(len(nouns), rng.choice((1, 1, 2)))):
            words[index] = replace(words[index], text=_OTHER_NUMBER[words[index].text], damaged=True)
            verb = index + 1
            if verb < len(words) and words[verb].text in _OTHER_VERB and rng.random() < 0.7:
                words[verb] = replace(words[verb], text=_OTHER_VERB[words[verb].text])  # so that only the noun tells
        sentences[place] = replace(sentences[place], words=tuple(words))
    caption = replace(base, sentences=tuple(sentences))
    return Candidate(caption, (), ("agreement",), Ratings(rate_text(caption.text, scene), {}))


def broken(scene: Scene, rng: random.Random, *, short: bool = False, base: Caption | None = None) -> Candidate:
    """A caption in which up to three sentences lack their verb, their end or other words, or run into another one.

    Others have their verb twice, or begin as one template and end as another: "in the top left holds a star". Policies
    write such sentences when the metric reads the facts in them all the same. The last word of a sentence that the
    oracle finds broken is marked.

    Args:
        scene: the truth.
        rng: source of chance.
        short: one or two sentences.
        base: the caption to break; default: one of the scene.
    """
    if base is None:
        base = describe(scene, rng) if short or rng.random() < 0.5 else make_candidate(scene, rng).caption
    sentences = list(base.sentences)
    if short:
        sentences = rng.sample(sentences, min(len(sentences), rng.choice((1, 1, 2))))
    again: dict[frozenset[Fact], list[Sentence]] = {}
    for each in (each for _ in range(3) for each in describe(scene, rng).sentences):
        again.setdefault(frozenset(each.claims), []).append(each)
    places = rng.sample(range(len(sentences)), len(sentences))
    if rng.random() < 0.5:  # a caption has one sentence about a sign, and it breaks in more ways than others
        places.sort(key=lambda place: "text" not in {claim[0] for claim in sentences[place].claims})
    for place in places[: rng.choice((0, 1, 1, 1, 2, 3))]:
        told = [
            each for each in again.get(frozenset(sentences[place].claims), ()) if each.words != sentences[place].words
        ]
        other = rng.choice(told or base.sentences)
        words = _break(list(sentences[place].words), list(other.words), rng)
        if _ORACLE.read(Caption((Sentence(tuple(words), ()),)).text).faults:
            words[-1] = replace(words[-1], damaged=True)
        sentences[place] = replace(sentences[place], words=tuple(words))
    caption = replace(base, sentences=tuple(sentences))
    return Candidate(caption, (), ("word_order",), Ratings(rate_text(caption.text, scene), {}))


def _break(words: list[Word], others: list[Word], rng: random.Random) -> list[Word]:
    way = rng.choice(("verb", "verb", "gap", "end", "again", *["twice"] * 3, *["blend"] * 3))
    about_sign = any(word.fact is not None and word.fact[0] == "text" for word in words)
    if rng.random() < (0.6 if about_sign else 0.2):  # policies found it first in sentences about a sign
        way = "run on"
    place = rng.randrange(len(words))
    if way == "blend":
        blends = [words[:end] + others[start:] for end in _joints(words) for start in _joints(others)]
        whole = [each for each in blends if _facts(each) == _facts(words)]  # such as the metric would reward
        return rng.choice(whole or blends)
    if way == "run on":  # "is written on a sign in the top left says TAXI"
        verbs = [start for start in _joints(others) if others[start].text in _VERBS]
        return words + others[rng.choice(verbs or _joints(others)) :]
    if way == "verb":
        kept = [word for word in words if word.text.lower() not in _VERBS]
        return kept or words
    if way == "again":
        return words[: place + 1] + words[place:]
    if way == "twice":
        place = rng.choice(_joints(words))
        return words[:place] + [word for word in words if word.text.lower() in _VERBS - {"there"}][:1] + words[place:]
    rest = words[place + rng.choice((1, 1, 2, 3)) :] if way == "gap" else []
    return words[:place] + rest or words


def _facts(words: list[Word]) -> set[str]:
    return {str(word.fact) for word in words if word.fact is not None}


def _joints(words: list[Word]) -> list[int]:
    """Where the words of a template meet those that state facts."""
    places = range(1, len(words))
    return [place for place in places if (words[place].fact is None) != (words[place - 1].fact is None)] or [1]


def _links(sentence: Sentence) -> bool:
    return bool({"action", "spatial"} & {claim[0] for claim in sentence.claims})


def _exchange(belief: Scene, rng: random.Random) -> Scene:
    """Two objects change a colour, a size, a place or their counts with each other, or one gets the other's."""
    first, second = rng.sample(belief.entities, 2)
    field = rng.choice(("colour", "colour", "colour", "count", "count", "size", "pattern", "cell"))
    new, old = getattr(second, field), getattr(first, field)
    changed = belief.with_entity(first.noun, replace(first, **{field: new}))
    both = field == "cell" or rng.random() < 0.6
    return changed.with_entity(second.noun, replace(second, **{field: old})) if both else changed


def _recount(belief: Scene, rng: random.Random) -> Scene:
    """Other counts of one object or more, of groups first: a group is as often three as two."""
    groups = [entity for entity in belief.entities if entity.count > 1]
    chosen = groups if groups and rng.random() < 0.8 else list(belief.entities)
    for entity in rng.sample(chosen, rng.randint(1, len(chosen))):
        least = min(entity.count, 2)  # a group stays a group, so that the words alone do not tell
        counts = [count for count in range(least, MAX_COUNT + 1) if count != entity.count]
        belief = belief.with_entity(entity.noun, replace(entity, count=rng.choice(counts)))
    return belief


def _invented_sign(belief: Scene, rng: random.Random) -> Caption:
    """A sentence that names a sign other than the one there is, with or without its word or its place."""
    real = belief.sign
    words = [word for word in WORDS if real is None or word != real.word]
    cells = [cell for cell in range(GRID * GRID) if real is None or cell != real.cell]
    sign = Sign(rng.choice(words), rng.choice(cells))
    word: Fact = ("text", sign.word)
    place: Fact = ("position", "sign", sign.cell)
    facts = rng.choice(([word, place], [place], [place], [word]))
    return describe(replace(belief, sign=sign), rng, facts=facts)


def _invented_object(belief: Scene, rng: random.Random) -> Caption:
    noun = rng.choice([noun for noun in NOUNS if noun not in {entity.noun for entity in belief.entities}])
    alone = Scene((sample_entity(rng, noun, rng.randrange(GRID * GRID)),), None, None, belief.background)
    facts = sorted(alone.entities[0].facts(), key=str)
    kept = [fact for fact in facts if fact[0] in ("object", "count") or rng.random() < 0.7]
    return describe(alone, rng, facts=kept, style=Style(split=rng.choice((0.0, 0.5))))


def _scattered(belief: Scene, rng: random.Random) -> Scene:
    """The same objects in other places."""
    cells = rng.sample(range(GRID * GRID), len(belief.entities))
    moved = zip(belief.entities, cells, strict=True)
    return replace(belief, entities=tuple(replace(entity, cell=cell) for entity, cell in moved))


# How `worsened` makes a caption worse, the likelier ones more often.
WAYS = (*["exchange"] * 4, *["recount"] * 2, *["sign"] * 3, "object", *["relations"] * 4, *["left out"] * 2)


def worsened(scene: Scene, rng: random.Random, way: str, *, errors: int = 0) -> tuple[Caption, Caption] | None:
    """A caption, and the same in good English with a few facts changed, added or left out.

    Policies find such captions where a metric reads well but does not look at the picture for each fact. Facts are
    changed in what the writer believes of the scene, so that the grammar stays right.

    Args:
        scene: the truth.
        rng: source of chance.
        way: one of `WAYS`.
        errors: false facts that both captions state.

    Returns:
        Both captions; None if the second is no worse, by the oracle, or if every kind of object is there already.
    """
    belief = scene
    for _ in range(errors):
        belief = make_error(belief, rng.choice(ERRORS), rng) or belief
    seed, facts = rng.getrandbits(64), drop_facts(belief, rng.choice((0.5, 0.8, 1.0, 1.0, 1.0)), rng)
    style = Style(split=rng.choice((0.0, 0.0, 0.4)), spatial=rng.choice((0, 0, 1)))

    def written(believed: Scene, style: Style) -> Caption:
        """In the same words but for what differs."""
        about = {fact[:2] for fact in facts}
        stated = [fact for fact in believed.facts() if fact[:2] in about]
        return describe(believed, SteadyRandom(seed), facts=stated, style=style)

    if way == "object" and len(belief.entities) == len(NOUNS):  # four of the scene, and two errors
        return None
    base = written(belief, style)
    sentences = list(base.sentences)
    if way in ("exchange", "recount"):
        sentences = list(written((_exchange if way == "exchange" else _recount)(belief, rng), style).sentences)
    elif way == "left out":
        for _ in range(rng.choice((1, 1, 2))):
            if len(sentences) > 1:
                del sentences[rng.randrange(len(sentences))]
    elif way == "relations":
        told = written(_scattered(belief, rng), replace(style, spatial=rng.randint(1, 9))).sentences
        sentences += [each for each in told if each.claims[0][0] == "spatial"]
    else:
        invented = (_invented_sign if way == "sign" else _invented_object)(belief, rng)
        place = rng.choice((len(sentences), rng.randint(0, len(sentences))))
        sentences[place:place] = invented.sentences
    worse = replace(base, sentences=tuple(sentences))
    lost = sum(rate_text(base.text, scene).values()) - sum(rate_text(worse.text, scene).values())
    return (base, worse) if lost >= WORSE else None


@cache
def _written(path: Path) -> list[tuple[str, str]]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [(row["scene"], row["caption"]) for row in rows]


def draw_sample(rng: random.Random, *, references: int, written: Path | None = None) -> RatedSample:
    """A scene with references and a candidate: of random quality, attacked, empty, written by a policy, with nouns in
    the wrong number, with broken sentences, or with few facts changed.

    Args:
        rng: source of chance.
        references: how many.
        written: JSON lines with `scene` and `caption`, that policies wrote; None leaves them out.
    """
    draw = rng.random()
    if draw < 0.28:
        return make_rated_sample(rng, references=references)
    if draw < 0.46:
        scene = sample_scene(rng)
        spoil = misnumbered if draw < 0.33 else broken
        return RatedSample(scene, make_references(scene, rng, references), spoil(scene, rng, short=rng.random() < 0.5))
    if draw < 0.54 and written is not None:
        scene_json, text = rng.choice(_written(written))
        scene = Scene.from_json(scene_json)
        return RatedSample(scene, make_references(scene, rng, references), candidate_of(text, scene))
    scene = sample_scene(rng)
    refs = make_references(scene, rng, references)
    if draw > 0.96:
        return RatedSample(scene, refs, candidate_of(rng.choice(EMPTY_CAPTIONS), scene))
    while draw > 0.68:
        if captions := worsened(scene, rng, rng.choice(WAYS), errors=rng.choice((0, 0, 0, 1, 2))):
            better, worse = captions
            return RatedSample(scene, refs, candidate_of(rng.choice((better, worse, worse)).text, scene))
    while True:
        base = describe(scene, rng).text if rng.random() < 0.4 else make_candidate(scene, rng).caption.text
        material = Material(
            rng,
            others=[make_candidate(sample_scene(rng), rng).caption.text],
            references=make_references(scene, rng, 1),
            amount=rng.randint(1, 9),
            tagger=scene_tagger,
        )
        kind = rng.choice([*ATTACKS, *RELATED * 2])
        pair = attack(kind, base, material)
        # Other scripts take several tokens a letter.
        if pair is not None and (pair[1].isascii() or rng.random() < 0.3):
            return RatedSample(scene, refs, candidate_of(rng.choice((pair[0], pair[1], pair[1], pair[1])), scene))


def true_scores(sample: RatedSample) -> dict[str, float]:
    """Ratings without noise, mapped to [0, 1]."""
    return {aspect: (rating - 1) / 4 for aspect, rating in sample.candidate.ratings.true.items()}
