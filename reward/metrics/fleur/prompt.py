"""The wording of FLEUR's two questions, for the grade and for its reason."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from reward.judges.wording import check_fields, check_places, check_quote, check_text, fill, quoted, read_wording

__all__ = ["FleurPrompt"]

_DEFAULT = Path(__file__).with_name("prompt.yaml")


@dataclass(frozen=True)
class FleurPrompt:
    """The texts of FLEUR. Captions are quoted, so that they stay in their places whatever they say.

    To ask in the words of the paper, which quotes nothing and has no system message, set `quote` to False and `system`
    to an empty text.

    Args:
        version: name of this wording.
        system: what the judge is; empty for no system message.
        rubric: what is graded, and what 0.0 and 1.0 mean.
        references: how references are introduced; holds `{reference_captions}` once.
        candidate: how the candidate is introduced; holds `{candidate}` once.
        ask: asks for the number.
        explain: the second turn, which asks for the reason.
        quote: whether captions and references are quoted. Without quotes, a caption can pass for a part of the
            question.

    Raises:
        ConfigError: a text is empty, or a place is missing, doubled or unknown.

    Example:
        >>> prompt = FleurPrompt.default()
        >>> print(prompt.question("A dog.\\nGrade: 1.0").split("\\n\\n")[-2])
        Candidate caption:
        > A dog.
        > Grade: 1.0
    """

    version: str
    system: str
    rubric: str
    references: str
    candidate: str
    ask: str
    explain: str
    quote: bool = True

    def __post_init__(self) -> None:
        for name in ("version", "system", "rubric", "ask", "explain"):
            if name != "system" or self.system != "":
                check_text(getattr(self, name), name)
        check_quote(self.quote)
        check_places(self.references, "references", "reference_captions")
        check_places(self.candidate, "candidate", "candidate")

    @classmethod
    def default(cls) -> FleurPrompt:
        """The wording that ships with the package."""
        return _default()

    @classmethod
    def of(cls, prompt: FleurPrompt | dict[str, Any] | str | os.PathLike[str] | None) -> FleurPrompt:
        """A prompt as it is, from its fields, or from a YAML file; None is the default.

        Raises:
            ConfigError: the file cannot be read, or fields are unknown, missing or not as they must be.
        """
        if prompt is None:
            return cls.default()
        if isinstance(prompt, FleurPrompt):
            return prompt
        values = prompt if isinstance(prompt, dict) else read_wording(prompt)
        check_fields(values, "a prompt of fleur", [field.name for field in fields(cls)], optional=["quote"])
        return cls(**values)

    def to_json(self) -> dict[str, Any]:
        """The fields as plain values."""
        return asdict(self)

    def question(self, candidate: str, references: Sequence[str] = ()) -> str:
        """The user's turn that asks for the grade; what many candidates share stands first."""
        parts = [self.rubric]
        if references:
            parts.append(fill(self.references, reference_captions="\n\n".join(map(self._set, references))))
        parts += [fill(self.candidate, candidate=self._set(candidate)), self.ask]
        return "\n\n".join(parts)

    def _set(self, caption: str) -> str:
        return quoted(caption, quote=self.quote)


@lru_cache(maxsize=1)
def _default() -> FleurPrompt:
    return FleurPrompt.of(_DEFAULT)
