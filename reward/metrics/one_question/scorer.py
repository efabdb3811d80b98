"""ClairScorer and VqaScorer: one question a caption, answered by a number or by the probability of Yes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from reward.judges.wording import JudgePrompt, fill
from reward.metrics.asking import AskingScorer
from reward.metrics.judged import JudgedCaption
from reward.metrics.one_question import CLAIR, VQASCORE

__all__ = ["ClairPrompt", "ClairScorer", "VqaPrompt", "VqaScorer"]


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


class ClairScorer(AskingScorer):
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
            asked.append((text, None))
        return [_read(answer) for answer in self.write(asked, dict)]


class VqaScorer(AskingScorer):
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
        asked = [(fill(text, candidate=self.prompt.quoted(caption.candidate)), caption.image) for caption in captions]
        answers = self.weigh(asked, ["Yes", "No"])
        return [each if isinstance(each, str) else [min(float(each[0]), 1.0)] for each in answers]


def _read(answer: Any) -> Sequence[float] | str:
    if isinstance(answer, str):
        return answer
    score = answer.get("score")
    if type(score) not in (int, float) or not 0 <= score <= 100:  # True is an int, too
        return f'"score" must be a number from 0 to 100, got {score!r:.80}'
    return [score / 100]
