"""Captions pause where they would if their text were looked at after every token, and text is decoded seldom."""

from __future__ import annotations

import random

import pytest

from integrations.hf_generate.sentence_ends import SentenceEnds
from reward.sentences import split_sentences

PIECES = [
    "A",
    " star",
    ".",
    ". ",
    "!",
    '."',
    " ",
    "\n",
    " Dr",
    " 3",
    "5",
    "1.",
    "。",
    "星",
    "(",
    ")",
    "…",
    "?!",
    ". I",
    "'",
]


class Pieces:
    """Decodes tokens, and counts how often."""

    def __init__(self) -> None:
        self.decoded = 0

    def batch_decode(self, rows: list[list[int]], skip_special_tokens: bool = False) -> list[str]:
        self.decoded += len(rows)
        return ["".join(PIECES[token] for token in row) for row in rows]


def sentences(tokens: list[int]) -> int:
    return len(split_sentences("".join(PIECES[token] for token in tokens).strip()))


@pytest.mark.parametrize("seed", range(8))
def test_captions_pause_as_if_all_text_were_decoded(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        ends = SentenceEnds(Pieces(), {})
        tokens: list[int] = []
        old = 0
        for _ in range(40):
            tokens.append(rng.randrange(len(PIECES)) if rng.random() < 0.5 else rng.randrange(2))
            expected = sentences(tokens) > max(sentences(tokens[:old]), 1)
            assert ends(tokens, old) == expected, [PIECES[token] for token in tokens]
            if expected:
                old = len(tokens)


def test_text_is_decoded_twice_a_sentence() -> None:
    """Once where the next sentence begins, and once for all captions that go on from there."""
    pieces = Pieces()
    ends = SentenceEnds(pieces, {})
    caption = [0, *[1] * 20, 2, 8, *[1] * 20]  # "A star star ... star. Dr star ..."
    assert [ends(caption[:length], 0) for length in range(1, 24)] == [False] * 22 + [True]
    kinds = 4  # tokens, of which each was looked at once
    assert pieces.decoded == kinds + 1
    for _ in range(4):
        assert not any(ends(caption[:length], 23) for length in range(24, 44))
    assert pieces.decoded == kinds + 2
