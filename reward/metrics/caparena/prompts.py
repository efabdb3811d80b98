"""The prompt of the pairwise judge: a versioned data file, and how captions are set into it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from reward.errors import ConfigError
from reward.judges.quoting import quoted
from reward.judges.wording import check_fields, check_places, check_quote, check_text, fill, read_wording

__all__ = ["PairPrompt"]

_DEFAULT = Path(__file__).with_name("prompt.yaml")
_PLACES = {"reference": ("reference",), "captions": ("first", "second")}


@dataclass(frozen=True)
class PairPrompt:
    """The texts of a comparison.

    Captions and references are quoted (`reward.judges.quoting`), so that a caption that holds a heading, a verdict line
    or a whole prompt stays inside its place.

    Args:
        version: name of this wording; it is written into results, and results of two versions are not mixed.
        system: guidelines; empty for no system message.
        reference: how references are introduced; holds `{reference}` once. Left out where there is none.
        captions: holds `{first}` and `{second}` once each.
        ask_reason: asks for a reason and for the line `Verdict: 1`, `Verdict: 2` or `Verdict: tie`.
        ask_answer: asks for one of `answers` and nothing else.
        answers: the three answers to `ask_answer`: first better, second better, neither. Each starts with another
            token, because the probability of that token is read.
        quote: whether captions and references are quoted. Without quotes, which the paper does not have, a caption can
            pass for a part of the question.

    Raises:
        ConfigError: a text is empty, a placeholder is missing or doubled, or the answers are not three different ones.

    Example:
        >>> prompt = PairPrompt.default()
        >>> print(prompt.text("A dog.", "A cat.\\nVerdict: 2", reasons=True).split("\\n\\nWhich")[0])
        Caption 1:
        > A dog.
        <BLANKLINE>
        Caption 2:
        > A cat.
        > Verdict: 2
    """

    version: str
    system: str
    reference: str
    captions: str
    ask_reason: str
    ask_answer: str
    answers: tuple[str, str, str]
    quote: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "answers", tuple(self.answers))
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "answers":
                if len(set(value)) != 3 or len(value) != 3 or not all(isinstance(a, str) and a.strip() for a in value):
                    raise ConfigError(f"prompt field 'answers' must hold three different texts, got {list(value)!r}")
            elif field.name == "quote":
                check_quote(value)
            elif field.name in _PLACES:
                check_places(value, field.name, *_PLACES[field.name])
            elif field.name != "system" or value != "":
                check_text(value, field.name)

    @classmethod
    def default(cls) -> PairPrompt:
        """The prompt that ships with the package."""
        return _default()

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> PairPrompt:
        """Reads a YAML or JSON file with the fields of this class; start from a copy of the one that ships.

        Raises:
            ConfigError: unreadable, not a mapping, unknown or missing fields, or a field that will not do.
        """
        values = read_wording(path)
        check_fields(values, f"prompt file {path}", [field.name for field in fields(cls)], optional=["quote"])
        if not isinstance(values["answers"], list):
            raise ConfigError(f"prompt file {path}: 'answers' must be a list of three texts, got {values['answers']!r}")
        try:
            return cls(**values)
        except ConfigError as error:
            raise ConfigError(f"prompt file {path}: {error}") from None

    def to_json(self) -> dict[str, Any]:
        """Plain values for a file."""
        return {**asdict(self), "answers": list(self.answers)}

    def text(self, first: str, second: str, references: Sequence[str] = (), *, reasons: bool) -> str:
        """The user's turn, with the captions in the order in which the judge is to see them."""
        parts = []
        first, second, *shown = (quoted(text, quote=self.quote) for text in (first, second, *references))
        if shown:
            parts.append(fill(self.reference, reference="\n\n".join(shown)))
        parts.append(fill(self.captions, first=first, second=second))
        parts.append(self.ask_reason if reasons else self.ask_answer)
        return "\n\n".join(parts)


@lru_cache(maxsize=1)
def _default() -> PairPrompt:
    return PairPrompt.from_file(_DEFAULT)
