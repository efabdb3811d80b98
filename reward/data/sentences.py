"""Cuts captions into sentences."""

from __future__ import annotations

import re
import unicodedata

CLOSERS = "\"'”’»)]」』"  # what may follow an end mark
# A Latin sentence ends before white space, for its marks stand within words as well. Those of other scripts end it
# anywhere: of Chinese and Japanese, Indic (danda), Arabic and Urdu, Ethiopic, Burmese, Khmer, Armenian, Tibetan.
_ANYWHERE = "。！？｡।॥؟۔።፧၊။។៕։།༎"
END_MARKS = ".!?…" + _ANYWHERE
_CLOSERS = f"[{re.escape(CLOSERS)}]*"
_SENTENCE_END = re.compile(rf"(?:[.!?…]+{_CLOSERS}(?=\s)|[{_ANYWHERE}]+{_CLOSERS})\s*|\n+\s*")
_ABBREVIATIONS = frozenset(
    ("mr", "mrs", "ms", "dr", "st", "mt", "prof", "vs", "etc", "approx", "fig", "jr", "sr", "ft")
)
_LETTERS = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]")  # "U.S", "p.m", "e.g"


def split_sentences(text: str) -> list[tuple[str, str]]:
    """Cuts a text into sentences.

    A sentence ends at a full stop, question mark or exclamation mark before white space, at the end marks of other
    scripts (those of Chinese and Japanese, the danda, ...), and at line breaks. Common abbreviations and initials do
    not end a sentence. List markers, such as "1.", attach to the following sentence; at the end of the text, to the
    last one.

    Returns:
        Pairs of a sentence, with its end mark, and the white space after it. Joined, they are the text.

    Example:
        >>> split_sentences("Dr. Who waves. Is it late? Yes")
        [('Dr. Who waves.', ' '), ('Is it late?', ' '), ('Yes', '')]
    """
    sentences = []
    start = 0
    for match in _SENTENCE_END.finditer(text):
        mark = match.group().rstrip()
        words = text[start : match.start()].split()
        if mark == "." and words and is_abbreviation(words[-1].lstrip("(\"'“")):
            continue
        end = match.start() + len(mark)
        if not _has_letters(text[start:end]):  # a list marker, such as "1."
            continue
        sentences.append((text[start:end], text[end : match.end()]))
        start = match.end()
    rest = text[start:]
    if rest and sentences and not _has_letters(rest):
        rest = "".join(sentences.pop()) + rest
    if rest:
        sentences.append((rest, ""))
    return sentences


def _has_letters(text: str) -> bool:
    """Whether a text has more than white space, digits and punctuation."""
    return not all(character.isspace() or character.isdigit() or is_punctuation(character) for character in text)


def is_punctuation(character: str) -> bool:
    """Whether a character is a punctuation mark of any script."""
    return unicodedata.category(character).startswith("P")


def is_abbreviation(word: str) -> bool:
    """Whether a full stop after the word is likely to belong to it.

    Example:
        >>> is_abbreviation("Dr"), is_abbreviation("U.S"), is_abbreviation("star")
        (True, True, False)
    """
    if len(word) == 1:
        return word.isupper() and word not in "AI"
    return word.lower() in _ABBREVIATIONS or _LETTERS.fullmatch(word) is not None
