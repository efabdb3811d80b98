"""Word-level corruptions: shuffled words, shuffled sentences, repeated keywords; by function or by name."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from reward.data.sentences import CLOSERS, END_MARKS, split_sentences
from reward.data.tagging import PARTS, Token, join, split_words, tag_words
from reward.errors import ConfigError

_MAX_COPIES = 3  # copies added to a repeated word


def corrupt_words(text: str, rng: random.Random, kind: str) -> str | None:
    """The corruption `"shuffle_words"`, `"shuffle_sentences"` or `"repeat_<part>"` of a caption; see below.

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
    that began a sentence loses its capital.

    Args:
        text: a caption.
        rng: where chance comes from.

    Returns:
        A text of the same words that differs from `text`; None if there is none (a single word, or all alike).

    Example:
        >>> shuffle_words("A red star lies on grass.", random.Random(1))
        'Star lies grass a on red.'
    """
    tokens = split_words(text)
    slots = [index for index, token in enumerate(tokens) if token.word]
    starts = _sentence_starts(tokens)
    capital = {index for index in starts if tokens[index].word[0].isupper()}
    words = [_uncapitalised(tokens[index].word) if index in capital else tokens[index].word for index in slots]
    order = list(words)
    rng.shuffle(order)
    if order == words:  # likely for two or three words: exchange the first two that differ
        other = next((place for place, word in enumerate(words) if word != words[0]), None)
        if other is None:
            return None
        order[0], order[other] = order[other], order[0]
    for index, word in zip(slots, order, strict=True):
        tokens[index] = replace(tokens[index], word=_capitalised(word) if index in capital else word)
    return _if_changed(join(tokens), text)


def shuffle_sentences(text: str, rng: random.Random) -> str | None:
    """Puts the sentences of a caption in random order.

    Each sentence keeps its words, capitals and end mark. If the last one has no end mark, the new last one has none.

    Args:
        text: a caption.
        rng: where chance comes from.

    Returns:
        A text of the same sentences that differs from `text`; None if there is none (one sentence, or all alike).

    Example:
        >>> shuffle_sentences("A star shines. It is red. The sky is dark", random.Random(0))
        'A star shines. The sky is dark. It is red'
    """
    cut = split_sentences(text)
    bodies = [body.strip() for body, _ in cut]
    # White space at either end of a sentence belongs to its place, not to the sentence.
    edges = [
        (body[: len(body) - len(body.lstrip())], body[len(body.rstrip()) :] + space) if body.strip() else ("", space)
        for body, space in cut
    ]
    order = list(range(len(bodies)))
    rng.shuffle(order)
    if [bodies[place] for place in order] == bodies:
        other = next((place for place, body in enumerate(bodies) if body != bodies[0]), None)
        if other is None:
            return None
        order[0], order[other] = order[other], order[0]
    last = order[-1]
    if last != len(bodies) - 1 and not _has_end(
        bodies[-1]
    ):  # then it takes over the mark of the sentence that comes last now
        mark = _end_mark(bodies[last])
        bodies[last] = bodies[last].removesuffix(mark)
        bodies[-1] += mark or "."
    shuffled = [bodies[place] for place in order]
    return _if_changed("".join(start + body + end for (start, end), body in zip(edges, shuffled, strict=True)), text)


def repeat_words(text: str, rng: random.Random, part: str = "noun") -> str | None:
    """Repeats words of one part of speech on the spot: "a red red red star".

    Metrics that look at a caption as a bag of words reward this. At least one word of the part is repeated, each other
    one with even chance; one to three copies follow it, before its punctuation and without a sentence's capital.

    Args:
        text: a caption.
        rng: where chance comes from.
        part: `"noun"`, `"verb"`, `"adjective"` or `"adverb"`. Forms of be, have and do are not repeated.

    Returns:
        The longer text; None if no word of that part was found.

    Example:
        >>> repeat_words("A red star lies on grass.", random.Random(2), "adjective")
        'A red red star lies on grass.'
    """
    if part not in PARTS:
        raise ConfigError(f"part must be one of {', '.join(PARTS)}, got {part!r}")
    tokens = split_words(text)
    starts = _sentence_starts(tokens)
    slots = [index for index, token in enumerate(tokens) if token.word]
    of_part = [index for index, (_, tag) in zip(slots, tag_words(text), strict=True) if tag == part]
    if not of_part:
        return None
    sure = rng.choice(of_part)
    for index in of_part:
        if index != sure and rng.random() < 0.5:
            continue
        word = tokens[index].word
        copy = _uncapitalised(word) if index in starts else word
        tokens[index] = replace(tokens[index], word=" ".join([word] + [copy] * rng.randint(1, _MAX_COPIES)))
    return join(tokens)


def _sentence_starts(tokens: Sequence[Token]) -> set[int]:
    starts, at_start = set(), True
    for index, token in enumerate(tokens):
        if token.word and at_start:
            starts.add(index)
            at_start = False
        if token.ends_sentence:
            at_start = True
    return starts


def _uncapitalised(word: str) -> str:
    """Lower-cases the first letter; `OPEN`, `I` and `McX` keep theirs."""
    rest = word[1:]
    if word == "I" or word.startswith(("I'", "I’")) or rest != rest.lower():
        return word
    return word[:1].lower() + rest


def _capitalised(word: str) -> str:
    return word[:1].title() + word[1:]


def _has_end(sentence: str) -> bool:
    return bool(_end_mark(sentence.rstrip(CLOSERS)))


def _end_mark(sentence: str) -> str:
    return sentence[len(sentence.rstrip(END_MARKS)) :]


def _if_changed(result: str, text: str) -> str | None:
    return result if result != text else None
