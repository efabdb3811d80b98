"""ClairScorer and VqaScorer: one question a caption, answered by a number or by the probability of Yes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from reward.judges.base import LEAST_MASS, Answer, Judge, Question
from reward.judges.verdicts import last_object
from reward.judges.wording import JudgePrompt, fill
from reward.metrics.judged import JudgedCaption, JudgedScorer, ask
from reward.metrics.one_question import CLAIR, VQASCORE

__all__ = ["ClairPrompt", "ClairScorer", "VqaPrompt", "VqaScorer"]

_MANY_BLANKS = 20  # at the end of an answer
_BLANKS = (
    " (and white space up to the limit of new tokens, as a JSON schema allows: start vLLM with "
    """--structured-outputs-config '{"backend": "xgrammar", "disable_any_whitespace": true}')"""
)


@dataclass(frozen=True)
class ClairPrompt(JudgePrompt):
    """The texts of CLAIR's question, see `clair.yaml` beside this file."""

    metric = "clair"
    default_file = Path(__file__).with_name("clair.yaml")
    places: ClassVar = {"ask": ("references", "candidate")}

    version: str
    system: str
    ask: str
    quote: bool = True


class VqaPrompt(ClairPrompt):
    """The texts of VQAScore's question, see `vqascore.yaml` beside this file."""

    metric = "vqascore"
    default_file = Path(__file__).with_name("vqascore.yaml")
    places: ClassVar = {"ask": ("candidate",)}


class _OneQuestionScorer(JudgedScorer):
    """A judged metric of one question.

    Args:
        judge: a vision-language model.
        prompt: a prompt of the class's `prompt_class`, its fields, or a YAML file (start from a copy of the file in
            this folder); None is the default.
        max_new_tokens: length limit of an answer that the judge writes.
        max_characters, pad_images: see `JudgedScorer`.
    """

    prompt_class: ClassVar[type[ClairPrompt]]

    def __init__(
        self,
        judge: Judge,
        *,
        prompt: ClairPrompt | dict[str, Any] | str | os.PathLike[str] | None = None,
        max_new_tokens: int = 2048,
        max_characters: int = 4000,
        pad_images: bool = False,
    ) -> None:
        super().__init__(judge, max_characters=max_characters, pad_images=pad_images)
        self.prompt = self.prompt_class.of(prompt)
        self.max_new_tokens = max_new_tokens

    def _asked(self, text: str, image: Any = None) -> Question:
        return Question(text, image=image, system=self.prompt.system or None)

    def _saved_settings(self) -> dict[str, Any]:
        return {"prompt": self.prompt.to_json(), "max_new_tokens": self.max_new_tokens}


class ClairScorer(_OneQuestionScorer):
    """CLAIR: the judge's number from 0 to 100, divided by 100. It sees no image, so any language model will do.

    The authors' code scores 0 where it cannot read three answers. Here there is no score then, and a reason.

    Example:
        >>> from reward import CaptionSample
        >>> from reward.judges import ScriptedJudge
        >>> judge = ScriptedJudge(lambda asked: '{"score": 85, "reason": "Both name a star."}')
        >>> ClairScorer(judge).score([CaptionSample("A star.", None, ["A red star."])]).scores.tolist()
        [[0.85]]
    """

    spec = CLAIR
    prompt_class = ClairPrompt

    def rate(self, captions: list[JudgedCaption]) -> list[Sequence[float] | str]:
        """See `JudgedScorer.rate`."""
        asked = []
        for caption in captions:
            references = "\n\n".join(map(self.prompt.quoted, caption.references))
            text = fill(self.prompt.ask, references=references, candidate=self.prompt.quoted(caption.candidate))
            asked.append(self._asked(text))
        answers, failures = ask(self.judge.generate, asked, max_new_tokens=self.max_new_tokens)
        return [failures[row] if row in failures else _read(answer) for row, answer in enumerate(answers)]


class VqaScorer(_OneQuestionScorer):
    """VQAScore: the probability of "Yes" as the judge's next token, over its whole vocabulary.

    The paper's CLIP-FlanT5 is an encoder-decoder, which no judge here runs; its LLaVA-1.5 is none.

    Example:
        >>> from PIL import Image
        >>> from reward import CaptionSample
        >>> from reward.judges import ScriptedJudge
        >>> judge = ScriptedJudge(distribution=lambda question: {"Yes": 0.7, "No": 0.2})
        >>> VqaScorer(judge).score([CaptionSample("A star.", Image.new("RGB", (8, 8)))]).scores.tolist()
        [[0.7]]
    """

    spec = VQASCORE
    prompt_class = VqaPrompt

    def rate(self, captions: list[JudgedCaption]) -> list[Sequence[float] | str]:
        """See `JudgedScorer.rate`."""
        text = self.prompt.ask
        asked = [
            self._asked(fill(text, candidate=self.prompt.quoted(caption.candidate)), caption.image)
            for caption in captions
        ]
        answers, failures = ask(self.judge.answer_distribution, asked, answers=["Yes", "No"])
        return [failures.get(row) or _weighed(answer) for row, answer in enumerate(answers)]


def _weighed(probabilities: np.ndarray) -> Sequence[float] | str:
    mass = float(np.sum(probabilities))
    if not mass >= LEAST_MASS:
        return f"the judge gave the answers Yes, No a probability of {mass:.2g} in all"
    return [min(float(probabilities[0]), 1.0)]


def _read(answer: Answer) -> Sequence[float] | str:
    value = _json_object(answer)
    if isinstance(value, str):
        return value
    score: Any = value.get("score")
    if type(score) not in (int, float) or not 0 <= score <= 100:  # True is an int, too
        return f'"score" must be a number from 0 to 100, got {score!r:.80}'
    return [score / 100]


def _json_object(answer: Answer) -> dict[str, Any] | str:
    """The JSON object in an answer, see `last_object`; or a string that says why there is none."""
    value = last_object(answer.text, "score")
    if not isinstance(value, str):
        return value
    cut = ""
    if answer.truncated:
        white = len(answer.text) - len(answer.text.rstrip())
        cut = _BLANKS if white > _MANY_BLANKS else " (cut at the limit of new tokens: raise max_new_tokens=)"
    return f"{value}: {answer.text.strip()!r:.120}{cut}"
