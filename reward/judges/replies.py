"""How likely a judge's reply makes each of a few answers: the probabilities of the tokens where its answer stands."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from reward.data.written_captions import is_reasoning_open
from reward.judges.base import Answer, answer_mass, answer_mass_after_blanks, answered, token_text
from reward.judges.blanks import blanks_problem
from reward.judges.readings import answer_in, excerpt, find_answer, plain_digits

ANSWER_LENGTH = 32  # tokens: an answer, with a few words before it
NO_PROBABILITIES = "the judge gave no log probabilities"
_CUT = f" (cut after {ANSWER_LENGTH} tokens: have the prompt ask for the answer alone)"
_CUT_THOUGHT = (
    f"the judge thought for {ANSWER_LENGTH} tokens without an answer: turn thinking off, as with "
    'extra_body={"chat_template_kwargs": {"enable_thinking": false}}'
)
# Chat markers, and bytes that are no text alone.
_MARKER = re.compile(r"<[|\uff5c/]?[^<>\s]*>|\[/?[A-Z_]+\]|\u25c1[^\s]*\u25b7|(?:\\x[0-9A-Fa-f]{2})+|\ufffd")


def weigh_reply(answer: Answer, words: Sequence[str], first: Sequence[float] | None = None) -> list[float] | str:
    """The probability of each word where a reply gives its answer, or why there is none.

    A reply of one token that is no answer is weighed there, too. Where the answer is the first token that is no white
    space, white space before it is taken into account, see `answer_mass_after_blanks`. An answer that is spelled as it
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
    # One token that is no answer, such as "Sure": what was likely in its stead is still what the judge thinks.
    if reading is None and len([token for token in answer.tokens if _MARKER.sub("", token_text(token))]) == 1:
        return _first_masses(answer, words, first)
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
        return _first_masses(answer, words, first)
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
    failures: dict[int, str],
    words: Sequence[str],
    first: Sequence[Sequence[float]] | None = None,
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
    table = np.full((len(replies), len(words)), np.nan)
    reasons = dict(failures)
    for row, reply in enumerate(replies):
        if reply is None:
            continue
        if not reply.logprobs:
            reasons[row] = NO_PROBABILITIES
            continue
        masses = weigh_reply(reply, words, first[row] if first else None)
        if isinstance(masses, str):
            reasons[row] = masses
        else:
            table[row] = masses
    return answered(table, reasons)


def token_index(answer: Answer, start: int) -> int | None:
    """Index of the token that holds the letter or digit at `start` of a reply's text; None where tokens do not tell.

    The plain letters and digits are counted: tokens may lack white space, other characters may be cut into bytes, and
    markers such as `<|im_end|>` may be in the text or not.

    Example:
        >>> token_index(Answer("<think>No</think>4", ("<think>", "No", "</think>", "4", "</s>")), 17)
        3
    """
    character = answer.text[start]
    spelled = _ascii_letters(answer.text)
    before = len(_ascii_letters(answer.text[:start]))
    position = 0
    for index, token in enumerate(answer.tokens):
        letters = _ascii_letters(token)
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


def _ascii_letters(text: str) -> str:
    """The letters and digits of a text that no tokenizer cuts into bytes."""
    return re.sub(r"[^A-Za-z0-9]", "", text)


def _first_masses(answer: Answer, words: Sequence[str], first: Sequence[float] | None) -> list[float] | str:
    """The probabilities of the words as first token behind any white space."""
    if first is not None:
        return list(first)
    masses, unknown = answer_mass_after_blanks(answer, words)
    return blanks_problem(masses, unknown) or masses


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
