"""Word-level corruptions of captions: shuffled words, shuffled sentences, repeated keywords."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from reward.data.sentences import CLOSERS, END_MARKS, split_sentences
from reward.data.tagging import Token, join, split_words, tag_words

_MAX_COPIES = 3  # copies added to a repeated word


def corrupt_words(text: str, rng: random.Random, kind: str) -> str | None:
    """The corruption `"shuffle_words"`, `"shuffle_sentences"` or `"repeat_<part>"` of a caption.

    Args:
        text: a caption.
        rng: where chance comes from.
        kind: the name of a function of this module, or "repeat_" and a part of `repeat_words`.

    Returns:
        A text that differs from `text`; None if there is none.

    Example:
        >>> corrupt_words("A red star. A ring.", random.Random(0), "shuffle_sentences")
        'A ring. A red star.'
    """
    if kind == "shuffle_words":
        return shuffle_words(text, rng)
    if kind == "shuffle_sentences":
        return shuffle_sentences(text, rng)
    return repeat_words(text, rng, kind.removeprefix("repeat_"))


def shuffle_words(text: str, rng: random.Random) -> str | None:
    """Puts the words of a caption in random order.

    White space and punctuation stay where they are, as does the capital at a sentence's start; the words move. A name
    that began a sentence loses its capital. None if no order differs from `text`: a single word, or all alike.

    Example:
        >>> shuffle_words("A red star lies on grass.", random.Random(1))
        'Star lies grass a on red.'
    """
    tokens = split_words(text)
    positions = [index for index, token in enumerate(tokens) if token.word]
    capitals = {index for index in _sentence_starts(tokens) if tokens[index].word[0].isupper()}
    # The capital of a sentence's start belongs to the position, and is given to the word that comes there.
    words = []
    for index in positions:
        word = tokens[index].word
        words.append(_uncapitalised(word) if index in capitals else word)
    order = _shuffled_order(words, rng)
    if order is None:
        return None
    for index, word_index in zip(positions, order, strict=True):
        word = words[word_index]
        if index in capitals:
            word = word[:1].title() + word[1:]
        tokens[index] = replace(tokens[index], word=word)
    shuffled = join(tokens)
    if shuffled == text:
        return None
    return shuffled


def shuffle_sentences(text: str, rng: random.Random) -> str | None:
    """Puts the sentences of a caption in random order.

    Each sentence keeps its words, capitals and end mark. If the last one has no end mark, the new last one has none.
    None if no order differs from `text`: one sentence, or all alike.

    Example:
        >>> shuffle_sentences("A star shines. It is red. The sky is dark", random.Random(0))
        'A star shines. The sky is dark. It is red'
    """
    # White space at either end of a sentence belongs to its position, not to the sentence.
    before, sentences, after = [], [], []
    for sentence, space in split_sentences(text):
        stripped = sentence.strip()
        start = sentence.find(stripped)
        before.append(sentence[:start])
        sentences.append(stripped)
        after.append(sentence[start + len(stripped) :] + space)
    order = _shuffled_order(sentences, rng)
    if order is None:
        return None
    last = order[-1]
    if last != len(sentences) - 1 and not sentences[-1].rstrip(CLOSERS).endswith(tuple(END_MARKS)):
        # The old last one takes over the mark of the one that comes last now.
        unmarked = sentences[last].rstrip(END_MARKS)
        sentences[-1] += sentences[last].removeprefix(unmarked) or "."
        sentences[last] = unmarked
    pieces = []
    for position, index in enumerate(order):
        pieces += [before[position], sentences[index], after[position]]
    shuffled = "".join(pieces)
    if shuffled == text:
        return None
    return shuffled


def repeat_words(text: str, rng: random.Random, part: str = "noun") -> str | None:
    """Repeats words of one part of speech on the spot: "a red red red star".

    Metrics that look at a caption as a bag of words reward this. At least one word of the part is repeated, each other
    one with even chance; one to three copies follow it, before its punctuation and without a sentence's capital. Forms
    of be, have and do are not repeated. None if the caption has no word of the part, which is one of `PARTS`.

    Example:
        >>> repeat_words("A red star lies on grass.", random.Random(2), "adjective")
        'A red red star lies on grass.'
    """
    tokens = split_words(text)
    starts = _sentence_starts(tokens)
    positions = [index for index, token in enumerate(tokens) if token.word]
    tags = [tag for _, tag in tag_words(text)]
    of_part = [index for index, tag in zip(positions, tags, strict=True) if tag == part]
    if not of_part:
        return None
    always_repeated = rng.choice(of_part)
    for index in of_part:
        if index != always_repeated and rng.random() < 0.5:
            continue
        word = tokens[index].word
        copy = _uncapitalised(word) if index in starts else word
        copies = [copy] * rng.randint(1, _MAX_COPIES)
        tokens[index] = replace(tokens[index], word=" ".join([word, *copies]))
    return join(tokens)


def _shuffled_order(items: Sequence[str], rng: random.Random) -> list[int] | None:
    """Indices of the items in a random order in which they read otherwise; None if all are alike."""
    order = list(range(len(items)))
    rng.shuffle(order)
    if [items[index] for index in order] != list(items):
        return order
    # Likely for two or three items: exchange the first two that differ.
    for position, item in enumerate(items):
        if item != items[0]:
            order[0], order[position] = order[position], order[0]
            return order
    return None


def _sentence_starts(tokens: Sequence[Token]) -> set[int]:
    """Indices of the tokens that hold the first word of a sentence."""
    starts = set()
    at_start = True
    for index, token in enumerate(tokens):
        if token.word and at_start:
            starts.add(index)
            at_start = False
        if token.ends_sentence:
            at_start = True
    return starts


def _uncapitalised(word: str) -> str:
    """The word with a small first letter; `OPEN`, `I` and `McX` keep theirs."""
    rest = word[1:]
    if word == "I" or word.startswith(("I'", "I’")) or rest != rest.lower():
        return word
    return word[:1].lower() + rest
