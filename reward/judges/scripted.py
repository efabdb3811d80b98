"""A judge that answers from functions, for tests and for trying things without a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from reward.errors import JudgeError
from reward.judges.base import Answer, Question, Usage, answered, check_asked, table_of
from reward.judges.replies import weighed


class ScriptedJudge:
    """Answers from functions. A JudgeError that a function raises is the failure of that question.

    Args:
        answer: question -> Answer or its text, for `generate`.
        distribution: question -> {answer: probability}, for `answer_distribution`; answers left out have 0.
        name: how reports call it.

    Example:
        >>> judge = ScriptedJudge(distribution=lambda question: {"4": 0.25, "5": 0.75})
        >>> judge.answer_distribution([Question("How good?")], ["3", "4", "5"])
        array([[0.  , 0.25, 0.75]])
    """

    def __init__(
        self,
        answer: Callable[[Question], Answer | str] | None = None,
        distribution: Callable[[Question], Mapping[str, float]] | None = None,
        *,
        name: str = "scripted",
    ) -> None:
        self.name = name
        self.usage = Usage()
        self._answer, self._distribution = answer, distribution

    def answer_distribution(self, questions: Sequence[Question], answers: Sequence[str]) -> np.ndarray:
        """Probabilities (N, len(answers)) of `distribution`, or without it of the tokens that `answer` gives."""
        check_asked(questions, answers)
        if self._distribution is None:
            replies, failures = self._ask_all(self._answer, "distribution", questions)
            return weighed(replies, failures, answers)
        distributions, failures = self._ask_all(self._distribution, "distribution", questions)
        results: list[Any] = []
        for row, distribution in enumerate(distributions):
            results.append(failures.get(row) or [distribution.get(answer, 0.0) for answer in answers])
        return table_of(results, len(answers))

    def generate(
        self,
        questions: Sequence[Question],
        *,
        max_new_tokens: int = 256,
        top_logprobs: int = 0,
        track: Sequence[str] = (),
    ) -> list[Answer]:
        """Answers in order; see Judge."""
        check_asked(questions)
        replies, failures = self._ask_all(self._answer, "answer", questions)
        return answered(replies, failures)

    def _ask_all(
        self, function: Callable[[Question], Any] | None, name: str, questions: Sequence[Question]
    ) -> tuple[list[Any], dict[int, str]]:
        """What a function gives for each question, None where it raises a JudgeError; and {index: that error}."""
        if function is None:
            raise JudgeError(f"this scripted judge has no function `{name}`")
        values: list[Any] = [None] * len(questions)
        failures: dict[int, str] = {}
        for index, question in enumerate(questions):
            try:
                value = function(question)
                values[index] = Answer(value) if isinstance(value, str) else value
                self.usage.answered += 1
            except JudgeError as error:
                failures[index] = str(error)
        return values, failures
