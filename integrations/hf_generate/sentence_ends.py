"""When a caption that is being written has ended a sentence."""

from __future__ import annotations

from typing import Any, NamedTuple

from reward.sentences import CLOSERS, END_MARKS, split_sentences

__all__ = ["SentenceEnds", "TokenMarks"]

_MARKS = f"{END_MARKS}{CLOSERS}\n\ufffd"  # the last: a part of a letter


class TokenMarks(NamedTuple):
    """Whether a sentence may end at a token, and whether it may show with the token itself, unlike a bare dot."""

    any: bool
    at_once: bool


class SentenceEnds:
    """Pauses captions once the next sentence begins; for `Call.write`.

    Whether a dot ends a sentence shows only in the text, and decoding it at every step took a twelfth of the time with
    a small captioner. So text is decoded only after a token that may be an end, and that of earlier blocks, which the
    continuations of a caption share, once.

    Args:
        processor: decodes tokens.
        marks: those of the tokens that have come up; more are added.
    """

    def __init__(self, processor: Any, marks: dict[int, TokenMarks]) -> None:
        self.processor, self._marks = processor, marks
        self._earlier: dict[tuple[int, ...], tuple[int, bool]] = {(): (1, False)}

    def __call__(self, tokens: list[int], old: int) -> bool:
        """Whether the caption has ended a sentence more than with its `old` first tokens."""
        earlier = tuple(tokens[:old])
        if earlier not in self._earlier:
            self._earlier[earlier] = self._sentences(list(earlier))
        sentences, is_open = self._earlier[earlier]
        shows = is_open or self._of(tokens[-1]).at_once or any(self._of(token).any for token in tokens[old:-1])
        return shows and len(self._split(tokens)) > sentences

    def _sentences(self, tokens: list[int]) -> tuple[int, bool]:
        """How many sentences there are, at least 1, and whether what follows may show that there are more."""
        parts = self._split(tokens)
        recent = any(self._of(token).any for token in tokens[-2:])
        return max(len(parts), 1), recent and (not parts or any(mark in parts[-1][0] for mark in _MARKS))

    def _split(self, tokens: list[int]) -> list[tuple[str, str]]:
        return split_sentences(self.processor.batch_decode([tokens], skip_special_tokens=True)[0].strip())

    def _of(self, token: int) -> TokenMarks:
        if token not in self._marks:
            text = self.processor.batch_decode([[token]])[0]
            found = any(mark in text for mark in _MARKS)
            self._marks[token] = TokenMarks(found, found and text.strip() not in (".", "!", "?"))
        return self._marks[token]
