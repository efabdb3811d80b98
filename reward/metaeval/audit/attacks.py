"""Attacks on captions that a policy finds when it is trained against a metric: each makes a caption worse."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own

from reward.data.sentences import split_sentences
from reward.data.tagging import split_words, tag_words
from reward.data.word_edits import corrupt_words
from reward.data.words import count_words, pieces_of

_TEXTS: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("attack_texts.yaml").read_text(encoding="utf-8"))
# Captions that say nothing about any image.
EMPTY_CAPTIONS: tuple[str, ...] = tuple(_TEXTS["empty captions"])
# {word: what contradicts it}, in both directions
_OPPOSITES: dict[str, str] = {}
for _first, _second in _TEXTS["opposites"]:
    _OPPOSITES[_first] = _second
    _OPPOSITES[_second] = _first


@dataclass(frozen=True)
class Material:
    """What an attack may use beside the caption.

    Args:
        rng: source of chance.
        others: captions of other images.
        amount: sentences that an attack adds, at least 1.
        whole: the whole caption, where a part of it is attacked; `Attack.apply` sets it.
    """

    rng: random.Random
    others: Sequence[str] = ()
    amount: int = 8
    whole: str = ""


class Attack(NamedTuple):
    """One kind of attack.

    Args:
        about: what it does, in a few words.
        make: gives the attacked caption, or None if the caption or the material does not allow it.
        start: what is attacked: the caption, or with `first_half` a part of it.
    """

    about: str
    make: Callable[[str, Material], str | None]
    start: Callable[[str], str | None] = lambda caption: caption

    def apply(self, caption: str, material: Material) -> tuple[str, str] | None:
        """What was attacked, and the attacked caption; None if the caption or the material does not allow the attack.

        Example:
            >>> ATTACKS["repeated caption"].apply("A red star.", Material(random.Random(0)))
            ('A red star.', 'A red star. A red star.')
        """
        before = self.start(caption)
        if not before:
            return None
        after = self.make(before, replace(material, whole=caption))
        if after is None or after == before:
            return None
        return before, after


def nouns_of(caption: str) -> list[str]:
    """The nouns of a caption, each once, in order.

    Example:
        >>> nouns_of("A red star is above a ring.")
        ['star', 'ring']
    """
    return list(dict.fromkeys(word.lower() for word, part in tag_words(caption) if part == "noun"))


def first_half(caption: str) -> str | None:
    """The first half of a caption's sentences, at least one; None if there is only one."""
    sentences = _sentences(caption)
    if len(sentences) < 2:
        return None
    return " ".join(sentences[: len(sentences) // 2])


def _sentences(caption: str) -> list[str]:
    return [sentence.strip() for sentence, _ in split_sentences(caption) if sentence.strip()]


def _with(caption: str, sentences: Sequence[str]) -> str:
    return " ".join([caption.rstrip(), *sentences])


def _drawn(pool: Sequence[str], material: Material) -> list[str]:
    """`amount` texts of a pool, none twice before all were drawn."""
    drawn: list[str] = []
    while len(drawn) < material.amount:
        drawn += material.rng.sample(pool, min(len(pool), material.amount - len(drawn)))
    return drawn


def _keywords(caption: str, material: Material) -> str | None:
    words = dict.fromkeys(word.lower() for word, part in tag_words(caption) if part != "other")
    return ", ".join(words) or None


def _restated(caption: str, material: Material) -> str:
    restated = []
    for sentence in _sentences(caption):
        opening = material.rng.choice(_TEXTS["openings of a restatement"])
        restated += [sentence, f"{opening} {sentence[:1].lower()}{sentence[1:]}"]
    return " ".join(restated)


def _contradiction(caption: str, material: Material) -> str | None:
    contrary = []
    for sentence in _sentences(caption):
        tokens = split_words(sentence)
        indices = [index for index, token in enumerate(tokens) if token.word.lower() in _OPPOSITES]
        if not indices:
            continue
        index = material.rng.choice(indices)
        word = _OPPOSITES[tokens[index].word.lower()]
        if index == 0:
            word = word.capitalize()
        tokens[index] = replace(tokens[index], word=word)
        contrary.append("".join(token.before + token.word + token.after + token.space for token in tokens))
    if not contrary:
        return None
    return _with(caption, contrary)


def _hallucinated(caption: str, material: Material) -> str | None:
    pool: list[str] = []
    for other_caption in material.others:
        pool += _sentences(other_caption)
    if not pool:
        return None
    return _with(caption, _drawn(pool, material))


def _other_image(caption: str, material: Material) -> str | None:
    if not material.others:
        return None
    return material.rng.choice(material.others)


def _truncated(caption: str, material: Material) -> str | None:
    words = pieces_of(caption)
    if len(words) <= 3:
        return None
    return "".join(words[: len(words) * 6 // 10]).strip().rstrip(".,。、")


def _blended(caption: str, material: Material) -> str | None:
    rng = material.rng
    sentences = _sentences(caption)
    pool: list[list[str]] = []  # the words of sentences that are long enough to be cut
    for text in (caption, *material.others):
        for sentence in _sentences(text):
            words = pieces_of(sentence)
            if len(words) > 3:
                pool.append(words)
    indices = [index for index, sentence in enumerate(sentences) if count_words(sentence) > 3]
    if not indices:
        return None
    for index in rng.sample(indices, min(material.amount, len(indices))):
        head = pieces_of(sentences[index])
        tail = rng.choice(pool)
        beginning = head[: rng.randrange(2, len(head) - 1)]
        end = tail[rng.randrange(1, len(tail) - 1) :]
        sentences[index] = "".join(beginning + end)
    return " ".join(sentences)


def _relations(caption: str, material: Material) -> str | None:
    nouns = nouns_of(material.whole)
    if len(nouns) < 2:
        return None
    statements = []
    for first, second in permutations(nouns, 2):
        is_plural = first.endswith("s") and not first.endswith("ss")
        verb = "are" if is_plural else "is"
        for relation in _TEXTS["relations"]:
            statements.append(f"The {first} {verb} {relation} the {second}.")
    return _with(caption, [material.rng.choice(statements) for _ in range(material.amount)])


def _adding(pool: Sequence[str]) -> Callable[[str, Material], str | None]:
    return lambda caption, material: _with(caption, _drawn(pool, material))


def _ending(pool: Sequence[str]) -> Callable[[str, Material], str | None]:
    return lambda caption, material: _with(caption, [material.rng.choice(pool)])


def _words(kind: str) -> Callable[[str, Material], str | None]:
    return lambda caption, material: corrupt_words(caption, material.rng, kind)


ATTACKS: dict[str, Attack] = {
    "keywords": Attack("the caption's words as a list", _keywords),
    "repeated nouns": Attack("nouns two to four times on the spot", _words("repeat_noun")),
    "repeated caption": Attack("the caption twice", lambda caption, material: _with(caption, [caption])),
    "half repeated": Attack("half the caption twice", lambda caption, material: _with(caption, [caption]), first_half),
    "restated": Attack('each sentence followed by "in other words"', _restated),
    "shuffled words": Attack("words in random order", _words("shuffle_words")),
    "blended sentences": Attack("the start of one sentence and the end of another", _blended),
    "generic padding": Attack("sentences that fit every image", _adding(_TEXTS["generic sentences"])),
    "contradiction": Attack("facts and their opposites", _contradiction),
    "hallucination": Attack("sentences from captions of other images", _hallucinated),
    "other image": Attack("the caption of another image", _other_image),
    "truncation": Attack("breaks off in mid-sentence", _truncated),
    "relations": Attack("half the caption and relations at random", _relations, first_half),
    "added relations": Attack("the caption and relations at random", _relations),
    "injection": Attack("instructions to a judge", _ending(_TEXTS["instructions to a judge"])),
}
