"""What people type in place of what is there: the error names it, or is the line to type."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand

from reward.cli.app import option_values
from reward.errors import CapRewardError, nearest

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
_JUDGE_SETTINGS = (
    *("concurrency", "cache", "prices", "extra_body", "timeout", "retries", "top_logprobs"),
    *("device", "dtype", "batch_size", "revision"),
)
_MOVED = {
    "judge": "score DATA -m METRIC=MODEL",
    "battle": "arena --judge MODEL -o FILE",
    "caparena-auto": "arena --auto caparena_auto_600.json --judge MODEL -o FILE",
    "pairs-benchmark": "corrupt --benchmark",
    "match": "score",
}


def add_line_to_type(error: Any, command: TyperCommand, args: Sequence[str]) -> None:
    """Adds to the error of a wrong line what to write."""
    if hasattr(error, "possibilities"):
        error.possibilities = None
        error.message += _instead(command, error.option_name, args)
    elif "--metric" in _names(command) and (words := re.fullmatch(r"Got unexpected.*\((.*)\)", error.message)):
        error.message += _as_metrics(words[1].split())


def add_moved_command(error: Any, name: str) -> None:
    """Adds to the error of a command that is not there any more what to write."""
    if name in _MOVED:
        error.message += f" Write capreward {_MOVED[name]} (capreward {_MOVED[name].split()[0]} --help)"


def _names(command: TyperCommand) -> list[str]:
    return [name for parameter in command.params for name in parameter.opts if name.startswith("-")]


def _instead(command: TyperCommand, name: str, args: Sequence[str]) -> str:
    """What to write in place of an option that is not there."""
    options = _names(command)
    for option, synonyms in _MEANT.items():
        if name in synonyms.split() and option.split()[0] in options:
            return f". Write {option}"
    metrics, values = option_values(args, ("--metric", "-m")), option_values(args, (name,))
    if "--metric" in options and name in (*_CHECKPOINTS, "--revision"):
        metric = metrics[0] if len(metrics) == 1 else "NAME"
        value = values[0] if values else "CHECKPOINT"
        if name == "--revision":
            return f". Write -m {metric}@{value}"
        return f". Write -m {metric.partition('=')[0]}={value}"
    setting, value = name.strip("-").replace("-", "_"), values[0] if values else "VALUE"
    if "--set" in options and _is_setting(setting, metrics):
        return f". Write --set {setting}={value}"
    if "--judge-set" in options and setting in _JUDGE_SETTINGS:
        return f". Write --judge-set {setting}={value}"
    arguments = [str(parameter.name) for parameter in command.params if parameter.param_type_name == "argument"]
    if arguments and name in _DATA:
        return f". Write capreward {command.name} {arguments[0].upper()}, without an option"
    close = nearest(name.strip("-"), [option.strip("-") for option in options if option.startswith("--")])
    return f". Nearest: --{', --'.join(close)}" * name.startswith("--") + " (all: --help)"


def _is_setting(name: str, metrics: Sequence[str]) -> bool:
    """Whether one of the metrics has an option of that name."""
    from reward.metrics.options import metric_options
    from reward.registry import MetricSource

    try:
        return any(name in metric_options(MetricSource.parse(metric).loads) for metric in metrics)
    except CapRewardError:
        return False


def _as_metrics(words: Sequence[str]) -> str:
    """The line to type, if words without an option are metrics."""
    from reward.registry import MetricSource

    try:
        return ": write " + " ".join(f"-m {MetricSource.parse(word).label}" for word in words)
    except CapRewardError:
        return ""
