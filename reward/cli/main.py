"""Entry point of the `capreward` command: registers the subcommands and turns errors into one line and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from importlib import import_module
from importlib.metadata import entry_points
from typing import Annotated, NoReturn

import typer

import reward
from reward.errors import CapRewardError

__all__ = ["app", "main"]

# {subcommand: "module:function"}. The modules import heavy libraries inside the function only, so that help is fast.
# Packages above this one, and of others, add commands by the entry point group `capreward.commands`.
COMMANDS = {
    "score": "reward.cli.score:score",
    "rerank": "reward.cli.rerank:rerank",
    "metrics": "reward.cli.metrics:metrics",
    "train": "reward.cli.train:train",
    "judge": "reward.cli.judge:judge",
    "battle": "reward.cli.battle:battle",
    "caparena-auto": "reward.cli.caparena_auto:caparena_auto",
    "bench": "reward.cli.bench:bench",
    "compare": "reward.cli.compare:compare",
    "arena": "reward.cli.arena:arena",
}

app = typer.Typer(
    name="capreward",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"capreward {reward.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option(envvar="CAPREWARD_DEBUG", help="Show the whole traceback of an error.")
    ] = False,
) -> None:
    """Score image captions with learned metrics, choose the best of several, and train the metrics.

    Exit code: 0 done; 1 an error, which is printed in one line, or nothing could be scored; 2 a wrong command line;
    130 stopped by Ctrl-C.
    """
    if debug:
        os.environ["CAPREWARD_DEBUG"] = "1"


def _register() -> None:
    for name, place in COMMANDS.items():
        module, _, function = place.partition(":")
        app.command(name)(getattr(import_module(module), function))
    for point in entry_points(group="capreward.commands"):
        if point.name not in COMMANDS:  # an installed package cannot silently replace a command of ours
            app.command(point.name)(point.load())


_register()


def main() -> None:
    """Runs the command of `sys.argv`; errors of this library are printed in one line, all others as usual."""
    try:
        app(prog_name="capreward")
    except CapRewardError as error:
        if os.environ.get("CAPREWARD_DEBUG"):
            raise
        _fail(str(error))
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or os.environ.get("CAPREWARD_DEBUG"):
            raise
        # What is left for stdout would fail once more when Python ends, and with another exit code.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        place = f" {error.filename}" if error.filename else ""
        _fail(f"cannot write{place}: {error.strerror}. What was saved before stays; make room and run the same again")


def _fail(message: str) -> NoReturn:
    from rich.console import Console

    Console(stderr=True, highlight=False, soft_wrap=True).print(f"error: {message}", style="red", markup=False)
    sys.exit(1)


if __name__ == "__main__":
    main()
