"""HarmonicScorer: asks a vision-language model for five ratings, and weighs them by how sure it is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reward.errors import ConfigError, InvalidSampleError
from reward.judges.base import Judge, Question
from reward.metrics.harmoniceval import SPEC
from reward.metrics.harmoniceval.aggregate import RATINGS, aggregate, harmonic_weights
from reward.metrics.harmoniceval.prompt import CRITERIA, HarmonicPrompt
from reward.metrics.judged import JudgedCaption, JudgedScorer, ask
from reward.samples import CaptionSample, ScoreTable, check_encodable, is_blank

__all__ = ["HarmonicScorer", "HarmonicTable"]

# With less probability on all ratings together, the judge meant another answer.
_LEAST_MASS = 0.01


@dataclass(frozen=True, eq=False)
class HarmonicTable(ScoreTable):
    """Scores with the variances and weights behind them; rows without a score are all NaN.

    Args:
        variances: array (N, 5): variance of each criterion's rating, in [0, 4].
        weights: array (N, 5): weight of each criterion in `overall`; a row sums to 1.
    """

    variances: np.ndarray = None  # type: ignore[assignment]  # HarmonicScorer gives it
    weights: np.ndarray = None  # type: ignore[assignment]  # HarmonicScorer gives it


class HarmonicScorer(JudgedScorer):
    """HarmonicEval: correctness, completeness, clarity, fluency and conciseness from 1 to 5, and one score of them.

    Each criterion is rated by the probabilities of 1 to 5 as the judge's next token, after any white space. For
    clarity, fluency and conciseness the judge sees only the text, without image and question. References are not used.

    Source: Ohi et al., "Multi-modal, Multi-task, Multi-criteria Automatic Evaluation with Vision Language Models",
    with our own rubrics.

    Args:
        judge: a vision-language model.
        gamma: from 0 to 1; 1 weighs all criteria alike, 0.5 by inverse variance, see `aggregate`.
        task: "captioning", "question_answering", "referring" (the object is marked by a red box in the image) or
            "documents".
        prompt: a HarmonicPrompt, its fields, or a YAML file (start from a copy of `prompt.yaml` in this folder); None
            is the default.
        max_characters: most characters of a text that the judge sees; longer ones are cut and flagged.
        pad_images: see `FleurScorer`.

    Raises:
        ConfigError: the prompt is invalid, or has no such task.
        ValueError: gamma outside [0, 1].

    Example:
        >>> from PIL import Image
        >>> from reward.judges import ScriptedJudge
        >>> judge = ScriptedJudge(distribution=lambda question: {"4": 0.5, "5": 0.5} if question.image else {"3": 1.0})
        >>> table = HarmonicScorer(judge, gamma=1).score([CaptionSample("A star.", Image.new("RGB", (8, 8)))])
        >>> dict(zip(table.aspects, table.scores[0].round(2).tolist(), strict=True))["correctness"]
        4.5
        >>> table.weights.tolist(), table.variances.tolist()
        ([[0.2, 0.2, 0.2, 0.2, 0.2]], [[0.25, 0.25, 0.0, 0.0, 0.0]])
    """

    spec = SPEC

    def __init__(
        self,
        judge: Judge,
        *,
        gamma: float = 0.75,
        task: str = "captioning",
        prompt: HarmonicPrompt | dict[str, Any] | str | os.PathLike[str] | None = None,
        max_characters: int = 4000,
        pad_images: bool = False,
    ) -> None:
        super().__init__(judge, max_characters=max_characters, pad_images=pad_images)
        harmonic_weights(np.ones(1), gamma)  # raises for an invalid gamma
        self.gamma = gamma
        self.prompt = HarmonicPrompt.of(prompt)
        if task not in self.prompt.tasks:
            raise ConfigError(f"task {task!r} is unknown; the prompt has {', '.join(self.prompt.tasks)}")
        self.task = task

    def score(
        self,
        samples: Sequence[CaptionSample],
        *,
        batch_size: int | None = None,
        progress: bool = False,
        questions: Sequence[str] | None = None,
    ) -> HarmonicTable:
        """Scores (N, 6) in [1, 5], in the order of the samples, with variances and weights.

        Args:
            samples: any number; the candidate is the text that is rated.
            batch_size, progress: see `CaptionScorer.score`.
            questions: the question that each candidate answers; for the tasks question_answering and documents.

        Raises:
            InvalidSampleError: an item is not a CaptionSample, or questions are missing, blank, not expected, or of
                another number than samples.
            JudgeError: the judge itself fails, or has no single token for a digit.
        """
        table = self._score(samples, batch_size, progress, self._checked_questions(samples, questions))
        assert isinstance(table, HarmonicTable)
        return table

    def _checked_questions(self, samples: Sequence[Any], questions: Sequence[str] | None) -> Sequence[str | None]:
        if not self.prompt.asks_question(self.task):
            if questions is not None:
                raise InvalidSampleError(f"task {self.task!r} has no questions; leave questions= out")
            return [None] * len(samples)
        if questions is None:
            if not len(samples):
                return []
            raise InvalidSampleError(f"task {self.task!r} needs questions=[...], one for each candidate")
        if isinstance(questions, str) or len(questions) != len(samples):
            raise InvalidSampleError(f"questions must be a list of {len(samples)} texts, one for each sample")
        for row, question in enumerate(questions):
            if not isinstance(question, str) or is_blank(question):
                raise InvalidSampleError(f"questions[{row}] must be a text that is not blank, got {question!r:.80}")
            check_encodable(question, f"questions[{row}]")
        return questions

    def rate(self, captions: list[JudgedCaption]) -> list[Sequence[float] | str]:
        """Overall score, criterion scores, variances and weights of each caption, or why there are none."""
        questions = [
            Question(
                self.prompt.question(criterion, self.task, caption.candidate, caption.context),
                image=caption.image if self.prompt.sees_image(criterion) else None,
                system=self.prompt.system or None,
            )
            for caption in captions
            for criterion in CRITERIA
        ]
        ratings = [str(rating) for rating in RATINGS]
        answers, failures = ask(self.judge.answer_distribution, questions, answers=ratings)
        table = np.asarray(answers, dtype=np.float64).reshape(len(captions), len(CRITERIA), len(RATINGS))
        return [
            self._read(probabilities, [failures.get(row * len(CRITERIA) + place) for place in range(len(CRITERIA))])
            for row, probabilities in enumerate(table)
        ]

    def _read(self, probabilities: np.ndarray, failures: list[str | None]) -> Sequence[float] | str:
        for criterion, mass, failure in zip(CRITERIA, probabilities.sum(axis=-1), failures, strict=True):
            if failure is not None:
                return f"{criterion}: {failure}"
            if not mass >= _LEAST_MASS:
                return f"{criterion}: the judge gave the ratings 1 to 5 a probability of {mass:.2g} in all"
        result = aggregate(probabilities, self.gamma)
        return [result.overall, *result.scores, *result.variances, *result.weights]

    def _columns(self) -> int:
        return 1 + 3 * len(CRITERIA)

    def _table(self, scores: np.ndarray, errors: dict[int, str], truncated: np.ndarray) -> HarmonicTable:
        first, last = 1 + len(CRITERIA), 1 + 2 * len(CRITERIA)
        return HarmonicTable(
            scores[:, :first], self.spec.aspects, errors, truncated, scores[:, first:last], scores[:, last:]
        )

    def _saved_settings(self) -> dict[str, Any]:
        return {"prompt": self.prompt.to_json(), "gamma": float(self.gamma), "task": self.task}
