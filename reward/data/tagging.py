"""Splits captions into words and punctuation, and tags the part of speech of each word."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reward.data.sentences import END_MARKS, is_abbreviation, is_punctuation
from reward.optional import require

_LONGEST = 40  # letters of a word that the tagger is shown
_LATIN = re.compile("[A-Za-z]")
PARTS = ("noun", "verb", "adjective", "adverb")

_SPACE = re.compile(r"(\s+)")
# The tagger's model uses the BNC's C5 tags. Forms of be, have and do, modal verbs and particles are left out on
# purpose: they are not keywords, and repeating them teaches nothing about content.
_C5_PARTS = {"NN": "noun", "NP": "noun", "VV": "verb", "AJ": "adjective", "AV0": "adverb"}


@dataclass(frozen=True)
class Token:
    """A piece of text between white space: `before` and `after` are punctuation, `word` may be empty.

    `space` is the white space that follows.
    """

    before: str
    word: str
    after: str
    space: str

    @property
    def ends_sentence(self) -> bool:
        """Whether the next word begins a sentence."""
        if "\n" in self.space:
            return True
        if not any(mark in self.after for mark in END_MARKS):
            return False
        return not (self.after == "." and is_abbreviation(self.word))


def split_words(text: str) -> list[Token]:
    """Splits a text at white space, and separates punctuation from the ends of each piece; `join` restores the text.

    A script without spaces, such as Chinese, is one word.

    Example:
        >>> [token.word for token in split_words("A well-lit (red) star!")]
        ['A', 'well-lit', 'red', 'star']
        >>> join(split_words(" A star!")) == " A star!"
        True
    """
    pieces = _SPACE.split(text)
    tokens = []
    for piece, space in zip(pieces[::2], [*pieces[1::2], ""], strict=True):
        start, end = 0, len(piece)
        while start < end and is_punctuation(piece[start]):
            start += 1
        while end > start and is_punctuation(piece[end - 1]):
            end -= 1
        tokens.append(Token(piece[:start], piece[start:end], piece[end:], space))
    return tokens


def join(tokens: Sequence[Token]) -> str:
    """The text of tokens."""
    return "".join(token.before + token.word + token.after + token.space for token in tokens)


def tag_words(text: str) -> list[tuple[str, str]]:
    """Finds the part of speech of every word of an English caption.

    The tagger is HanTa (a hidden Markov model over morphemes, whose model comes with the package, so that nothing is
    downloaded). It guesses unknown words from their endings. Like any tagger it makes errors, mostly where one form
    is both noun and verb ("watches") and on words in capitals. Words without a Latin letter are "other".

    Returns:
        (word, part) for each word without its punctuation, in order; part is one of `PARTS` or "other".

    Example:
        >>> tag_words("A small dog runs quickly.")
        [('A', 'other'), ('small', 'adjective'), ('dog', 'noun'), ('runs', 'verb'), ('quickly', 'adverb')]
    """
    tagged: list[tuple[str, str]] = []
    sentence: list[Token] = []
    tokens = split_words(text)
    for index, token in enumerate(tokens):
        sentence.append(token)
        if token.ends_sentence or index == len(tokens) - 1:
            tagged += _tag_sentence(sentence)
            sentence = []
    return tagged


def _tag_sentence(tokens: Sequence[Token]) -> list[tuple[str, str]]:
    pieces: list[str] = []
    places: list[int] = []
    for token in tokens:
        pieces += list(token.before)
        if token.word:
            places.append(len(pieces))
            pieces.append(_without_possessive(token.word))
        pieces += list(token.after)
    if not places:
        return []
    parts = _parts_of_sentence(tuple(pieces))
    words = [token.word for token in tokens if token.word]
    return [(word, parts[place]) for word, place in zip(words, places, strict=True)]


@functools.lru_cache(maxsize=2**14)  # in training the same sentences come every epoch
def _parts_of_sentence(words: tuple[str, ...]) -> list[str]:
    # Only the ends of long words: the time grows with the square of the length, and endings are most informative.
    tags = [tag for _, _, tag in _hanta().tag_sent([word[-_LONGEST:] for word in words])]
    return [
        _C5_PARTS.get(tag[:2]) or _C5_PARTS.get(tag, "other") if _LATIN.search(word) else "other"
        for word, tag in zip(words, tags, strict=True)
    ]


@functools.cache
def _hanta() -> Any:
    package = require("HanTa.HanoverTagger", extra="corruptions", purpose="tagging parts of speech")
    return package.HanoverTagger("morphmodel_en.pgz")


def _without_possessive(word: str) -> str:
    return word[:-2] if len(word) > 2 and word.endswith(("'s", "’s")) else word
