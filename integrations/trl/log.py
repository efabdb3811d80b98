"""What a training prints: a few lines a step that can be read, in place of a dict of all figures."""

from __future__ import annotations

import math
import textwrap
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerCallback

_WIDTH = 80
_NO_BREAK = "\N{NO-BREAK SPACE}"  # until lines are broken
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

    First come the reward and its deviation, each reward's mean with its aspects, and the length of the captions, then
    loss, KL, entropy and what else is logged, but for clip ratios and the like. Shares of rows, such as those that were
    not scored, are printed where they are not 0. `trainer.state.log_history` and reports to wandb keep all figures.

    transformers' callback that prints is taken out, its progress bar stays. From this call on, the process shows no
    FutureWarning about `gradient_checkpointing`, which TRL 1.16 causes.

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
    for printing in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(printing)
    trainer.add_callback(_Lines() if trainer.args.disable_tqdm else _LinesAndBar())


class _Lines(TrainerCallback):
    _start = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._start = state.global_step  # of a training that goes on, the step of its checkpoint
        super().on_train_begin(args, state, control, **more)

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **more: Any) -> None:
        if state.is_world_process_zero:
            bar = getattr(self, "training_bar", None)
            write = print if bar is None else bar.write
            write("\n".join(log_lines(logs or {}, state.global_step, state.max_steps, self._start)))


class _LinesAndBar(_Lines, ProgressCallback):
    """Our lines, and transformers' progress bar."""


def log_lines(logs: Mapping[str, Any], step: int, steps: int, start: int = 0) -> list[str]:
    """The lines of one log.

    Args:
        logs: what a trainer logs: figures of a step, of an evaluation (`eval_`), of a `RewardMonitor` (`monitor/`), or
            of the whole training (`train_`). None stands for a figure that no row has.
        step, steps: the step, and how many there will be.
        start: the step after which the training went on; 0 for one from its beginning.

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
    own = {name: value for name, value in logs.items() if not name.startswith("train_")}
    if "reward" in own or len(own) == len(logs):
        lines += _lines_of(own, f"step {step} of {steps}")
    if "train_runtime" in logs:
        loss = f", mean loss {_number(logs['train_loss'])}" if "train_loss" in logs else ""
        count = step - start
        which = f" ({start + 1} to {step})" if start and count else ""
        lines.append(f"done: {count} step{'s' * (count != 1)}{which} in {logs['train_runtime']:.1f} s{loss}")
    return lines


def _lines_of(figures: dict[str, Any], head: str) -> list[str]:
    left = {name: value for name, value in figures.items() if not name.endswith(_LEFT_OUT_ENDS)}
    first = {new: left.pop(old) for old, new in (("reward", "reward"), ("reward_std", "std")) if old in left}
    lines = [_listed(first)] if first else []
    for name in [key.split("/")[1] for key in figures if key.startswith("rewards/") and key.endswith("/mean")]:
        mean, _ = left.pop(f"rewards/{name}/mean"), left.pop(f"rewards/{name}/std", None)
        parts = {key.removeprefix(f"{name}/"): left.pop(key) for key in figures if key.startswith(f"{name}/")}
        if mean is None:  # of a monitor's second measure, while the policy trains
            continue
        aspects = [key for key in parts if key not in _SHARES]
        if len(aspects) == 1 and math.isclose(parts[aspects[0]], mean, rel_tol=1e-5):  # the only aspect
            parts.pop(aspects[0])
        lines.append(": ".join(filter(None, [f"{name} {_number(mean)}", _listed(parts)])))
    last = []
    if "completions/mean_length" in left:
        shortest, longest = left["completions/min_length"], left["completions/max_length"]
        last.append(
            f"length {left['completions/mean_length']:.1f} tokens ({shortest:g} to {longest:g}), "
            f"{100 * left['completions/clipped_ratio']:.0f} % cut"
        )
    last.append(_listed({name: value for name, value in left.items() if not name.startswith(_LEFT_OUT)}))
    lines.append("; ".join(filter(None, last)))
    return _wrapped([f"{head}: {lines[0]}", *filter(None, lines[1:])])


def _listed(figures: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{_SHARES.get(name, name)}{_NO_BREAK}{_number(value)}"
        for name, value in figures.items()
        if value or name not in _SHARES
    )


def _number(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    if abs(value) < 1e-9:  # nothing but rounding
        return "0"
    return f"{value:.3f}" if 0.001 <= abs(value) < 1000 else f"{value:.3g}"


def _wrapped(lines: Iterable[str]) -> list[str]:
    return [
        part.replace(_NO_BREAK, " ")
        for number, line in enumerate(lines)
        for part in textwrap.wrap(
            line, _WIDTH, initial_indent="  " * (number > 0), subsequent_indent="    ", break_long_words=False
        )
    ]
