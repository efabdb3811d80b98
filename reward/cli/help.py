"""Help that fits a terminal of 80 columns: docstrings as click prints them, and names that are never cut or broken."""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperGroup

from reward.cli.guesses import GuessingCommand

__all__ = ["Command", "Group", "shown"]

_CODE_WIDTH = 74  # with two indents of 2, the 78 columns that click fills
_NO_BREAK = "\N{NON-BREAKING HYPHEN}"  # in place of hyphens until lines are broken


class _WholeNames:
    """Help in which click does not break lines at hyphens, which are parts of options and of names."""

    def get_help(self, ctx: Any) -> str:
        """See click."""

        class Formatter(ctx.formatter_class):
            def write_text(self, text: str) -> None:
                super().write_text(shown(text).replace("-", _NO_BREAK))

            def write_dl(self, rows: Any, *sizes: Any, **options: Any) -> None:
                super().write_dl([(name, told.replace("-", _NO_BREAK)) for name, told in rows], *sizes, **options)

        ctx.formatter_class = Formatter
        return super().get_help(ctx).replace(_NO_BREAK, "-")  # type: ignore[misc]


class Command(_WholeNames, GuessingCommand):
    """A subcommand of `capreward`."""


class Group(_WholeNames, TyperGroup):
    """The command `capreward` itself."""


def shown(text: str) -> str:
    """A docstring in Markdown as click prints it in 80 columns.

    Lists keep their items apart. Code keeps its lines; those that are too long are broken between words, and commands
    so that they can still be pasted.
    """
    parts = re.split(r"^```\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    for number, part in enumerate(parts):
        if number % 2:
            lines = [piece for line in part.splitlines() for piece in _code_lines(line)]
            parts[number] = "\n".join(["\b", *(f"  {line}" for line in lines)])  # click leaves what follows \b as it is
        else:
            parts[number] = re.sub(r"\n(?=\* )", "\n\n", part)
    return "".join(parts)


def _code_lines(line: str) -> list[str]:
    if len(line) <= _CODE_WIDTH:
        return [line]
    words: list[str] = []
    for word in re.findall(r'(?:"[^"]*"|[^" ])+', line):  # nothing within quotes is broken
        if words and re.fullmatch("-[^ ]*", words[-1]) and not word.startswith("-"):
            words[-1] += f" {word}"  # an option stays with its value
        else:
            words.append(word)
    going_on = " \\" if words[0].startswith(("capreward", "-")) else ""
    indent = " " * (len(line) - len(line.lstrip()))
    lines = [indent + words[0]]
    for word in words[1:]:
        if len(lines[-1]) + 1 + len(word) <= _CODE_WIDTH - len(going_on):
            lines[-1] += f" {word}"
        else:
            lines[-1] += going_on
            lines.append(f"{indent or '    '}{word}")
    return lines
