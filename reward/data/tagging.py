"""Splits captions into words and punctuation, and tags the part of speech of each word."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reward.data.sentences import END_MARKS, is_abbreviation, is_punctuation
from reward.optional import require

PARTS = ("noun", "verb", "adjective", "adverb")
_MAX_LETTERS = 40  # of a word that the tagger reads
_LATIN = re.compile("[A-Za-z]")
_SPACE = re.compile(r"(\s+)")
# The tagger's model uses the BNC's C5 tags. Forms of be, have and do, modal verbs and particles are left out on
# purpose: they are not keywords, and repeating them teaches nothing about content.
_PARTS_BY_TWO_LETTERS = {"NN": "noun", "NP": "noun", "VV": "verb", "AJ": "adjective"}  # NN0, NN1 and NN2 are all nouns
_PARTS_BY_TAG = {"AV0": "adverb"}  # but AVP is a particle and AVQ a word such as "when"


@dataclass(frozen=True)
class Token:
    """A piece of text between white space.

    Args:
        before, after: punctuation around the word.
        word: the word, which may be empty.
        space: the white space that follows.
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
    pieces_and_spaces = [*_SPACE.split(text), ""]  # in turns
    tokens = []
    for piece, space in zip(pieces_and_spaces[::2], pieces_and_spaces[1::2], strict=True):
        start = 0
        end = len(piece)
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
    """The part of speech of every word of an English caption.

    The tagger is HanTa, a hidden Markov model over morphemes, which comes with its package. It errs mostly where one
    form is both noun and verb ("watches") and on words in capitals. Words without a Latin letter are "other".

    Returns:
        (word, part) for each word without its punctuation, in order; part is one of `PARTS` or "other".

    Example:
        >>> tag_words("A small dog runs quickly.")
        [('A', 'other'), ('small', 'adjective'), ('dog', 'noun'), ('runs', 'verb'), ('quickly', 'adverb')]
    """
    tagged: list[tuple[str, str]] = []
    sentence: list[Token] = []
    for token in split_words(text):
        sentence.append(token)
        if token.ends_sentence:
            tagged += _tag_sentence(sentence)
            sentence = []
    return tagged + _tag_sentence(sentence)


def _tag_sentence(tokens: Sequence[Token]) -> list[tuple[str, str]]:
    """(word, part) of the words of a sentence; the tagger reads its punctuation, too."""
    pieces: list[str] = []
    positions: dict[int, str] = {}  # {position of a word among the pieces: the word}
    for token in tokens:
        pieces.extend(token.before)  # each mark is a piece
        if token.word:
            positions[len(pieces)] = token.word
            stem = token.word.removesuffix("'s").removesuffix("’s")
            pieces.append(stem or token.word)  # a word may be "'s" alone
        pieces.extend(token.after)
    if not positions:
        return []
    parts = _parts_of_sentence(tuple(pieces))
    return [(word, parts[position]) for position, word in positions.items()]


@functools.lru_cache(maxsize=2**14)  # in training the same sentences come every epoch
def _parts_of_sentence(words: tuple[str, ...]) -> list[str]:
    """The part of each word or mark, one of `PARTS` or "other"; nobody may change the list."""
    # Only the ends of long words: the time grows with the square of the length, and endings are most informative.
    tagged = _hanta().tag_sent([word[-_MAX_LETTERS:] for word in words])
    parts = []
    for word, (_, _, tag) in zip(words, tagged, strict=True):
        part = _PARTS_BY_TWO_LETTERS.get(tag[:2], _PARTS_BY_TAG.get(tag, "other"))
        if not _LATIN.search(word):
            part = "other"
        parts.append(part)
    return parts


@functools.cache
def _hanta() -> Any:
    package = require("HanTa.HanoverTagger", extra="corruptions", purpose="tagging parts of speech")
    return package.HanoverTagger("morphmodel_en.pgz")
