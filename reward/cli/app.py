"""The `capreward` command: its subcommands, which are registered here, and its help."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import Annotated

import typer

import reward
from reward.cli.help import Command, Group
from reward.cli.options import with_groups

# {subcommand: "module:function"}. The modules import heavy libraries inside the function only, so that help is fast.
# Packages above this one, and of others, add commands by the entry point group `capreward.commands`.
COMMANDS = {
    "score": "reward.cli.score:score",
    "rerank": "reward.cli.score:rerank",
    "caption": "reward.cli.caption:caption",
    "compare": "reward.cli.compare:compare",
    "report": "reward.cli.scored:report",
    "metrics": "reward.cli.metrics:metrics",
    "pairs": "reward.cli.pairs:pairs",
    "train": "reward.cli.train:train",
    "corrupt": "reward.cli.corrupt:corrupt",
    "audit": "reward.cli.audit:audit",
    "bench": "reward.cli.bench:bench",
    "arena": "reward.cli.arena:arena",
    "serve": "reward.cli.serve:serve",
}

app = typer.Typer(
    name="capreward",
    no_args_is_help=True,
    rich_markup_mode=None,  # typer's tables of rich cut the names of options in 80 columns
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"capreward {reward.__version__}")
        raise typer.Exit


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


def _register() -> None:
    for name, place in COMMANDS.items():
        module, _, function = place.partition(":")
        _add(name, with_groups(getattr(import_module(module), function)))
    for point in entry_points(group="capreward.commands"):
        if point.name not in COMMANDS:  # an installed package cannot silently replace a command of ours
            _add(point.name, point.load())


def _add(name: str, command: Callable[..., None]) -> None:
    first = (command.__doc__ or "").partition("\n\n")[0]  # click would cut the first sentence
    app.command(name, cls=Command, short_help=" ".join(first.split()))(command)


_register()
