"""Refuses an option of one value that is given twice: click would keep the last and say nothing."""

from __future__ import annotations

import copy
import shlex
from typing import Any

import typer
from typer.core import TyperCommand, TyperOption

__all__ = ["OnceCommand"]

# Options whose one value holds several things, and what stands between them.
_BETWEEN = dict.fromkeys(("weights", "devices", "columns", "words", "rewrite"), ",")


class OnceCommand(TyperCommand):
    """A command whose options of one value are given at most once, or each time with the same value.

    Options that are lists may be repeated, as ever. A flag may be repeated, but not taken back.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click; a repeated option is a wrong command line."""
        if not ctx.resilient_parsing:
            self._refuse_repeated(ctx, list(args))
        return super().parse_args(ctx, args)

    def _refuse_repeated(self, ctx: Any, args: list[str]) -> None:
        collecting = copy.copy(self)  # its options keep every value that they are given
        collecting.params = [copy.copy(parameter) for parameter in self.params]
        single = [each for each in collecting.params if isinstance(each, TyperOption) and not each.multiple]
        for option in single:
            option.multiple = True
        given, _, _ = collecting.make_parser(ctx).parse_args(args)
        for option in single:
            values = list(dict.fromkeys(given.get(option.name, ())))
            if len(values) > 1:
                name = max(option.opts, key=len)
                raise typer.BadParameter(_message(name, option, values), ctx=ctx, param_hint=name)


def _message(name: str, option: TyperOption, values: list[Any]) -> str:
    if option.is_flag:
        return f"is given and taken back by {option.secondary_opts[0]}; leave one of them out"
    told = f"takes one value, got {' and '.join(map(shlex.quote, map(str, values)))}; "
    between = _BETWEEN.get(str(option.name))
    return told + (f"write {name} {shlex.quote(between.join(values))}" if between else "leave out all but one")
