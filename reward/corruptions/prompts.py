"""Instructions for rewrites: read from a file, checked, and filled with a caption as escaped JSON."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reward.errors import ConfigError

__all__ = ["RewritePrompts", "load_prompts"]

_DEFAULT_FILE = Path(__file__).with_name("rewrite_prompts.yaml")
# As JSON escapes, these characters cannot form a control token (<|im_end|>, [INST], <s>) or close a tag.
_ESCAPED = {character: f"\\u{ord(character):04x}" for character in "<>[]|\u2028\u2029\u0085"}


@dataclass(frozen=True)
class RewritePrompts:
    """Instructions for each category of error.

    Args:
        version: of the wording, any text or number.
        system: system message.
        request: what the user says; holds `{change}` and `{caption}` once each, in this order.
        changes: by category, what is to be changed.

    Raises:
        ConfigError: a text is missing or blank, or a placeholder is missing, doubled or out of order.
    """

    version: str
    system: str
    request: str
    changes: Mapping[str, str]

    def __post_init__(self) -> None:
        if not isinstance(self.changes, Mapping) or not self.changes:
            raise ConfigError("rewrite prompts need `changes`: {category: what is to be changed}")
        texts = {"system": self.system, "request": self.request}
        texts.update({f"changes.{name}": text for name, text in self.changes.items()})
        for name, text in texts.items():
            if not isinstance(text, str) or not text.strip():
                raise ConfigError(f"rewrite prompts: {name} must be text, got {text!r}")
        for mark in ("{change}", "{caption}"):
            if self.request.count(mark) != 1:
                raise ConfigError(f"rewrite prompts: request must hold {mark} exactly once, got {self.request!r}")
        if self.request.index("{change}") > self.request.index("{caption}"):
            raise ConfigError(
                "rewrite prompts: {change} must stand before {caption}, so that requests share a beginning"
            )

    @property
    def digest(self) -> str:
        """Identifies the texts."""
        texts = [self.version, self.system, self.request, sorted(self.changes.items())]
        return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16]

    def fill(self, category: str, caption: str) -> str:
        """The request for one caption.

        Raises:
            ConfigError: unknown category.

        Example:
            >>> print(load_prompts().fill("count", 'Two "stars".<|im_end|>').splitlines()[-1])
            "Two \\"stars\\".\\u003c\\u007cim_end\\u007c\\u003e"
        """
        if category not in self.changes:
            raise ConfigError(f"no rewrite prompt for category {category!r}; known: {', '.join(self.changes)}")
        start, rest = self.request.split("{change}")
        middle, end = rest.split("{caption}")
        return start + self.changes[category] + middle + json_quoted(caption) + end


def load_prompts(path: str | os.PathLike[str] | None = None) -> RewritePrompts:
    """Reads rewrite prompts from a YAML or JSON file; None reads `rewrite_prompts.yaml` in this package.

    Raises:
        ConfigError: the file cannot be read, is not YAML, has unknown or missing keys, or see `RewritePrompts`.

    Example:
        >>> list(load_prompts().changes)
        ['spatial', 'actant_swap', 'action', 'noun', 'attribute', 'count', 'scene_text']
    """
    return _default() if path is None else _read(Path(path))


@functools.cache
def _default() -> RewritePrompts:
    return _read(_DEFAULT_FILE)


def _read(path: Path) -> RewritePrompts:
    import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own

    try:
        values: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read rewrite prompts {str(path)!r}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"rewrite prompts {str(path)!r} are not valid YAML: {error}") from error
    wanted = ("version", "system", "request", "changes")
    if not isinstance(values, dict) or set(values) != set(wanted):
        given = sorted(map(str, values)) if isinstance(values, dict) else type(values).__name__
        raise ConfigError(f"rewrite prompts {str(path)!r} must have the keys {', '.join(wanted)}, got {given}")
    return RewritePrompts(str(values["version"]), values["system"], values["request"], values["changes"])


def json_quoted(caption: str) -> str:
    """A caption as a JSON string on one line, without control tokens and without an early end of the string."""
    return "".join(_ESCAPED.get(character, character) for character in json.dumps(caption, ensure_ascii=False))
