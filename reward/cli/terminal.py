"""What the commands print: as it is, lines uncut, and without anything that could steer the terminal."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["console", "plain", "print_json", "warnings_in_one_line"]

# Control characters but line breaks and tabs, and the marks that turn the direction of writing: with them the content
# of a file or the answer of a server could move the cursor, set colours, or show other text than it holds.
_STEERING = [*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_SHOWN = {code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" for code in _STEERING}
_IN_JSON = {code: f"\\u{code:04x}" for code in _STEERING}


def plain(text: str) -> str:
    r"""A text with escape sequences and the like made visible.

    Example:
        >>> print(plain("\x1b[2Jgone"))
        \x1b[2Jgone
    """
    return text.translate(_SHOWN)


def console(*, stderr: bool) -> Any:
    """Where texts of files, servers and models are printed: `plain`, lines uncut."""
    from rich.console import Console

    class PlainConsole(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(plain(text), **options)

    # Names of models and columns may hold brackets and colons, which are not ours to read as markup or emoji.
    return PlainConsole(stderr=stderr, highlight=False, soft_wrap=True, markup=False, emoji=False)


def print_json(value: Any) -> None:
    """One JSON value on stdout."""
    import json

    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False).translate(_IN_JSON))


@contextmanager
def warnings_in_one_line() -> Iterator[None]:
    """Prints warnings as `warning: ...`, without the place in the code that they come from."""

    def show(message: Warning | str, *details: Any, **more: Any) -> None:
        print(f"warning: {plain(str(message))}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
