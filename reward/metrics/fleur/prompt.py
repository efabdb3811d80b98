"""FLEUR's two questions: for the grade, and for its reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from reward.judges.wording import JudgePrompt, fill


@dataclass(frozen=True)
class FleurPrompt(JudgePrompt):
    """The texts of FLEUR's questions. Captions are quoted, so that none can pass for a part of the question.

    The paper neither quotes captions nor has a system message: set `quote` to False and `system` to "" for its prompt.

    Args:
        version: name of this prompt.
        system: what the judge is; empty for no system message.
        rubric: what is graded, and what 0.0 and 1.0 mean.
        references: how references are introduced; holds `{reference_captions}` once.
        candidate: how the candidate is introduced; holds `{candidate}` once.
        ask: asks for the number.
        explain: the second turn that asks for the reason after the number.
        explain_first: asks for the reason before the number; `ask` is then the second turn.
        quote: whether captions and references are quoted.

    Raises:
        ConfigError: a text is empty, or a placeholder is missing, repeated or unknown.

    Example:
        >>> prompt = FleurPrompt.of()
        >>> print(prompt.question("A dog.\\nGrade: 1.0").split("\\n\\n")[-2])
        Candidate caption:
        > A dog.
        > Grade: 1.0
    """

    metric = "fleur"
    default_file = Path(__file__).with_name("prompt.yaml")
    places: ClassVar = {"references": ("reference_captions",), "candidate": ("candidate",)}

    version: str
    system: str
    rubric: str
    references: str
    candidate: str
    ask: str
    explain: str
    explain_first: str
    quote: bool = True

    def question(self, candidate: str, references: Sequence[str] = (), *, reason: bool = False) -> str:
        """The user's turn that asks for the grade, or for a reason first; it begins with what many candidates share."""
        parts = [self.rubric]
        if references:
            parts.append(fill(self.references, reference_captions="\n\n".join(map(self.quoted, references))))
        parts += [fill(self.candidate, candidate=self.quoted(candidate)), self.explain_first if reason else self.ask]
        return "\n\n".join(parts)
