"""The `capreward` command: subcommands that are imported when they are typed, their help, and what they refuse."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

import reward
from reward.cli.options import with_groups

# {subcommand: "module:function"}. The modules import heavy libraries inside the function only, so that help is fast.
# Packages above this one, and of others, add commands by the entry point group `capreward.commands`.
COMMANDS = {
    "score": "reward.cli.score:score",
    "rerank": "reward.cli.score:rerank",
    "caption": "reward.cli.caption:caption",
    "compare": "reward.cli.compare:compare",
    "report": "reward.cli.report:report",
    "metrics": "reward.cli.metrics:metrics",
    "pairs": "reward.cli.pairs:pairs",
    "train": "reward.cli.train:train",
    "corrupt": "reward.cli.corrupt:corrupt",
    "audit": "reward.cli.audit:audit",
    "bench": "reward.cli.bench:bench",
    "arena": "reward.cli.arena:arena",
    "serve": "reward.cli.serve:serve",
}
_SETTINGS: dict[str, Any] = {
    "rich_markup_mode": None,  # typer's tables of rich cut the names of options in 80 columns
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 120},
}
# Options whose one text may hold several values, with commas.
_COMMA_OPTIONS = ("weights", "devices", "columns", "words", "rewrite")
_NO_BREAK = "\N{NON-BREAKING HYPHEN}"  # in place of hyphens until lines are broken
_UsageError: Any = typer.BadParameter.__base__  # of the click that this typer brings along, or of click's own


class _WholeNames:
    """Help in which click does not break lines at hyphens, which are parts of options and of names."""

    def get_help(self, ctx: Any) -> str:
        """See click."""

        class Formatter(ctx.formatter_class):
            def write_text(self, text: str) -> None:
                super().write_text(as_help(text).replace("-", _NO_BREAK))

            def write_dl(self, rows: Any, *sizes: Any, **options: Any) -> None:
                super().write_dl([(name, text.replace("-", _NO_BREAK)) for name, text in rows], *sizes, **options)

        ctx.formatter_class = Formatter
        return super().get_help(ctx).replace(_NO_BREAK, "-")  # type: ignore[misc]


class Command(_WholeNames, TyperCommand):
    """A subcommand, which answers a wrong line in one line: what is wrong, and what to write."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click, which would keep the last value of an option that is given twice, and say nothing."""
        typed = list(args)
        try:
            if not ctx.resilient_parsing:
                _refuse_repetitions(self, typed)
            return super().parse_args(ctx, args)
        except _UsageError as error:
            from reward.cli.guesses import add_line_to_type

            add_line_to_type(error, self, typed)
            error.ctx = None  # which would put lines about the usage first
            raise

    def invoke(self, ctx: Any) -> Any:
        """See click."""
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            error.ctx = None
            raise


class _Commands(Mapping[str, Any]):
    """{name: click command}, of which one is imported when it is looked up."""

    def __init__(self) -> None:
        self._places = dict(COMMANDS)
        for point in entry_points(group="capreward.commands"):
            self._places.setdefault(point.name, point.value)  # no installed package replaces a command of ours
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            module, _, function = self._places[name].partition(":")
            command = with_groups(getattr(import_module(module), function))
            summary = (command.__doc__ or "").partition("\n\n")[0]  # click would cut the first sentence
            alone = typer.Typer(add_completion=False, **_SETTINGS)
            alone.command(name, cls=Command, short_help=" ".join(summary.split()))(command)
            self._loaded[name] = typer.main.get_command(alone)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


class Group(_WholeNames, TyperGroup):
    """The command `capreward` itself."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = _Commands()

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """See click; a command that is not there any more is answered with the line to type."""
        try:
            return super().resolve_command(ctx, args)
        except _UsageError as error:
            from reward.cli.guesses import add_moved_command

            add_moved_command(error, args[0])
            error.ctx = None
            raise


def _refuse_repetitions(command: TyperCommand, args: Sequence[str]) -> None:
    for option in command.params:
        if not isinstance(option, TyperOption) or option.multiple or option.is_flag:
            continue
        values = list(dict.fromkeys(option_values(args, option.opts)))
        if len(values) > 1:
            name = max(option.opts, key=len)
            way = "leave out all but one"
            if option.name in _COMMA_OPTIONS:
                way = f"write {name} {shlex.quote(','.join(values))}"
            quoted = " and ".join(map(shlex.quote, values))
            raise typer.BadParameter(f"takes one value, got {quoted}; {way}", param_hint=name)


def option_values(args: Sequence[str], names: Sequence[str]) -> list[str]:
    """What stands behind an option, as `--name value` or `--name=value`.

    Example:
        >>> option_values(["-o", "a.jsonl", "--output=b.jsonl"], ["-o", "--output"])
        ['a.jsonl', 'b.jsonl']
    """
    values = []
    for position, arg in enumerate(args):
        name, equals, value = arg.partition("=")
        if arg in names and position + 1 < len(args):
            values.append(args[position + 1])
        elif equals and name in names:
            values.append(value)
    return values


def as_help(text: str) -> str:
    """A docstring in Markdown as click prints it: lists keep their items apart, code its lines."""
    parts = re.split(r"^```\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    for number, part in enumerate(parts):
        if number % 2:
            lines = [f"  {line}" for line in part.splitlines()]
            parts[number] = "\n".join(["\b", *lines])  # \b: leave it as it is
        else:
            parts[number] = re.sub(r"\n(?=\* )", "\n\n", part)
    return "".join(parts)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"capreward {reward.__version__}")
        raise typer.Exit


app = typer.Typer(name="capreward", no_args_is_help=True, **_SETTINGS)


@app.callback(cls=Group)
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option(envvar="CAPREWARD_DEBUG", help="Show the whole traceback of an error.")
    ] = False,
) -> None:
    """Score image captions with learned metrics, choose the best of several, and train the metrics.

    Exit codes:

    * 0: done. Rows that could not be scored are counted on stderr and say why in the output.
    * 1: an error, printed in one line; or not one row could be read, scored or judged.
    * 2: a wrong command line.
    * 3: `audit` found an attack above --fail-above.
    * 130: stopped by Ctrl-C. What was saved is kept, and the same command goes on. `serve` ends with 0.
    """
    if debug:
        os.environ["CAPREWARD_DEBUG"] = "1"
