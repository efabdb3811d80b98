"""How likely a judge's reply makes each of a few answers: the probabilities of the tokens where its answer stands."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

from reward.data.written_captions import is_reasoning_open
from reward.judges.base import NO_PROBABILITIES, Answer, answer_mass, table_of, token_text
from reward.judges.readings import answer_in, excerpt, find_answer, plain_digits

ANSWER_LENGTH = 32  # tokens: an answer, with a few words before it
_CUT = f" (cut after {ANSWER_LENGTH} tokens: have the prompt ask for the answer alone)"
_CUT_THOUGHT = (
    f"the judge thought for {ANSWER_LENGTH} tokens without an answer: turn thinking off, as with "
    'extra_body={"chat_template_kwargs": {"enable_thinking": false}}'
)
# The probability of white space from which the server did not go on is an error if it is above both of these.
_MOST_UNKNOWN = 0.01
_MOST_UNKNOWN_SHARE = 0.1  # of the probability of all answers
# Chat markers, and bytes that are no text alone.
_MARKER = re.compile(r"<[|\uff5c/]?[^<>\s]*>|\[/?[A-Z_]+\]|\u25c1[^\s]*\u25b7|(?:\\x[0-9A-Fa-f]{2})+|\ufffd")


def weigh_reply(answer: Answer, words: Sequence[str], first: list[float] | str | None = None) -> list[float] | str:
    """The probability of each word where a reply gives its answer, or why there is none.

    A reply of one token that is no answer is weighed there, too. Where the answer is the first token that is no white
    space, white space before it is taken into account, see `first_masses`. An answer that is spelled as it
    was asked for is weighed among words spelled so; one in another case, or in a token with marks such as "(B", among
    all such spellings. Of an answer of several tokens the first is weighed.

    Args:
        answer: with log probabilities.
        words: see `find_answer`.
        first: the probabilities of the words as first token, where they are known from the whole vocabulary.

    Example:
        >>> marks, five = {"**": 0.0}, {"5": math.log(0.8), "4": math.log(0.2)}
        >>> reply = Answer("**5**", ("**", "5", "**"), (marks, five, marks))
        >>> [round(mass, 3) for mass in weigh_reply(reply, ["4", "5"])]
        [0.2, 0.8]
    """
    if answer.truncated and is_reasoning_open(answer.text):
        return _CUT_THOUGHT
    reading = answer_in(answer.text, words)
    if first is None:
        first = first_masses(answer, words)
    # One token that is no answer, such as "Sure": what was likely in its stead is still what the judge thinks.
    if reading is None and len([token for token in answer.tokens if _MARKER.sub("", token_text(token))]) == 1:
        return first
    cut = _CUT if answer.truncated else ""
    if reading is None or reading.problem:
        return f"{find_answer(answer.text, words)}{cut}"
    # More digits may have followed a number at the very end of what was cut.
    if cut and len(answer.tokens) > 1 and reading.text.isdecimal() and not answer.text[reading.end :].strip():
        return f"the answer was cut at a number: {excerpt(answer.text)}{cut}"
    index = token_index(answer, reading.start)
    if index is None:
        return f"the tokens of the answer do not spell it: {excerpt(answer.text)}"
    token = token_text(answer.tokens[index])
    if token == reading.text:
        if any(map(token_text, answer.tokens[:index])):
            return answer_mass(answer.logprobs[index], words)
        return first
    # The token has marks, is spelled otherwise, or is a part of the answer: what is alike in another form counts, too.
    masses = dict.fromkeys(words, 0.0)
    is_part = _core(token).casefold() != reading.text.casefold()
    for alternative, logprob in answer.logprobs[index].items():
        word = _word_of(_core(alternative), words, is_part=is_part)
        if word is not None:
            masses[word] += math.exp(logprob)
    return list(masses.values())


def weighed(
    replies: Sequence[Answer | None],
    failures: Mapping[int, str],
    words: Sequence[str],
    first: Sequence[list[float]] | None = None,
) -> np.ndarray:
    """The probabilities (N, len(words)) that replies give each word, see `weigh_reply`.

    Args:
        replies: None where `failures` says why.
        failures: {index: reason} of questions without a reply.
        words: see `find_answer`.
        first: of each reply the probabilities of the words as first token, where they are known.

    Raises:
        JudgeError: with `failures`, replies without an answer and those without log probabilities among them.
    """
    results: list[list[float] | str] = []
    for row, reply in enumerate(replies):
        if reply is None:
            results.append(failures[row])
        elif not reply.logprobs:
            results.append(NO_PROBABILITIES)
        else:
            results.append(weigh_reply(reply, words, first[row] if first else None))
    return table_of(results, len(words))


def lone_answer(answer: Answer, words: Sequence[str]) -> str | None:
    """Says that no alternatives are listed of the token that gives the answer, one of some words."""
    word = find_answer(answer.text, words)
    if isinstance(word, str):
        return None
    index = token_index(answer, word.start)
    if index is None or len(answer.logprobs[index]) > 1:
        return None
    return f"the server lists no alternatives of the answer {word.text!r}"


def first_masses(answer: Answer, answers: Sequence[str]) -> list[float] | str:
    """Probability of each answer as the first of the tokens written that is not white space.

    Where a token of white space was written, its probability times that of the answers after it is added.

    Returns:
        Probabilities of the answers, or why they cannot be used: too much white space was not followed.

    Example:
        >>> answer = Answer("4", ("", "4"), ({"": math.log(0.9), "5": math.log(0.1)}, {"4": math.log(0.5)}))
        >>> [round(mass, 4) for mass in first_masses(answer, ["4", "5"])]
        [0.45, 0.1]
    """
    # Each position has the probabilities of what follows the white space that was written before it.
    masses = [0.0] * len(answers)
    reached = 1.0  # probability of the white space written so far
    unknown = 0.0
    last = len(answer.tokens) - 1
    for index, (token, logprobs) in enumerate(zip(answer.tokens, answer.logprobs, strict=True)):
        for number, mass in enumerate(answer_mass(logprobs, answers)):
            masses[number] += reached * mass
        (blank,) = answer_mass(logprobs, [""])
        followed = 0.0
        if index < last and not token_text(token):
            followed = math.exp(logprobs.get(token, -math.inf))
        unknown += reached * (blank - followed)
        reached *= followed
        if not reached:
            break
    total = sum(masses)
    if unknown <= max(_MOST_UNKNOWN_SHARE * total, _MOST_UNKNOWN):
        return masses
    return (
        f"the server gave white space a probability of {unknown:.2g} and did not go on from it, and gave the "
        f"answers {total:.2g} in all; a model on this machine goes on from all white space"
    )


def spelled_letters(text: str) -> str:
    """The plain letters and digits of a text without chat markers and bytes, by which tokens and texts are compared."""
    return _letters(_MARKER.sub("", text))


def token_index(answer: Answer, start: int) -> int | None:
    """Index of the token that holds the letter or digit at `start` of a reply's text; None where tokens do not tell.

    The plain letters and digits are counted: tokens may lack white space, other characters may be cut into bytes, and
    markers such as `<|im_end|>` may be in the text or not.
    """
    character = answer.text[start]
    spelled = _letters(answer.text)
    before = len(_letters(answer.text[:start]))
    position = 0
    for index, token in enumerate(answer.tokens):
        letters = _letters(token)
        if not spelled.startswith(letters, position):
            if not _MARKER.search(token):
                return None
            continue
        # A digit of another script is not counted: its token is the first behind the letters before it that has it.
        if position == before and not character.isascii() and character in token:
            return index
        position += len(letters)
        if character.isascii() and position > before:
            return index
    return None


def _letters(text: str) -> str:
    """The letters and digits of a text that no tokenizer cuts into bytes."""
    return re.sub(r"[^A-Za-z0-9]", "", text)


def _word_of(spelling: str, words: Sequence[str], *, is_part: bool) -> str | None:
    """The word that a token stands for; of an answer of several tokens, the only word that begins with it."""
    folded = spelling.casefold()
    if not folded:
        return None
    same = [word for word in words if word.casefold() == folded]
    if is_part and not same:
        same = [word for word in words if word.casefold().startswith(folded)]
    return same[0] if len(same) == 1 else None


def _core(token: str) -> str:
    """A token without the marks around its letters and digits."""
    return re.sub(r"^[\W_]+|[\W_]+$", "", plain_digits(token_text(token)))
