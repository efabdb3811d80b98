"""What people type in place of what is there: the error names it, or is the line to type."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand, TyperOption

from reward.errors import CapRewardError, nearest

_UsageError: Any = typer.BadParameter.__base__  # of the click that this typer brings along, or of click's own

# {option that is there, perhaps with its value: what else it is called}
_MEANT = {
    "--device cuda:0": "--gpu --gpus --cuda",
    "--device cpu": "--cpu --no-cuda",
    "--dtype float16": "--fp16 --half",
    "--dtype bfloat16": "--bf16",
    "--dtype": "--precision --torch-dtype",
    "--batch-size": "--batch --bs -b --batchsize",
    "--overwrite": "--force -f --yes -y",
    "--devices": "--num-workers --jobs -j --num-gpus",
    "--output": "--out --save --save-path",
    "--port": "-p",
    "-n": "--num --num-candidates --num-samples --num-return-sequences --best-of",
    "--quiet": "--silent --no-progress",
    "--judge": "--model",
    "--judge ADDRESS#NAME": "--server",
    "--auto": "--benchmark",
    "--no-references": "--no-reference",
    "--model ADDRESS#NAME": "--served-model --server",
    "--set": "--option --options --param --kwargs --metric-args",
}
_DATA = ("--data", "--input", "--file", "--images", "--dataset", "-d", "-i")
_CHECKPOINTS = ("--source", "--model", "--checkpoint", "--ckpt", "--model-path", "--model-name", "--pretrained")
_SEVERAL = ("weights", "devices", "columns", "words", "rewrite")  # options of one text that holds several, with commas
_MOVED = {
    "judge": "score DATA -m METRIC=MODEL",
    "battle": "arena --judge MODEL -o FILE",
    "caparena-auto": "arena --auto caparena_auto_600.json --judge MODEL -o FILE",
    "pairs-benchmark": "corrupt --benchmark",
    "match": "score",
}


class GuessingCommand(TyperCommand):
    """A command that answers a wrong line in one line: what is wrong, and what to write."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click, which would keep the last value of an option that is given twice, and say nothing."""
        given = list(args)
        try:
            for option in () if ctx.resilient_parsing else self.params:
                if isinstance(option, TyperOption) and not (option.multiple or option.is_flag):
                    _check_once(option, list(dict.fromkeys(_values(given, option.opts))))
            return super().parse_args(ctx, args)
        except _UsageError as error:
            if hasattr(error, "possibilities"):
                error.possibilities = None
                error.message += _instead(self, error.option_name, given)
            elif "--metric" in _names(self) and (extra := re.fullmatch(r"Got unexpected.*\((.*)\)", error.message)):
                error.message += _as_metrics(extra[1].split())
            error.ctx = None  # which would put lines about the usage first
            raise

    def invoke(self, ctx: Any) -> Any:
        """See click."""
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            error.ctx = None
            raise


@contextmanager
def instead_of_command(args: Sequence[str]) -> Iterator[None]:
    """Adds to the error of a command that is not there what to write."""
    try:
        yield
    except _UsageError as error:
        if args[0] in _MOVED:
            error.message += f" Write capreward {_MOVED[args[0]]} (capreward {_MOVED[args[0]].split()[0]} --help)"
        error.ctx = None
        raise


def _check_once(option: Any, values: list[str]) -> None:
    if len(values) > 1:
        name = max(option.opts, key=len)
        way = f"write {name} {shlex.quote(','.join(values))}" if option.name in _SEVERAL else "leave out all but one"
        told = " and ".join(map(shlex.quote, values))
        raise typer.BadParameter(f"takes one value, got {told}; {way}", param_hint=name)


def _names(command: TyperCommand) -> list[str]:
    return [name for parameter in command.params for name in parameter.opts if name.startswith("-")]


def _instead(command: TyperCommand, name: str, args: Sequence[str]) -> str:
    """What to write in place of an option that is not there."""
    options, place = _names(command), [each.name for each in command.params if each.param_type_name == "argument"]
    meant = [option for option, others in _MEANT.items() if name in others.split() and option.split()[0] in options]
    if meant:
        return f". Write {meant[0]}"
    metrics, values = _values(args, ("--metric", "-m")), _values(args, (name,))
    if "--metric" in options and name in (*_CHECKPOINTS, "--revision"):
        metric, value = metrics[0] if len(metrics) == 1 else "NAME", values[0] if values else "CHECKPOINT"
        line = f"{metric}@{value}" if name == "--revision" else f"{metric.partition('=')[0]}={value}"
        return f". Write -m {line}"
    own = name.strip("-").replace("-", "_")
    for option, is_setting in (("--set", _is_setting), ("--judge-set", _is_judge_setting)):
        if option in options and is_setting(own, metrics):
            return f". Write {option} {own}={values[0] if values else 'VALUE'}"
    if place and name in _DATA:
        return f". Write capreward {command.name} {str(place[0]).upper()}, without an option"
    close = nearest(name.strip("-"), [option.strip("-") for option in options if option.startswith("--")])
    return f". Nearest: --{', --'.join(close)}" * name.startswith("--") + " (all: --help)"


def _is_setting(name: str, metrics: Sequence[str]) -> bool:
    """Whether one of the metrics has an option of that name."""
    from reward.metrics.options import metric_options
    from reward.registry import MetricSource

    try:
        return any(name in metric_options(MetricSource.parse(each).loads) for each in metrics)
    except CapRewardError:
        return False


def _is_judge_setting(name: str, metrics: Sequence[str]) -> bool:
    of_servers = ("concurrency", "cache", "prices", "extra_body", "timeout", "retries", "top_logprobs")
    return name in (*of_servers, "device", "dtype", "batch_size", "revision")


def _as_metrics(words: Sequence[str]) -> str:
    """The line to type, if words without an option are metrics."""
    from reward.registry import MetricSource

    try:
        return ": write " + " ".join(f"-m {MetricSource.parse(word).label}" for word in words)
    except CapRewardError:
        return ""


def _values(args: Sequence[str], names: Sequence[str]) -> list[str]:
    """What stands behind an option, as `--name value` or `--name=value`."""
    found = []
    for place, arg in enumerate(args):
        name, equals, value = arg.partition("=")
        if arg in names and place + 1 < len(args):
            found.append(args[place + 1])
        elif equals and name in names:
            found.append(value)
    return found
