"""The oracle: reads any caption of the world's language back into facts and compares them with the truth."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from reward.scenes.graph import COLOURS, WORDS, Fact, Scene
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
    plural,
)


def _inverse(table: dict[str, tuple[str, ...]] | dict[int, tuple[str, ...]]) -> dict[str, str | int]:
    return {phrase: value for value, phrases in table.items() for phrase in phrases}


_SIZE, _PATTERN, _POSITION = _inverse(SIZE_WORDS), _inverse(PATTERN_WORDS), _inverse(POSITION_PHRASES)
_NUMBER = {**_inverse(NUMBERS), "an": 1}
_SINGULAR = {name: noun for noun, names in SYNONYMS.items() for name in names}
_PLURAL = {plural(name): noun for name, noun in _SINGULAR.items()}
_NOUN = {**_SINGULAR, **_PLURAL}
_ING = {word: verb for verb, word in ING.items()}
_PAST = {word: verb for verb, word in PAST.items()}
_TEXT = {word.lower(): word for word in WORDS}
_BACKGROUND = {phrase: name for name, phrase in BACKGROUND_PHRASES.items()}
_BACKGROUND_HEAD = {phrase.split()[-2]: name for name, phrase in BACKGROUND_PHRASES.items()}
_RELATION = {phrase: name for name, phrase in RELATION_PHRASES.items()}
# A policy that has learnt all templates joins their parts: "at the top left there is a star" is English, too.
_EQUALS = {
    r"\b(?:in|at) the (?=\{pos\})": "(?:in|at) the ",
    r"\b(?:a|the) sign\b": "(?:a|the) sign",
    r"\b(?:says|reads)\b": "(?:says|reads)",
}


@dataclass(frozen=True)
class StatedFacts:
    """What a caption says.

    Args:
        claims: facts stated, each once.
        faults: {kind: number} of flaws of the language: repetition, agreement, truncation, unreadable.
    """

    claims: frozenset[Fact]
    faults: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class FactScores:
    """A caption compared with the truth.

    Args:
        recall: share of the scene's facts that are stated, in [0, 1].
        precision: share of the stated facts that are true, in [0, 1]; 0 when nothing is stated. True spatial relations
            count here and not in recall, as they follow from positions: they can pad it.
        f1: harmonic mean of the two.
        faults: number of flaws of the language.
        wrong: stated facts that are false.
        missing: facts of the scene that are not stated.
    """

    recall: float
    precision: float
    f1: float
    faults: int
    wrong: frozenset[Fact]
    missing: frozenset[Fact]


class Oracle:
    """Judges captions of the synthetic world by their facts; it never sees how they were made.

    Example:
        >>> from reward.scenes.graph import Entity, Scene
        >>> scene = Scene((Entity("star", "red", "big", "plain", 1, 0),), None, None, "beach")
        >>> Oracle().score("There is a small red star in the top left.", scene).precision
        0.8
    """

    def read(self, caption: str) -> StatedFacts:
        """Facts and flaws of a caption; text outside the world's language states nothing and counts as unreadable."""
        claims: set[Fact] = set()
        faults: Counter[str] = Counter()
        seen: set[str] = set()
        many: dict[str, bool] = {}  # noun -> whether it was brought in as several
        body = " ".join(caption.lower().split())
        sentences = [part.strip() for part in body.split(".")]
        if sentences and sentences[-1]:
            faults["truncation"] += 1
        # In their order: "the stars are big" agrees only with several stars that came in before.
        for sentence in sentences:
            if not sentence:
                continue
            if sentence in seen:
                faults["repetition"] += 1
                continue
            seen.add(sentence)
            unfinished = sentence == sentences[-1]
            stated, flaws = _read_sentence(sentence, many)
            claims.update(stated)
            if unfinished:
                flaws.pop("unreadable", None)  # a sentence that breaks off is one flaw
            faults.update(flaws)
        return StatedFacts(frozenset(claims), dict(faults))

    def score(self, caption: str, scene: Scene | str) -> FactScores:
        """Recall, precision and F1 of the caption's facts.

        Args:
            caption: any text.
            scene: the truth, as a Scene or its JSON (column `scene` of `make_dataset`).
        """
        if isinstance(scene, str):
            scene = Scene.from_json(scene)
        reading = self.read(caption)
        return score_claims(reading.claims, scene, faults=sum(reading.faults.values()))


def score_claims(claims: Iterable[Fact], scene: Scene, *, faults: int = 0) -> FactScores:
    """Compares claims with the truth; see `FactScores`."""
    claims = frozenset(claims)
    truth = scene.facts()
    right = {claim for claim in claims if scene.is_true(claim)}
    recall = len(right & truth) / len(truth)
    precision = 0.0
    if claims:
        precision = len(right) / len(claims)
    f1 = 0.0
    if recall + precision > 0:
        f1 = 2 * recall * precision / (recall + precision)
    return FactScores(recall, precision, f1, faults, claims - right, truth - right)


def _read_sentence(sentence: str, many: dict[str, bool]) -> tuple[list[Fact], Counter[str]]:
    flaws: Counter[str] = Counter()
    words = sentence.split()
    match = _match(sentence)
    # What is said twice in a row is one flaw, and the rest is read as if it stood there once.
    if match is None:
        collapsed = _without_repeats(words)
        if collapsed != words:
            flaws["repetition"] += 1
            match = _match(" ".join(collapsed))
    if match is None:
        if sentence in FILLER or " ".join(_without_repeats(words)) in FILLER:
            return [], flaws
        if not flaws["repetition"]:
            flaws["unreadable"] += 1
        return _loose_claims(_without_repeats(words)), flaws
    kind, groups = match
    if not (_agrees(groups) and _agrees_with_earlier(groups, many)):
        flaws["agreement"] += 1
    return _claims(kind, groups), flaws


def _match(sentence: str) -> tuple[str, dict[str, str]] | None:
    for kind, pattern in _patterns():
        match = pattern.fullmatch(sentence)
        if match:
            return kind, {name: value for name, value in match.groupdict().items() if value is not None}
    return None


@lru_cache(maxsize=1)
def _patterns() -> list[tuple[str, re.Pattern[str]]]:
    def any_of(words: Iterable[str]) -> str:
        return "|".join(sorted(map(re.escape, words), key=len, reverse=True))

    np = (
        rf"(?P<number>{any_of(_NUMBER)}) (?:(?P<size>{any_of(_SIZE)}) )?(?:(?P<pattern>{any_of(_PATTERN)}) )?"
        rf"(?:(?P<colour>{any_of(COLOURS)}) )?(?P<noun>{any_of(_NOUN)})"
    )
    slots = {
        "np": np,
        "pos": rf"(?P<pos>{any_of(_POSITION)})",
        "be": "(?P<be>is|are)",
        "be_b": "(?P<be_b>is|are)",
        "the_a": rf"(?P<a>{any_of(_NOUN)})",
        "the_b": rf"(?P<b>{any_of(_NOUN)})",
        "attrs": rf"(?:(?P<size>{any_of(_SIZE)})(?: and )?)?(?P<pattern>{any_of(_PATTERN)})?",
        "ing": rf"(?P<verb>{any_of(_ING)})",
        "past": rf"(?P<verb>{any_of(_PAST)})",
        "relation": rf"(?P<relation>{any_of(_RELATION)})",
        "text": rf"(?P<text>{any_of(_TEXT)})",
        "background": rf"(?P<background>{any_of(_BACKGROUND)})",
    }
    patterns = []
    for kind, templates in TEMPLATES.items():
        for template in templates:
            for words, alternatives in _EQUALS.items():
                template = re.sub(words, alternatives, template)
            pattern = re.sub(r"\{(\w+)\}", lambda slot: slots[slot.group(1)], template)
            patterns.append((kind, re.compile(pattern)))
    return patterns


def _agrees(groups: dict[str, str]) -> bool:
    """Whether number, noun and verb of a sentence agree."""
    if "number" in groups:
        is_several = _NUMBER[groups["number"]] != 1
        verb = "are" if is_several else "is"
        if (groups["noun"] in _PLURAL) != is_several or groups.get("be", verb) != verb:
            return False
    # In "the stars are being chased by the ring" the verb goes with the second noun of the template.
    noun, be = ("b", "be_b") if "be_b" in groups else ("a", "be")
    if noun in groups and be in groups:
        return groups[be] == ("are" if groups[noun] in _PLURAL else "is")
    return True


def _agrees_with_earlier(groups: dict[str, str], many: dict[str, bool]) -> bool:
    """Whether "the stars" were several when they came in; remembers nouns that come in here."""
    if "number" in groups:
        many[str(_NOUN[groups["noun"]])] = _NUMBER[groups["number"]] != 1
    mentioned = [groups[slot] for slot in ("a", "b") if slot in groups]
    return all(many.get(str(_NOUN[word]), word in _PLURAL) == (word in _PLURAL) for word in mentioned)


def _claims(kind: str, groups: dict[str, str]) -> list[Fact]:
    """The facts that a sentence of a template states; `kind` is the template's."""
    if kind in ("action", "spatial"):
        a, b = str(_NOUN[groups["a"]]), str(_NOUN[groups["b"]])
        if kind == "spatial":
            return [("spatial", a, _RELATION[groups["relation"]], b)]
        return [("action", a, _ING.get(groups["verb"]) or _PAST[groups["verb"]], b)]
    if kind == "background":
        return [("background", _BACKGROUND[groups["background"]])]
    claims: list[Fact] = []
    if kind.startswith("sign"):
        if "text" in groups:
            claims.append(("text", _TEXT[groups["text"]]))
        if "pos" in groups:
            claims.append(("position", "sign", _POSITION[groups["pos"]]))
        return claims
    noun = str(_NOUN[groups.get("noun") or groups["a"]])
    if "number" in groups:
        claims += [("object", noun), ("count", noun, _NUMBER[groups["number"]])]
    if "size" in groups:
        claims.append(("size", noun, _SIZE[groups["size"]]))
    if "pattern" in groups:
        claims.append(("pattern", noun, _PATTERN[groups["pattern"]]))
    if "pos" in groups:
        claims.append(("position", noun, _POSITION[groups["pos"]]))
    if "colour" in groups:
        claims.append(("colour", noun, groups["colour"]))
    return claims


def _without_repeats(words: list[str]) -> list[str]:
    """Removes a span of up to three words that directly follows itself."""
    collapsed: list[str] = []
    for word in words:
        collapsed.append(word)
        for size in (3, 2, 1):
            if len(collapsed) >= 2 * size and collapsed[-size:] == collapsed[-2 * size : -size]:
                del collapsed[-size:]
                break
    return collapsed


def _loose_claims(words: list[str]) -> list[Fact]:
    """What a reader still understands of a sentence that breaks the grammar: facts about one subject, or an action."""
    text = " ".join(words)
    nouns = [str(_NOUN[word]) for word in words if word in _NOUN]
    verbs = [word for word in words if word in _ING or word in _PAST]
    if verbs:
        if len(nouns) != 2:
            return []
        agent, patient = nouns
        if verbs[0] in _PAST:  # in "the ring is being chased by the star" the patient comes first
            agent, patient = patient, agent
        return [("action", agent, _ING.get(verbs[0]) or _PAST[verbs[0]], patient)]
    claims: list[Fact] = [("background", _BACKGROUND_HEAD[word]) for word in words if word in _BACKGROUND_HEAD]
    cell = next((value for phrase, value in _POSITION.items() if phrase in text), None)
    if any(word in ("sign", "written", "says", "reads") for word in words):
        claims += [("text", _TEXT[word]) for word in words if word in _TEXT]
        if cell is not None:
            claims.append(("position", "sign", cell))
        return claims
    if len(set(nouns)) != 1:
        return claims
    noun = nouns[0]
    # "One" is a number only where there is no other: "one can see two stars".
    numbers = [_NUMBER[word] for word in words if word in _NUMBER and word != "one"]
    if not numbers and "one" in words:
        numbers = [1]
    if numbers:
        claims += [("object", noun), ("count", noun, numbers[0])]
    claims += [("size", noun, _SIZE[word]) for word in words if word in _SIZE]
    claims += [("pattern", noun, _PATTERN[word]) for word in words if word in _PATTERN]
    claims += [("colour", noun, word) for word in words if word in COLOURS]
    if cell is not None:
        claims.append(("position", noun, cell))
    return claims
