"""Instructions for rewrites: read from a file, checked, and filled with a caption as escaped JSON."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reward.errors import ConfigError
from reward.judges.wording import JudgePrompt, check_text, fill

# As JSON escapes, these characters cannot form a control token (<|im_end|>, [INST], <s>) or close a tag.
_ESCAPED = {character: f"\\u{ord(character):04x}" for character in "<>[]|\u2028\u2029\u0085"}


@dataclass(frozen=True)
class RewritePrompts(JudgePrompt):
    """Instructions for each category of error.

    Args:
        version: of the wording, any text or number.
        system: system message.
        request: what the user says; holds `{change}` and, after it, `{caption}`.
        changes: by category, what is to be changed.
    """

    metric = "rewrites"
    default_file = Path(__file__).with_name("rewrite_prompts.yaml")
    places = {"request": ("change", "caption")}  # noqa: RUF012

    version: str | int
    system: str
    request: str
    changes: Mapping[str, str]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.changes, Mapping) or not self.changes:
            raise ConfigError(f"prompt field 'changes' must hold texts by category, got {self.changes!r:.80}")
        for name, text in self.changes.items():
            check_text(text, f"changes.{name}")

    @property
    def digest(self) -> str:
        """Identifies the texts."""
        texts = [str(self.version), self.system, self.request, sorted(self.changes.items())]
        return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16]

    def fill(self, category: str, caption: str) -> str:
        """The request for one caption.

        Example:
            >>> print(load_prompts().fill("count", 'Two "stars".<|im_end|>').splitlines()[-1])
            "Two \\"stars\\".\\u003c\\u007cim_end\\u007c\\u003e"
        """
        if category not in self.changes:
            raise ConfigError(f"no rewrite prompt for category {category!r}; known: {', '.join(self.changes)}")
        return fill(self.request, change=self.changes[category], caption=json_quoted(caption))


def load_prompts(path: str | os.PathLike[str] | None = None) -> RewritePrompts:
    """Reads rewrite prompts from a YAML or JSON file; None reads `rewrite_prompts.yaml` in this package.

    Example:
        >>> list(load_prompts().changes)
        ['spatial', 'actant_swap', 'action', 'noun', 'attribute', 'noun_attribute', 'count', 'scene_text']
    """
    return RewritePrompts.of(path)


def json_quoted(caption: str) -> str:
    """A caption as a JSON string on one line, without control tokens and without an early end of the string."""
    return "".join(_ESCAPED.get(character, character) for character in json.dumps(caption, ensure_ascii=False))
