"""HarmonicScorer: asks a vision-language model for five ratings, and weighs them by how sure it is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from reward.data.samples import CaptionSample
from reward.errors import ConfigError
from reward.judges.base import Judge, Question
from reward.metrics.harmoniceval import SPEC
from reward.metrics.harmoniceval.aggregate import RATINGS, aggregate, harmonic_weights
from reward.metrics.harmoniceval.prompt import CRITERIA, OVERALL, HarmonicPrompt
from reward.metrics.judge_metric.base import JudgedCaption, JudgedScorer, Rating
from reward.metrics.judge_metric.reading import WordReader
from reward.metrics.scorer import Group

MMHE_TASKS = {"IC": "captioning", "VQA": "question_answering", "REG": "referring", "VDU": "documents"}


class HarmonicScorer(JudgedScorer):
    """HarmonicEval: correctness, completeness, clarity, fluency and conciseness from 1 to 5, and one score of them.

    Each criterion is rated by the probabilities of 1 to 5 as the judge's next token, after any white space. For
    clarity, fluency and conciseness the judge sees only the text, without image and question. References are not used.

    Source: Ohi et al., "Multi-modal, Multi-task, Multi-criteria Automatic Evaluation with Vision Language Models",
    with our own rubrics.

    Args:
        judge: a vision-language model.
        gamma: from 0 to 1; 1 weighs all criteria alike, 0.5 by inverse variance, see `aggregate`.
        task: "captioning", "question_answering", "referring" (the object is marked by a red box in the image, see
            `reward.data.drawn_images`) or "documents"; of samples that name none.
        prompt: a HarmonicPrompt, its fields, or a YAML file (start from a copy of `prompt.yaml` in this folder); None
            is the default.
        max_characters, explain: see `JudgedScorer`; the reason is that of all ratings together.
        criteria: those that are rated and weighed, such as correctness and completeness alone, as the paper does for
            captions of Flickr8k; ("overall",) has the judge give one rating for all five together, without criteria.

    Raises:
        ConfigError: the prompt is invalid, or has no such task or criterion.
        ValueError: gamma outside [0, 1].

    Example:
        >>> from PIL import Image
        >>> from reward.judges import ScriptedJudge
        >>> judge = ScriptedJudge(distribution=lambda question: {"4": 0.5, "5": 0.5} if question.image else {"3": 1.0})
        >>> table = HarmonicScorer(judge, gamma=1).score([CaptionSample("A star.", Image.new("RGB", (8, 8)))])
        >>> dict(zip(table.aspects, table.scores[0].round(2).tolist(), strict=True))["correctness"]
        4.5
    """

    spec = SPEC
    prompt_class = HarmonicPrompt
    saved = ("gamma", "task", "criteria")

    def __init__(
        self,
        judge: Judge,
        *,
        gamma: float = 0.75,
        task: str = "captioning",
        prompt: HarmonicPrompt | dict[str, Any] | str | os.PathLike[str] | None = None,
        max_characters: int = 4000,
        criteria: Sequence[str] = CRITERIA,
        explain: bool = False,
    ) -> None:
        super().__init__(judge, prompt=prompt, max_characters=max_characters, explain=explain)
        harmonic_weights(np.ones(1), gamma)  # raises for an invalid gamma
        self.gamma = float(gamma)
        self.task = task
        self.criteria = tuple(criteria)
        if task not in self.prompt.tasks:
            raise ConfigError(f"task {task!r} is unknown; the prompt has {', '.join(self.prompt.tasks)}")
        are_several = 0 < len(set(self.criteria)) == len(self.criteria) and set(self.criteria) <= set(CRITERIA)
        if self.criteria != (OVERALL,) and not are_several:
            names = ", ".join(CRITERIA)
            raise ConfigError(f"criteria must be {OVERALL!r} alone, or different ones of {names}; got {self.criteria}")
        # One rating of all criteria together has no scores of single ones beside it.
        aspects = (OVERALL, *self.criteria) if are_several else self.criteria
        self.spec = replace(self.spec, aspects=aspects, reads_questions=self.prompt.asks_question(task))
        self._words = WordReader(self.judge, is_exact=True)

    def context(self, sample: CaptionSample) -> tuple[str, str | None]:
        """The task of a sample, its own (or MMHE's name of it: REG, VQA, VDU, IC) or the scorer's, and its question."""
        return MMHE_TASKS.get(sample.task or "", sample.task or self.task), sample.question

    def _lack(self, group: Group) -> str | None:
        task, question = group.context
        if task not in self.prompt.tasks:
            return f"task {task!r} is unknown; the prompt has {', '.join(self.prompt.tasks)}"
        asks_question = self.prompt.asks_question(task)
        if asks_question and question is None:
            return f"task {task!r} needs the question that the text answers (CaptionSample(question=...))"
        if question is not None and not asks_question:
            return f"task {task!r} has no questions, but the text answers one"
        return super()._lack(group)

    def rate(self, captions: list[JudgedCaption]) -> list[Rating | str]:
        """Overall score and criterion scores of each caption, or why there are none."""
        questions = [self._question(caption, criterion) for caption in captions for criterion in self.criteria]
        probabilities = self._words(questions, [str(rating) for rating in RATINGS])
        # All questions go to the judge in one call, the criteria of a caption beside each other.
        count = len(self.criteria)
        ratings = []
        for first in range(0, len(questions), count):
            last = first + count
            ratings.append(self._rating(questions[first:last], probabilities[first:last]))
        return ratings

    def _question(self, caption: JudgedCaption, criterion: str) -> Question:
        task, question = caption.context
        return Question(
            self.prompt.question(criterion, task, caption.candidate, question),
            image=caption.image if self.prompt.sees_image(criterion) else None,
            system=self.prompt.system or None,
        )

    def _rating(self, questions: list[Question], probabilities: list[np.ndarray | str]) -> Rating | str:
        """The scores of one caption by the probabilities of the ratings 1 to 5 on each criterion."""
        turns = []
        for criterion, question, row in zip(self.criteria, questions, probabilities, strict=True):
            if isinstance(row, str):
                return f"{criterion}: {row}"
            turns.append((question, str(RATINGS[int(np.argmax(row))])))
        result = aggregate(probabilities, self.gamma)
        scores = [result.overall]
        if self.criteria != (OVERALL,):
            scores += result.scores.tolist()
        return Rating(scores, turns)
