"""What a word is: one rule for every place that counts or compares words (n-gram metrics have published ones)."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Any

# Letters of scripts that put no blanks between words: by Unicode's line breaking (SA: Thai, Lao, Khmer, Burmese, ...)
# and by name. A set of `regex`, less the marks, which follow their letter.
_UNSPACED_LETTER = (
    r"[[\p{Line_Break=SA}\p{scx=Han}\p{scx=Hiragana}\p{scx=Katakana}\p{scx=Bopomofo}"
    r"\p{Tibetan}\p{Javanese}\p{Balinese}]&&[\p{L}\p{Nl}]]"
)
# \w of `regex` holds marks and joiners, as Unicode's words do and Python's do not; \p{N} adds "²". No word begins with
# a mark or joiner, which are parts of emoji as well.
_OTHER_CHARACTER = rf"[[\w\p{{N}}]--{_UNSPACED_LETTER}]"
_WORD = rf"{_UNSPACED_LETTER}\p{{M}}*|(?![\p{{M}}\u200c\u200d]){_OTHER_CHARACTER}{_OTHER_CHARACTER}*"
_ASCII_WORD = re.compile(r"[a-z0-9_]+")  # of lower-case text; faster than \w


@cache
def _pattern(expression: str) -> Any:
    import regex  # on use: most captions are ASCII

    return regex.compile(expression, regex.VERSION1)


def words_of(text: str) -> list[str]:
    """The words of a text in order, in lower case: runs of letters with their marks, of digits and underscores.

    Of scripts that put no blanks between words (Chinese, Japanese, Thai, ...), each letter is a word.

    Example:
        >>> words_of("The dog, the CAT."), words_of("लाल तारा"), words_of("红星 A")
        (['the', 'dog', 'the', 'cat'], ['लाल', 'तारा'], ['红', '星', 'a'])
    """
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    # NFC, so that an accent is the same word however it is stored
    words: list[str] = _pattern(_WORD).findall(unicodedata.normalize("NFC", text).lower())
    return words


def pieces_of(text: str) -> list[str]:
    """The text cut at white space, and before each letter of a script that puts no blanks between words.

    Joined, they are the text: punctuation and white space stay with the word before them, at the start with the first.
    A blank text has none.

    Example:
        >>> pieces_of("A red star."), pieces_of("红星。 A")
        (['A ', 'red ', 'star.'], ['红', '星。 ', 'A'])
    """
    pieces: list[str] = []
    for chunk in re.findall(r"\s*\S+\s*", text):
        if chunk.isascii() or not _pattern(_UNSPACED_LETTER).search(chunk):
            pieces.append(chunk)
            continue
        starts = [word.start() for word in _pattern(_WORD).finditer(chunk)]
        starts[0] = 0  # what stands before the first word belongs to it
        ends = [*starts[1:], len(chunk)]
        for start, end in zip(starts, ends, strict=True):
            pieces.append(chunk[start:end])
    return pieces


def count_words(text: str) -> int:
    """How many words a text has, split at white space; of scripts without blanks between words, each letter is one.

    Example:
        >>> count_words("A well-lit star."), count_words("红色的星。")
        (3, 4)
    """
    if text.isascii():
        return len(text.split())
    return len(pieces_of(text))
