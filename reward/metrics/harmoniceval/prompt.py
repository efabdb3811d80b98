"""The wording of HarmonicEval's questions: one a criterion, in the words of the task."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from reward.errors import ConfigError
from reward.judges.quoting import quoted
from reward.judges.wording import check_fields, check_places, check_quote, check_text, fill, read_wording
from reward.metrics.harmoniceval import SPEC
from reward.metrics.harmoniceval.aggregate import RATINGS

__all__ = ["CRITERIA", "HarmonicPrompt"]

CRITERIA = SPEC.aspects[1:]

_DEFAULT = Path(__file__).with_name("prompt.yaml")
_TASK_FIELDS, _CRITERION_FIELDS = ("noun", "subject", "question"), ("sees_image", "meaning", "levels")


@dataclass(frozen=True)
class HarmonicPrompt:
    """The texts of HarmonicEval. What is rated is quoted, so that it stays in its place whatever it says.

    Args:
        version: name of this wording.
        system: what the judge is; empty for no system message, as in the paper.
        tasks: {task: {"noun": ..., "subject": ..., "question": ...}}: what the text is called, what it is about, and
            how the question is introduced (with `{question}` once), empty where the task has none.
        criteria: for each of the five criteria {"sees_image": bool, "meaning": ..., "levels": [five texts]}; the texts
            may hold `{noun}` and `{subject}`.
        rubric: holds `{noun}`, `{criterion}` and `{levels}` once each.
        candidate: holds `{noun}` and `{candidate}` once each.
        ask: asks for the digit.
        quote: whether the text and its question are quoted. Without quotes, which the paper does not have, a text can
            pass for a part of the question.

    Raises:
        ConfigError: a field, a place, a criterion or a level is missing or unknown.

    Example:
        >>> prompt = HarmonicPrompt.default()
        >>> print(prompt.question("fluency", "captioning", "A dog runs.").splitlines()[1])
        Fluency: is the caption good language, in grammar, spelling, punctuation and choice of words?
    """

    version: str
    system: str
    tasks: dict[str, dict[str, str]]
    criteria: dict[str, dict[str, Any]]
    rubric: str
    candidate: str
    ask: str
    quote: bool = True

    def __post_init__(self) -> None:
        for name in ("version", "system", "ask"):
            if name != "system" or self.system != "":
                check_text(getattr(self, name), name)
        check_quote(self.quote)
        check_places(self.rubric, "rubric", "noun", "criterion", "levels")
        check_places(self.candidate, "candidate", "noun", "candidate")
        if not isinstance(self.tasks, dict) or not self.tasks:
            raise ConfigError(f"prompt field 'tasks' must hold at least one task, got {self.tasks!r:.80}")
        for task, texts in self.tasks.items():
            check_fields(texts, f"tasks: {task}", _TASK_FIELDS)
            check_places(texts["noun"], f"tasks: {task}: noun")
            check_places(texts["subject"], f"tasks: {task}: subject")
            if texts["question"] != "":
                check_places(texts["question"], f"tasks: {task}: question", "question")
        check_fields(self.criteria, "criteria", CRITERIA)
        for criterion, values in self.criteria.items():
            check_fields(values, f"criteria: {criterion}", _CRITERION_FIELDS)
            check_places(values["meaning"], f"criteria: {criterion}: meaning", optional=("noun", "subject"))
            if not isinstance(values["sees_image"], bool):
                raise ConfigError(f"prompt field 'criteria: {criterion}: sees_image' must be true or false")
            if not isinstance(values["levels"], list) or len(values["levels"]) != len(RATINGS):
                raise ConfigError(f"prompt field 'criteria: {criterion}: levels' must hold {len(RATINGS)} texts")
            for level in values["levels"]:
                check_places(level, f"criteria: {criterion}: levels", optional=("noun", "subject"))

    @classmethod
    def default(cls) -> HarmonicPrompt:
        """The wording that ships with the package."""
        return _default()

    @classmethod
    def of(cls, prompt: HarmonicPrompt | dict[str, Any] | str | os.PathLike[str] | None) -> HarmonicPrompt:
        """A prompt as it is, from its fields, or from a YAML file; None is the default.

        Raises:
            ConfigError: the file cannot be read, or fields are unknown, missing or not as they must be.
        """
        if prompt is None:
            return cls.default()
        if isinstance(prompt, HarmonicPrompt):
            return prompt
        values = prompt if isinstance(prompt, dict) else read_wording(prompt)
        names = [field.name for field in fields(cls)]
        check_fields(values, "the prompt of harmoniceval", names, optional=["quote"])
        return cls(**values)

    def to_json(self) -> dict[str, Any]:
        """The fields as plain values."""
        return asdict(self)

    def sees_image(self, criterion: str) -> bool:
        """Whether the judge is shown the image, and the question, for a criterion."""
        return bool(self.criteria[criterion]["sees_image"])

    def asks_question(self, task: str) -> bool:
        """Whether texts of a task answer a question."""
        return bool(self.tasks[task]["question"])

    def question(self, criterion: str, task: str, candidate: str, question: str | None = None) -> str:
        """The user's turn that asks for the rating; what many candidates share stands first.

        Args:
            criterion: one of the five.
            task: one of `tasks`.
            candidate: the text to be rated.
            question: what it answers; shown only where the image is.
        """
        words = {"noun": self.tasks[task]["noun"], "subject": self.tasks[task]["subject"]}
        about = self.criteria[criterion]
        levels = "\n".join(f"{rating}: {level}" for rating, level in zip(RATINGS, about["levels"], strict=True))
        rubric = fill(self.rubric, criterion=about["meaning"], levels=levels, noun=words["noun"])
        parts = [fill(rubric, **words)]  # the criterion's own places
        if question is not None and self.asks_question(task) and self.sees_image(criterion):
            parts.append(fill(self.tasks[task]["question"], question=quoted(question, quote=self.quote)))
        parts += [fill(self.candidate, candidate=quoted(candidate, quote=self.quote), noun=words["noun"]), self.ask]
        return "\n\n".join(parts)


@lru_cache(maxsize=1)
def _default() -> HarmonicPrompt:
    return HarmonicPrompt.of(_DEFAULT)
