"""White space as a token of its own before an answer, as far as a server has followed it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import numpy as np

from reward.judges.base import Answer, answer_mass_after_blanks, answered

logger = logging.getLogger(__name__)

# White space that was not followed, relative to the answers: a warning above the first, an error above the second.
_SOME, _MUCH = 0.01, 0.1


def blanks_problem(masses: Sequence[float], unknown: float) -> str | None:
    """Why the probabilities of `answer_mass_after_blanks` cannot be used, None where they can.

    Example:
        >>> blanks_problem([0.1, 0.8], unknown=0.02) is None
        True
    """
    total = sum(masses)
    if unknown <= max(_MUCH * total, _SOME):
        return None
    return (
        f"the server gave white space a probability of {unknown:.2g} and did not go on from it, and gave the "
        f"answers {total:.2g} in all; a model on this machine goes on from all white space"
    )


def table_after_blanks(
    replies: Sequence[Answer | None], failures: Mapping[int, str], answers: Sequence[str]
) -> np.ndarray:
    """The probabilities (N, len(answers)) of `answer_mass_after_blanks`.

    Args:
        replies: None where `failures` says why.
        failures: {index: reason} of questions without a reply.
        answers: tokens without white space.

    Raises:
        JudgeError: with `failures`, replies with much white space that was not followed among them.
    """
    table = np.full((len(replies), len(answers)), np.nan)
    reasons = dict(failures)
    uncertain = []
    for row, reply in enumerate(replies):
        if reply is None:
            continue
        masses, unknown = answer_mass_after_blanks(reply, answers)
        problem = blanks_problem(masses, unknown)
        if problem is not None:
            reasons[row] = problem
            continue
        table[row] = masses
        if unknown > _SOME * sum(masses):
            uncertain.append(unknown)
    if uncertain:
        logger.warning(
            "%d of %d distributions leave out what follows white space that the server did not write, which had a "
            "probability of up to %.2g.",
            len(uncertain),
            len(replies),
            max(uncertain),
        )
    distribution: np.ndarray = answered(table, reasons)
    return distribution
