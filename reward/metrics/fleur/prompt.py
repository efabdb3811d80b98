"""The wording of FLEUR's two questions, for the grade and for its reason."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from reward.errors import ConfigError
from reward.judges.quoting import quoted
from reward.judges.wording import check_places, check_text, fill, read_wording

__all__ = ["FleurPrompt"]

_DEFAULT = Path(__file__).with_name("prompt.yaml")


@dataclass(frozen=True)
class FleurPrompt:
    """The texts of FLEUR. Captions are quoted, so that they stay in their places whatever they say.

    Args:
        version: name of this wording.
        system: what the judge is.
        rubric: what is graded, and what 0.0 and 1.0 mean.
        references: how references are introduced; holds `{reference_captions}` once.
        candidate: how the candidate is introduced; holds `{candidate}` once.
        ask: asks for the number.
        explain: the second turn, which asks for the reason.

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

    def __post_init__(self) -> None:
        for name in ("version", "system", "rubric", "ask", "explain"):
            check_text(getattr(self, name), name)
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
        names = [field.name for field in fields(cls)]
        if sorted(values) != sorted(names):
            found = ", ".join(map(str, values)) or "nothing"
            raise ConfigError(f"a prompt of fleur must hold the fields {', '.join(names)}, and no others; got {found}")
        return cls(**values)

    def to_json(self) -> dict[str, Any]:
        """The fields as plain values."""
        return asdict(self)

    def question(self, candidate: str, references: Sequence[str] = ()) -> str:
        """The user's turn that asks for the grade; what many candidates share stands first."""
        parts = [self.rubric]
        if references:
            parts.append(fill(self.references, reference_captions="\n\n".join(map(quoted, references))))
        parts += [fill(self.candidate, candidate=quoted(candidate)), self.ask]
        return "\n\n".join(parts)


@lru_cache(maxsize=1)
def _default() -> FleurPrompt:
    return FleurPrompt.of(_DEFAULT)
