"""BEiTScore, data: captions as tokens that know which of them state facts, which are wrong, and what would be right."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from transformers import PreTrainedTokenizerFast

from examples.research.embedded.schedule import padded
from reward.scenes import Caption, Scene
from reward.scenes.graph import ACTIONS, COLOURS, GRID, WORDS
from reward.scenes.language import (
    BACKGROUND_PHRASES,
    ING,
    NUMBERS,
    PAST,
    PATTERN_WORDS,
    SIZE_WORDS,
    SYNONYMS,
    Word,
    plural,
)
from reward.scenes.pairs import Pair

__all__ = ["IGNORED", "MASK", "Batch", "Reader", "Tokens"]

IGNORED = -100
START, END = 1, 2
# A token that no caption holds stands for a masked word.
MASK = 5


def _classes() -> dict[str, tuple[str, ...]]:
    """{word: words that could stand in its place}."""
    singular = [name for names in SYNONYMS.values() for name in names]
    groups: list[Iterable[str]] = [
        singular,
        [plural(name) for name in singular],
        COLOURS,
        [word for words in SIZE_WORDS.values() for word in words],
        [word for words in PATTERN_WORDS.values() for word in words],
        [NUMBERS[number][0] for number in (2, 3, 4)],
        ("top", "upper", "middle", "bottom", "lower"),
        ("left", "centre", "right"),
        ("above", "below"),
        ING.values(),
        PAST.values(),
        WORDS,
        [phrase.split()[-1] for phrase in BACKGROUND_PHRASES.values()],
    ]
    return {word: tuple(group) for group in map(tuple, groups) for word in group}


REPLACEMENTS = _classes()
# Kinds of facts that few words of a caption state: replaced more often, as their errors are learned last.
RARE = ("colour", "text", "count")
NOUN_OF = {form: noun for noun, names in SYNONYMS.items() for name in names for form in (name, plural(name))}


class Token(NamedTuple):
    """One token of a caption.

    Args:
        id: of the token.
        name: what is claimed by it: its id, but of who does something to whom an id for that role (`Reader.roles`).
        fact: whether it states a fact.
        wrong: whether it is wrong.
        truth: id that would be right in its place, IGNORED where there is no saying.
        cells: bits of the cells of the picture that it is about; 0 where there is no saying.
    """

    id: int
    name: int
    fact: bool = False
    wrong: bool = False
    truth: int = IGNORED
    cells: int = 0


Tokens = list[Token]


@dataclass
class Batch:
    """Captions of images, padded: all are (B, L), cells (B, L, 9) bool."""

    ids: torch.Tensor
    padding: torch.Tensor
    facts: torch.Tensor
    wrong: torch.Tensor
    truth: torch.Tensor
    cells: torch.Tensor
    names: torch.Tensor
    positions: torch.Tensor


def cells_of(word: Word, scene: Scene) -> int:
    """Bits of the cells that a word of a true caption is about: its object's, or both objects' for what links them."""
    fact = word.fact
    if fact is None or fact[0] == "background":
        return 0
    if fact[0] == "text" or fact[:2] == ("position", "sign"):
        return 1 << scene.sign.cell if scene.sign else 0
    if fact[0] in ("action", "spatial"):
        noun = NOUN_OF.get(word.text.rstrip(".").lower())
        nouns = [noun] if noun else [str(fact[1]), str(fact[3])]
    else:
        nouns = [str(fact[1])]
    return sum(1 << scene.entity(noun).cell for noun in nouns)


class Reader:
    """Turns captions into tokens; every word is tokenised once and remembered."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, longest: int) -> None:
        self._tokenizer = tokenizer
        self._longest = longest
        self._words: dict[str, list[int]] = {}
        # Control characters have tokens of their own in a byte-level vocabulary, which no caption ever uses.
        places = [(verb, slot) for verb in ACTIONS for slot in ("agent", "patient")]
        self.roles = {role: tokenizer.convert_tokens_to_ids(chr(256 + place)) for place, role in enumerate(places)}

    def word(self, text: str) -> list[int]:
        if text not in self._words:
            self._words[text] = self._tokenizer(text, add_special_tokens=False).input_ids
        return self._words[text]

    def tokens(
        self,
        words: Sequence[Word],
        wrong: Iterable[int] = (),
        truth: Sequence[Word] | None = None,
        scene: Scene | None = None,
        *,
        ends: bool = False,
    ) -> Tokens:
        """Tokens of words; `wrong` are indices of wrong ones, `truth` the words of a true caption of the same length.

        With a scene, which must be the truth, words say where they are about. With `ends`, the last word of a sentence
        is right or wrong too, as words are that state a fact.
        """
        made, errors = [Token(START, START)], set(wrong)
        aligned = truth is not None and len(truth) == len(words)
        for index, word in enumerate(words):
            space = " " if index else ""
            ids = self.word(space + word.text)
            right = self.word(space + truth[index].text) if aligned and truth is not None else []
            right = right if len(right) == len(ids) else [IGNORED] * len(ids)
            cells = cells_of(truth[index], scene) if aligned and truth and scene else 0
            judged = word.fact is not None or (ends and word.text.endswith("."))
            made += [
                Token(token, name, judged, index in errors, true, cells)
                for token, name, true in zip(ids, self._names(word, ids), right, strict=True)
            ]
        return [*made, Token(END, END)][: self._longest]

    def _names(self, word: Word, ids: list[int]) -> list[int]:
        noun = NOUN_OF.get(word.text.rstrip(".").lower())
        if word.fact is None or word.fact[0] != "action" or noun is None:
            return ids
        _, agent, verb, _ = word.fact
        return [self.roles[str(verb), "agent" if noun == agent else "patient"], *ids[1:]]

    def spoiled(self, caption: Caption, scene: Scene, rng: random.Random, *, mask: float, replace: float) -> Tokens:
        """A true caption in which fact words are masked or replaced by others of their kind, each by its own chance."""
        truth = caption.words()
        words, wrong, masked = [], [], set()
        for index, word in enumerate(truth):
            bare, dot = (word.text[:-1], ".") if word.text.endswith(".") else (word.text, "")
            draw = rng.random() if word.fact is not None else 1.0
            if word.fact is not None and word.fact[0] in RARE and rng.random() < 0.2:
                draw = 0.0
            options = REPLACEMENTS.get(bare.lower() if bare not in REPLACEMENTS else bare)
            if options and draw < replace:
                other = rng.choice([option for option in options if option != bare.lower()])
                words.append(Word(other + dot, word.fact))
                wrong.append(index)
                continue
            if replace <= draw < replace + mask:
                masked.add(index)
            words.append(word)
        made = self.tokens(words, wrong, truth, scene)
        place = 1
        for index, word in enumerate(words):
            size = len(self.word((" " if index else "") + word.text))
            if index in masked:
                # The full stop stays: it says nothing about the word before it.
                end = place + size - (1 if word.text.endswith(".") else 0)
                made[place:end] = [token._replace(id=MASK) for token in made[place:end]]
            place += size
        return made

    def pair(self, pair: Pair, scene: Scene) -> tuple[Tokens, Tokens]:
        """Both captions of a pair. Where a wrong one looks is left to it: the right word's place is not its own."""
        correct = pair.correct.words()
        return self.tokens(correct, (), correct, scene), self.tokens(pair.incorrect.words(), pair.wrong, correct)

    def batch(self, captions: Sequence[Tokens], rng: random.Random, *, shift: float) -> Batch:
        """Pads captions; with the chance `shift` one stands at random places of the position table, not its first.

        So short captions train the table's far rows, and an error is found wherever it stands.
        """

        def column(name: str, fill: int = 0) -> torch.Tensor:
            return padded([[getattr(token, name) for token in caption] for caption in captions], fill)

        ids, lengths = column("id"), torch.tensor([len(caption) for caption in captions])
        places = torch.arange(ids.shape[1])
        most = self._longest - len(places)
        starts = torch.tensor([rng.randint(0, most) if rng.random() < shift else 0 for _ in captions])
        return Batch(
            ids=ids,
            padding=places[None] >= lengths[:, None],
            facts=column("fact").bool(),
            wrong=column("wrong").bool(),
            truth=column("truth", IGNORED),
            cells=(column("cells")[..., None] >> torch.arange(GRID * GRID)) & 1 > 0,
            names=column("name"),
            positions=starts[:, None] + places,
        )
