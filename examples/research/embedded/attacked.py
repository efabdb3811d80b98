"""Rated captions as a policy writes them: attacked ones, ones that say nothing, and what trained policies wrote."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from reward.audit.attacks import ATTACKS, EMPTY_CAPTIONS, Material, attack
from reward.scenes import (
    Caption,
    Oracle,
    Scene,
    Style,
    describe,
    make_candidate,
    make_rated_sample,
    rate_text,
    sample_scene,
)
from reward.scenes.graph import NOUNS
from reward.scenes.language import ING, PAST, SYNONYMS, Sentence, Word, plural
from reward.scenes.samples import Candidate, RatedSample, Ratings, make_references

__all__ = ["ATTACKED", "RELATED", "broken", "draw_sample", "is_attacked", "misnumbered", "scene_tagger", "true_scores"]

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
    again = {frozenset(each.claims): each for each in describe(scene, rng).sentences}
    for place in rng.sample(range(len(sentences)), min(len(sentences), rng.choice((0, 1, 1, 1, 2, 3)))):
        other = again.get(frozenset(sentences[place].claims)) or rng.choice(base.sentences)
        words = _break(list(sentences[place].words), list(other.words), rng)
        if _ORACLE.read(Caption((Sentence(tuple(words), ()),)).text).faults:
            words[-1] = replace(words[-1], damaged=True)
        sentences[place] = replace(sentences[place], words=tuple(words))
    caption = replace(base, sentences=tuple(sentences))
    return Candidate(caption, (), ("word_order",), Ratings(rate_text(caption.text, scene), {}))


def _break(words: list[Word], others: list[Word], rng: random.Random) -> list[Word]:
    way = rng.choice(("verb", "verb", "gap", "end", "again", *["twice"] * 3, *["blend"] * 4))
    place = rng.randrange(len(words))
    if way == "blend":
        blends = [words[:end] + others[start:] for end in _joints(words) for start in _joints(others)]
        whole = [each for each in blends if _facts(each) == _facts(words)]  # such as the metric would reward
        return rng.choice(whole or blends)
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


def _facts(words: list[Word]) -> list[str]:
    return sorted(str(word.fact) for word in words if word.fact is not None)


def _joints(words: list[Word]) -> list[int]:
    """Where the words of a template meet those that state facts."""
    places = range(1, len(words))
    return [place for place in places if (words[place].fact is None) != (words[place - 1].fact is None)] or [1]


def _links(sentence: Sentence) -> bool:
    return bool({"action", "spatial"} & {claim[0] for claim in sentence.claims})


@cache
def _written(path: Path) -> list[tuple[str, str]]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [(row["scene"], row["caption"]) for row in rows]


def draw_sample(rng: random.Random, *, references: int, written: Path | None = None) -> RatedSample:
    """A scene with references and a candidate: of random quality, attacked, empty, written by a policy, with nouns in
    the wrong number, or with broken sentences.

    Args:
        rng: source of chance.
        references: how many.
        written: JSON lines with `scene` and `caption`, that policies wrote; None leaves them out.
    """
    draw = rng.random()
    if draw < 0.34:
        return make_rated_sample(rng, references=references)
    if draw < 0.58:
        scene = sample_scene(rng)
        spoil = misnumbered if draw < 0.42 else broken
        return RatedSample(scene, make_references(scene, rng, references), spoil(scene, rng))
    if draw < 0.70 and written is not None:
        scene_json, text = rng.choice(_written(written))
        scene = Scene.from_json(scene_json)
        return RatedSample(scene, make_references(scene, rng, references), candidate_of(text, scene))
    scene = sample_scene(rng)
    refs = make_references(scene, rng, references)
    if draw > 0.96:
        return RatedSample(scene, refs, candidate_of(rng.choice(EMPTY_CAPTIONS), scene))
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
