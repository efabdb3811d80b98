"""What a training prints: a few lines a step that can be read, in place of a dict of all figures."""

from __future__ import annotations

import math
import textwrap
import warnings
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerCallback

from integrations.trl.pictures import KeepPictures
from reward.data.chats import completion_text

_WIDTH = 80
_NO_BREAK = "\N{NO-BREAK SPACE}"  # until lines are broken
_FIRST = {"reward": "reward", "reward_std": "std"}
# Worth a word only where there are some.
_SHARES = {
    "unscored": "not scored",
    "truncated": "cut by the metric",
    "frac_reward_zero_std": "groups of equal reward",
    "parted": "parted",
}
# Figures that say little from step to step.
_LEFT_OUT = ("completions/", "clip_ratio/", "sampling/", "num_tokens", "num_input_tokens", "epoch", "total_flos")
_LEFT_OUT_ENDS = ("runtime", "_per_second")


def readable_log(trainer: Trainer) -> None:
    """Makes a trainer print a few lines at each log, in place of a dict of thirty figures.

    They have the rewards with their aspects, the length of the captions, and loss, KL, entropy and the like, but no
    clip ratios; shares of rows, such as those not scored, where they are not 0. transformers' progress bar stays, and
    `trainer.state.log_history` and reports to wandb keep all figures.

    From this call on, trainers of this process that have `log_completions=True` print captions beside their rewards, in
    place of a table whose columns leave a caption one word a line, and keep small copies of their images for `capreward
    report OUTPUT_DIR`. The process shows no FutureWarning about `gradient_checkpointing`, which TRL 1.16 causes.

    Args:
        trainer: any trainer of TRL or transformers, before `train()`.

    Example:
        >>> readable_log(trainer)  # doctest: +SKIP
        >>> trainer.train()  # doctest: +SKIP
        step 1 of 300: reward 0.684, std 0.193
          vela 0.684: descriptiveness 0.465, fluency 0.944, relevance 0.642
          length 36.8 tokens (12 to 65), 0 % cut; loss -0.0012, entropy 0.704
    """
    warnings.filterwarnings("ignore", message=r"`\w*gradient_checkpointing\w*` is deprecated", category=FutureWarning)
    # TRL's trainers call this function by the name under which their module has imported it.
    for kind in type(trainer).__mro__:
        module = getattr(vars(kind).get("log"), "__globals__", {})
        if "print_prompt_completions_sample" in module:
            module["print_prompt_completions_sample"] = _CaptionPrinter()
    for printing in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(printing)
    trainer.add_callback(_Lines() if trainer.args.disable_tqdm else _LinesAndBar())
    if getattr(trainer, "log_completions", False):
        trainer.add_callback(KeepPictures(trainer))


class _CaptionPrinter:
    """Prints the first captions of a step beside their rewards; called as TRL's `print_prompt_completions_sample`."""

    def __init__(self) -> None:
        self._printed: tuple[int, list[str]] | None = None

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        rewards: Mapping[str, Sequence[float]],
        advantages: Any,
        step: int,
        num_samples: int | None = None,
        extra: Any = None,
    ) -> None:
        captions = [completion_text(completion).strip() for completion in islice(completions, num_samples)]
        if self._printed == (step, captions):  # TRL prints those of the last step again when the training ends
            return
        self._printed = (step, captions)
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True)
        for row, caption in enumerate(captions):
            numbers = [f"{name} {_number(values[row])}" for name, values in rewards.items()]
            table.add_row(Text("\n".join(numbers)), Text(caption))
        console = Console()
        console.print(Text(f"captions of step {step}:"))
        console.print(Padding(table, (0, 0, 0, 4)))


class _Lines(TrainerCallback):
    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **more: Any) -> None:
        if state.is_world_process_zero:
            bar = getattr(self, "training_bar", None)
            write = print if bar is None else bar.write
            write("\n".join(log_lines(logs or {}, state.global_step, state.max_steps)))


class _LinesAndBar(_Lines, ProgressCallback):
    """Our lines, and transformers' progress bar."""


def log_lines(logs: Mapping[str, Any], step: int, steps: int) -> list[str]:
    """The lines of one log.

    Args:
        logs: what a trainer logs: figures of a step, of an evaluation (`eval_`), of a `RewardMonitor` (`monitor/`), or
            of the whole training (`train_`).
        step, steps: the step, and how many there will be.

    Example:
        >>> log_lines({"loss": 0.25, "learning_rate": 1e-6, "epoch": 0.5}, 3, 10)
        ['step 3 of 10: loss 0.250, learning_rate 1e-06']
    """
    if any(name.startswith("monitor/") for name in logs):
        figures = {name.removeprefix("monitor/"): value for name, value in logs.items() if name != "epoch"}
        return _wrapped([f"monitor at step {step}: {_listed(figures)}"])
    for runtime in logs:
        if runtime.startswith("eval_") and runtime.endswith("_runtime"):
            prefix = runtime.removesuffix("runtime")  # eval_, or eval_NAME_ of one of several data sets
            figures = {name.removeprefix(prefix): value for name, value in logs.items()}
            data = prefix[len("eval_") : -1]
            return _lines_of(figures, f"evaluation of {data} at step {step}" if data else f"evaluation at step {step}")
    lines = []
    step_figures = {name: value for name, value in logs.items() if not name.startswith("train_")}
    is_end = len(step_figures) < len(logs)  # the last log of a training may hold figures of its last step as well
    if "reward" in step_figures or not is_end:
        lines += _lines_of(step_figures, f"step {step} of {steps}")
    if "train_runtime" in logs:
        line = f"done: step {step} after {logs['train_runtime']:.1f} s"
        if "train_loss" in logs:
            line += f", mean loss {_number(logs['train_loss'])}"
        lines.append(line)
    return lines


def _lines_of(figures: Mapping[str, Any], head: str) -> list[str]:
    """The reward, then each reward function with its aspects, then the length of the captions and what is left."""
    left = {name: value for name, value in figures.items() if not name.endswith(_LEFT_OUT_ENDS)}
    first = {short: left.pop(name) for name, short in _FIRST.items() if name in left}
    lines = [_listed(first)]
    for key in figures:
        if key.startswith("rewards/") and key.endswith("/mean"):
            lines.append(_reward_line(key.split("/")[1], left))
    last = []
    if "completions/mean_length" in left:
        shortest, longest = left["completions/min_length"], left["completions/max_length"]
        last.append(
            f"length {left['completions/mean_length']:.1f} tokens ({shortest:g} to {longest:g}), "
            f"{100 * left['completions/clipped_ratio']:.0f} % cut"
        )
    last.append(_listed({name: value for name, value in left.items() if not name.startswith(_LEFT_OUT)}))
    lines.append("; ".join(filter(None, last)))
    lines = [line for line in lines if line] or [""]
    return _wrapped([f"{head}: {lines[0]}", *lines[1:]])


def _reward_line(name: str, left: dict[str, Any]) -> str:
    """A reward function's mean and aspects, which are taken out of what is left; empty where it has no mean."""
    mean = left.pop(f"rewards/{name}/mean")
    left.pop(f"rewards/{name}/std", None)  # that of the sum of all rewards is printed
    parts = {}
    for key in list(left):
        if key.startswith(f"{name}/"):
            parts[key.removeprefix(f"{name}/")] = left.pop(key)
    if mean is None:  # of a monitor's second measure, while the policy trains
        return ""
    aspects = [part for part in parts if part not in _SHARES]
    if len(aspects) == 1 and math.isclose(parts[aspects[0]], mean, rel_tol=1e-5):
        parts.pop(aspects[0])  # the only aspect says what the mean says
    listed = _listed(parts)
    return f"{name} {_number(mean)}: {listed}" if listed else f"{name} {_number(mean)}"


def _listed(figures: Mapping[str, Any]) -> str:
    texts = []
    for name, value in figures.items():
        if value or name not in _SHARES:
            texts.append(f"{_SHARES.get(name, name)}{_NO_BREAK}{_number(value)}")
    return ", ".join(texts)


def _number(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    if abs(value) < 1e-9:  # nothing but rounding
        return "0"
    return f"{value:.3f}" if 0.001 <= abs(value) < 1000 else f"{value:.3g}"


def _wrapped(lines: Iterable[str]) -> list[str]:
    """The lines at a width that terminals have; all but the first are indented, and what goes on a line further."""
    wrapped = []
    indent = ""
    for line in lines:
        parts = textwrap.wrap(line, _WIDTH, initial_indent=indent, subsequent_indent="    ", break_long_words=False)
        wrapped += [part.replace(_NO_BREAK, " ") for part in parts]
        indent = "  "
    return wrapped
