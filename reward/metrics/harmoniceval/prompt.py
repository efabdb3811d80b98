"""HarmonicEval's questions: one for each criterion, in the terms of the task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from reward.errors import ConfigError
from reward.judges.wording import JudgePrompt, check_fields, check_places, fill
from reward.metrics.harmoniceval import SPEC
from reward.metrics.harmoniceval.aggregate import RATINGS

OVERALL, *_criteria = SPEC.aspects
CRITERIA = tuple(_criteria)
_WORDS = ("noun", "subject")


@dataclass(frozen=True)
class HarmonicPrompt(JudgePrompt):
    """The texts of HarmonicEval's questions. The rated text is quoted, so that it cannot pass for a part of them.

    Args:
        version: name of this prompt.
        system: what the judge is; empty for no system message, as in the paper.
        tasks: {task: {"noun": ..., "subject": ..., "question": ...}}: the name of the text, what it is about, and how
            its question is introduced (with `{question}` once); the last is empty if the task has no questions.
        criteria: for each of the five criteria, and for `overall`, which is one rating of all of them, {"sees_image":
            bool, "meaning": ..., "levels": [five texts]}; the texts may hold `{noun}` and `{subject}`.
        rubric: holds `{noun}`, `{criterion}` and `{levels}` once each.
        candidate: holds `{noun}` and `{candidate}` once each.
        ask: asks for the digit.
        explain: asks for the reason, as the turn after all ratings; needed only where explanations are wanted.
        quote: whether the text and its question are quoted; in the paper they are not.

    Raises:
        ConfigError: a field, placeholder, criterion or level is missing or unknown.

    Example:
        >>> prompt = HarmonicPrompt.of()
        >>> print(prompt.question("fluency", "captioning", "A dog runs.").splitlines()[1])
        Fluency: is the caption good language, in grammar, spelling, punctuation and choice of words?
    """

    metric = "harmoniceval"
    default_file = Path(__file__).with_name("prompt.yaml")
    places: ClassVar = {"rubric": ("noun", "criterion", "levels"), "candidate": ("noun", "candidate")}

    version: str
    system: str
    tasks: dict[str, dict[str, str]]
    criteria: dict[str, dict[str, Any]]
    rubric: str
    candidate: str
    ask: str
    quote: bool = True
    explain: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.tasks, dict) or not self.tasks:
            raise ConfigError(f"prompt field 'tasks' must hold at least one task, got {self.tasks!r:.80}")
        for task, texts in self.tasks.items():
            check_fields(texts, f"tasks: {task}", (*_WORDS, "question"))
            for name in _WORDS:
                check_places(texts[name], f"tasks: {task}: {name}")
            if texts["question"] != "":
                check_places(texts["question"], f"tasks: {task}: question", "question")
        check_fields(self.criteria, "criteria", (OVERALL, *CRITERIA))
        for name, criterion in self.criteria.items():
            check_fields(criterion, f"criteria: {name}", ("sees_image", "meaning", "levels"))
            if not isinstance(criterion["sees_image"], bool):
                raise ConfigError(f"prompt field 'criteria: {name}: sees_image' must be true or false")
            levels = criterion["levels"]
            if not isinstance(levels, list) or len(levels) != len(RATINGS):
                raise ConfigError(f"prompt field 'criteria: {name}: levels' must hold {len(RATINGS)} texts")
            for text in (criterion["meaning"], *levels):
                check_places(text, f"criteria: {name}", optional=_WORDS)

    def sees_image(self, criterion: str) -> bool:
        """Whether the judge is shown the image, and the question, for a criterion."""
        return bool(self.criteria[criterion]["sees_image"])

    def asks_question(self, task: str) -> bool:
        """Whether texts of a task answer a question."""
        return bool(self.tasks[task]["question"])

    def question(self, criterion: str, task: str, candidate: str, question: str | None = None) -> str:
        """The user's turn that asks for the rating; the parts that many candidates share come first.

        Args:
            criterion: one of the five, or `overall`.
            task: one of `tasks`.
            candidate: the text that is rated.
            question: the question that it answers; shown only with the image.
        """
        texts = self.tasks[task]
        noun, subject = texts["noun"], texts["subject"]
        facts = self.criteria[criterion]
        levels = "\n".join(f"{rating}: {level}" for rating, level in zip(RATINGS, facts["levels"], strict=True))
        rubric = fill(self.rubric, criterion=facts["meaning"], levels=levels, noun=noun)
        # Meaning and levels have places of their own, which are filled once they stand in the rubric.
        parts = [fill(rubric, noun=noun, subject=subject)]
        if question is not None and self.asks_question(task) and self.sees_image(criterion):
            parts.append(fill(texts["question"], question=self.quoted(question)))
        parts += [fill(self.candidate, candidate=self.quoted(candidate), noun=noun), self.ask]
        return "\n\n".join(parts)
