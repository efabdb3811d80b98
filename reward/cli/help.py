"""Help that fits a terminal of 80 columns: docstrings as click prints them, and names that are never broken."""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperGroup

from reward.cli.guesses import GuessingCommand, instead_of_command

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

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """See click; a command that is not there any more is answered with the line to type."""
        with instead_of_command(args):
            return super().resolve_command(ctx, args)


def shown(text: str) -> str:
    """A docstring in Markdown as click prints it: lists keep their items apart, code its lines."""
    parts = re.split(r"^```\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    for number, part in enumerate(parts):
        if number % 2:
            parts[number] = "\n".join(["\b", *(f"  {line}" for line in part.splitlines())])  # \b: leave it as it is
        else:
            parts[number] = re.sub(r"\n(?=\* )", "\n\n", part)
    return "".join(parts)
