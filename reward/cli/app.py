"""The `capreward` command: subcommands that are imported when they are typed, their help, and what they refuse."""

from __future__ import annotations

import difflib
import inspect
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from functools import wraps
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

import reward
from reward.cli.options import ELSEWHERE

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
# What commands are called elsewhere, or were called, and what to write.
COMMANDS_ELSEWHERE = {
    "judge": "capreward score DATA -m METRIC=MODEL",
    "match": "capreward score DATA -m METRIC",
    "battle": "capreward arena --judge MODEL -o FILE",
    "caparena-auto": "capreward arena --auto caparena_auto_600.json --judge MODEL -o FILE",
    "agreement": "capreward bench RATINGS -m METRIC",
    "correlate": "capreward bench RATINGS -m METRIC",
    "evaluate": "capreward score DATA -m METRIC (captions), or capreward bench RATINGS -m METRIC (a metric)",
    "generate": "capreward caption IMAGES --model MODEL",
    "benchmarks": "capreward bench --list",
    "filter": "capreward score DATA -m METRIC --top 30% -o FILE",
    "clean": "capreward score DATA -m METRIC --top 30% -o FILE",
    "dedup": "capreward score DATA -m METRIC --dedupe -o FILE",
    "list": "capreward metrics",
    "plot": "capreward report SCORED -o FILE.html",
    "grpo": "trl grpo --model_name_or_path MODEL --reward_funcs capreward.vela_reward ...",
}
_SETTINGS: dict[str, Any] = {
    "suggest_commands": False,
    "rich_markup_mode": None,  # typer's tables of rich cut the names of options in 80 columns
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 120},
}
# Options whose one text may hold several values, with commas.
_COMMA_OPTIONS = ("weights", "devices", "columns", "words", "rewrite")
_ALL = "reward.cli.app.all"  # in the context, where the help is to show all options
_NO_BREAK = "\N{NON-BREAKING HYPHEN}"  # in place of hyphens until lines are broken
_UsageError: Any = typer.BadParameter.__base__  # of the click that this typer brings along, or of click's own


class _Helpful:
    """Help with `--all`, in which click does not break lines at hyphens, which are parts of options and of names."""

    def get_help(self, ctx: Any) -> str:
        """See click."""

        class Formatter(ctx.formatter_class):
            def write_text(self, text: str) -> None:
                super().write_text(as_help(text).replace("-", _NO_BREAK))

            def write_dl(self, rows: Any, *sizes: Any, **options: Any) -> None:
                super().write_dl([(name, text.replace("-", _NO_BREAK)) for name, text in rows], *sizes, **options)

        ctx.formatter_class = Formatter
        return super().get_help(ctx).replace(_NO_BREAK, "-")  # type: ignore[misc]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click; `--all` is a word of `--help` only, so that it is taken out before click reads the line."""
        if "--all" in args and not set(ctx.help_option_names).isdisjoint(args):
            args = [arg for arg in args if arg != "--all"]
            ctx.meta[_ALL] = True
        return super().parse_args(ctx, args)  # type: ignore[misc]


class Command(_Helpful, TyperCommand):
    """A subcommand, which answers a wrong line in one line: what is wrong, and what to write."""

    common: frozenset[str] = frozenset()  # options of `--help`; none stands for all
    synonyms: Mapping[str, str] = {}  # words of other tools, and what to write

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click, which would keep the last value of an option that is given twice, and say nothing."""
        try:
            if not ctx.resilient_parsing:
                _refuse_repetitions(self, args)
            return super().parse_args(ctx, args)
        except _UsageError as error:
            if hasattr(error, "possibilities"):
                error.possibilities = None
                error.message += f". {self._in_place_of(error.option_name)}"
            elif match := re.fullmatch(r"Got unexpected.* \(([^\s)]+).*", error.message):
                error.message += f". {self._in_place_of_argument(match[1])}"
            elif not error.message and error.param is not None:  # it is missing: its help says what to give
                error.message = getattr(error.param, "help", None) or ""
            error.ctx = None  # which would put lines about the usage first
            raise

    def invoke(self, ctx: Any) -> Any:
        """See click."""
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            error.ctx = None
            raise

    def get_help(self, ctx: Any) -> str:
        """See click; of a command with many options those that are used most, without `--all`."""
        # Hidden here and not in the declaration, so that the pages of the documentation have all options.
        shows_all = not self.common or ctx.meta.get(_ALL, False)
        for option in self._options():  # `self.common` holds long names
            option.hidden = not shows_all and self.common.isdisjoint(option.opts)
        text = super().get_help(ctx)
        hidden = sum(option.hidden for option in self._options())
        if hidden:
            text += f"\n\n  {hidden} more options: {ctx.command_path} --help --all"
        return text

    def _options(self) -> list[TyperOption]:
        return [parameter for parameter in self.params if isinstance(parameter, TyperOption)]

    def _in_place_of(self, name: str) -> str:
        """What to write in place of an option that is not there."""
        names = []
        for option in self._options():
            names += [spelling for spelling in option.opts if spelling.startswith("--")]
        # A word may have several meanings: that of the command itself comes first, then the first one in the table.
        lines = dict(self.synonyms)
        for line, words in ELSEWHERE.items():
            if line.split()[0] in names:
                lines = dict.fromkeys(words.split(), line) | lines
        if name in lines:
            return f"Write {lines[name]}"
        if name in ("--api-key", "--token"):  # on a command line it would stand in the list of processes
            keys = "OPENAI_API_KEY=KEY (of a judge's server) or CAPREWARD_TOKEN=TOKEN (of a reward service)"
            return f"Write {keys} before the command"
        arguments = [parameter for parameter in self.params if parameter.param_type_name == "argument"]
        if arguments and name in ("--data", "--input", "--file", "--dataset", "-d", "-i"):
            return f"Write {str(arguments[0].name).upper()}, without an option"
        likely = _likely(name, names)
        if likely:
            return f"Nearest: {', '.join(likely)} (all: --help --all)"
        common = [option for option in names if option in self.common] or names
        sentence = f"There are {', '.join(common)} (all: --help --all)"
        if "--set" in names:
            sentence += f"; for an option of the metric write --set {name.strip('-').replace('-', '_')}=VALUE"
        return sentence

    def _in_place_of_argument(self, word: str) -> str:
        """What to write in place of a word too many."""
        # A file is data, or what the shell made of a pattern; another word is likely a metric without its -m.
        if Path(word).exists():
            if any("--data" in option.opts for option in self._options()):
                return f"Write --data {word}"
            return f"It reads one; quote a pattern, so that the shell leaves it as it is: '*{Path(word).suffix}'"
        for before in sys.argv[1:]:
            if Path(f"{before} {word}").exists():
                return f"Quote a name with a blank: '{before} {word}'"
        if any("--metric" in option.opts for option in self._options()):
            return f"Write -m {word}, if it is a metric"
        return "Leave it out"


class _Commands(Mapping[str, Any]):
    """{name: click command}, of which one is imported when it is looked up."""

    # Click asks its dict of commands for one name to run it, and for all of them only for `capreward --help`. So a
    # command loads neither the modules of the others nor what these import at their top.

    def __init__(self) -> None:
        self._places = dict(COMMANDS)
        for point in entry_points(group="capreward.commands"):
            self._places.setdefault(point.name, point.value)  # no installed package replaces a command of ours
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            module, _, function = self._places[name].partition(":")
            command = _with_groups(getattr(import_module(module), function))
            summary = (command.__doc__ or "").partition("\n\n")[0]  # click would cut the first sentence
            alone = typer.Typer(add_completion=False, **_SETTINGS)
            alone.command(name, cls=Command, short_help=" ".join(summary.split()))(command)
            loaded: Any = typer.main.get_command(alone)
            loaded.common = getattr(command, "common", loaded.common)
            loaded.synonyms = getattr(command, "synonyms", loaded.synonyms)
            self._loaded[name] = loaded
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


class Group(_Helpful, TyperGroup):
    """The command `capreward` itself."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = _Commands()

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """See click; a command that is not there is answered with the line to type, or with those that are."""
        try:
            return super().resolve_command(ctx, args)
        except _UsageError as error:
            likely = _likely(args[0], list(self.commands))
            if args[0] in COMMANDS_ELSEWHERE:
                error.message += f" Write {COMMANDS_ELSEWHERE[args[0]]}"
            elif likely:
                error.message += f" Nearest: {', '.join(likely)}"
            else:
                error.message += f" There are {', '.join(self.commands)}"
            error.ctx = None
            raise


def _likely(name: str, names: Sequence[str]) -> list[str]:
    """The names that begin with one that is not there, else those that hardly differ from it."""
    longer = [candidate for candidate in names if candidate.startswith(name)]
    return longer or difflib.get_close_matches(name, names, cutoff=0.8)


def _with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Gives typer a command whose parameters that are dataclasses are replaced by their fields.

    The command itself is still called with the dataclasses.
    """
    groups: dict[str, tuple[Any, list[str]]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        group = parameter.annotation
        if isinstance(group, type) and is_dataclass(group):
            # Fields of a class above it name types of that class's module, which `signature` alone would not find.
            hints = get_type_hints(group, include_extras=True)
            fields = inspect.signature(group).parameters.values()
            options = [field.replace(annotation=hints[field.name]) for field in fields]
            groups[parameter.name] = (group, [option.name for option in options])
            parameters += options
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(command)
    def run(**values: Any) -> None:
        # Typer hands over the fields by their names; two groups of a command must not have a field in common.
        for name, (group, options) in groups.items():
            values[name] = group(**{option: values.pop(option) for option in options})
        command(**values)

    # What typer reads: it goes by the signature, and takes the types from the annotations.
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _refuse_repetitions(command: TyperCommand, args: Sequence[str]) -> None:
    """Refuses two values of an option that takes one: which of them was meant, nobody knows."""
    # From the words of the line, because click's parser keeps the last value alone.
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


def _show_version(version: bool) -> None:
    if version:
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
