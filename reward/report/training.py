"""The report of a captioner's training: what the trainer logged over the steps, and its captions beside pictures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from reward.data.chats import completion_text
from reward.data.json_files import read_json
from reward.errors import DataError
from reward.report.page import Picture, read_picture
from reward.report.plots import Lines, curve
from reward.report.report import Report
from reward.scoring.readers import open_source
from reward.scoring.sources import BadRow

STATE, MONITOR = "trainer_state.json", "monitor.jsonl"
_SHARES = ("unscored", "truncated")  # of rows, which a reward logs beside its aspects
_IMAGES = 6  # held-out images that are shown


@dataclass
class Training:
    """What a trainer of captioners left in its output folder.

    Args:
        folder: the trainer's `output_dir`.
        log: a row for each log, of training steps or of an evaluation (`eval_`), with its step as index.
        completions: {step: Parquet file}, as TRL writes them with `log_completions=True`.
        checks: lines of the `monitor.jsonl` of a `RewardMonitor`.
    """

    folder: Path
    log: pd.DataFrame
    completions: dict[int, Path]
    checks: list[dict[str, Any]]

    def rewards(self, prefix: str = "") -> list[str]:
        """Names of the reward functions that have values; with the prefix "eval_" the monitor's second measure, too."""
        columns = self.log.columns[self.log.notna().any()]
        matches = [re.fullmatch(f"{prefix}rewards/(.*)/mean", column) for column in columns]
        return [match[1] for match in matches if match]

    @property
    def second(self) -> str:
        """Name of the monitor's second measure, which has values in evaluations only."""
        names = [name for name in self.rewards("eval_") if name not in self.rewards()]
        return names[0] if names else "second measure"


def training_folder(path: Path) -> Path | None:
    """The output folder of a trainer, by its path, or that of a checkpoint, state or completions in it; else None."""
    folder = path.resolve()
    if folder.name in (STATE, MONITOR, "completions"):
        folder = folder.parent
    if folder.name.startswith("checkpoint-"):
        folder = folder.parent
    return folder if _states(folder) or (folder / MONITOR).is_file() or _completions(folder) else None


def read_training(folder: Path) -> Training:
    """Reads what a trainer left in its output folder.

    Raises:
        DataError: there is no state of a trainer, or it logged no reward.
    """
    states = [read_json(file) for file in _states(folder)]
    if not states:
        raise DataError(
            f"{folder} has captions of a training, but no {STATE}, neither in it nor in a checkpoint: it comes with "
            "the first checkpoint, or by trainer.save_state()"
        )
    # A training that went on after it was saved has logged more.
    newest = max(states, key=lambda state: state["global_step"])
    log = pd.DataFrame(newest["log_history"])
    if "reward" not in log:
        raise DataError(
            f"{folder} has no reward in its log: a page of a training is for trainers with reward functions, such as "
            "GRPOTrainer, and has something to show after their first logging_steps"
        )
    checks = _rows(folder / MONITOR) if (folder / MONITOR).is_file() else []
    return Training(folder, log.set_index("step"), _completions(folder), checks)


def training_report(training: Training, *, command: str = "") -> Report:
    """Curves over the steps, captions of the first, the middle and the last step, and of held-out images."""
    galleries = {f"Captions of step {step}": _captions(training, step) for step in _three([*training.completions])}
    if training.checks:
        galleries[f"Held-out images whose {training.second} changed most"] = _held_out(training)
    warnings = []
    if not training.completions:
        warnings.append("There are no captions of the steps: GRPOTrainer keeps them with log_completions=True.")
    elif not any(picture.address for pictures in galleries.values() for picture in pictures):
        warnings.append("There are no pictures: call readable_log(trainer) before train(), and they are kept.")
    parted = [check["step"] for check in training.checks if check["figures"].get("parted")]
    if parted:
        warnings.append(f"The reward and {training.second} have parted, as the monitor says since step {parted[0]}.")
    plots = {title: partial(curve, lines) for title, lines in _plots(training).items() if lines}
    steps = training.log.index
    notes = [f"{len(steps):,} logs, of steps {steps.min():,} to {steps.max():,}."]
    heading = f"Training in {training.folder.name}"
    return Report("training", heading, command, {}, [], notes, [("Over the steps", plots)], galleries, warnings)


def _states(folder: Path) -> list[Path]:
    """Files of the trainer's state, that of the folder and that of its newest checkpoint, as far as they are there."""
    checkpoints = sorted(folder.glob(f"checkpoint-*/{STATE}"), key=lambda file: file.stat().st_mtime)
    return [file for file in (folder / STATE, *checkpoints[-1:]) if file.is_file()]


def _completions(folder: Path) -> dict[int, Path]:
    files = sorted(folder.glob("completions/completions_*.parquet"))
    return {int(file.stem.removeprefix("completions_")): file for file in files}


def _rows(file: Path) -> list[dict[str, Any]]:
    """The rows of a file that can be read: a kill may have cut the last one."""
    return [row for row in open_source(file).records() if not isinstance(row, BadRow)]


def _three(steps: Sequence[int]) -> list[int]:
    """The first, the middle and the last of some steps, each once."""
    chosen = [steps[0], steps[len(steps) // 2], steps[-1]] if steps else []
    return list(dict.fromkeys(chosen))


def _plots(training: Training) -> dict[str, Lines]:
    """{title: lines over the steps}, without lines where nothing was logged."""
    log, rewards = training.log, training.rewards()
    plots = {"Reward": _lines(log, {"training": "reward", "evaluation": "eval_reward"})}
    if len(rewards) > 1:
        plots["Each reward"] = _lines(log, {name: f"rewards/{name}/mean" for name in rewards})
    for name in rewards:
        columns = {column.removeprefix(f"{name}/"): column for column in log if column.startswith(f"{name}/")}
        aspects = {aspect: column for aspect, column in columns.items() if aspect not in _SHARES}
        if len(aspects) > 1:  # the only aspect says what the reward says
            plots[f"Aspects of {name}"] = _lines(log, aspects)
    plots["Tokens of a caption"] = _lines(log, {name: f"completions/{name}_length" for name in ("mean", "min", "max")})
    plots["Entropy"] = _lines(log, {"entropy": "entropy"})
    plots["Share of captions without a score"] = _lines(log, {name: f"{name}/unscored" for name in rewards})
    for label, column in (("the reward", "reward"), (training.second, "second")):
        means = {}
        for check in training.checks:
            means[check["step"]] = pd.Series([row[column] for row in check["rows"].values()], dtype=float).mean()
        plots[f"Monitor: {label}"] = _lines(pd.DataFrame({column: means}), {"mean of the held-out images": column})
    return plots


def _lines(log: pd.DataFrame, columns: Mapping[str, str]) -> Lines:
    """{label: points} of {label: column}, without columns that have no value."""
    lines = {}
    for label, column in columns.items():
        if column in log and log[column].notna().any():
            lines[label] = list(log[column].dropna().astype(float).items())
    return lines


def _captions(training: Training, step: int) -> list[Picture]:
    """Of each picture of a step the captions of largest and smallest advantage; of all rows if none has a picture."""
    frame = pd.DataFrame(_rows(training.completions[step])).sort_values("advantage", ascending=False)
    names = frame["picture_file"].dropna().unique() if "picture_file" in frame else ()
    groups = {name: frame[frame["picture_file"] == name] for name in names}
    pictures = []
    for name, rows in (groups or {None: frame}).items():
        ends = rows.iloc[[0, -1]].to_dict("records")
        texts = [_sentence(row, training.rewards(), completion_text(row["completion"])) for row in ends]
        text = "\n\n".join(dict.fromkeys(texts))
        choice = f"best and worst of {len(rows)}" if len(rows) > len(ends) else ""
        pictures.append(read_picture(name, text, choice, root=training.folder))
    return pictures


def _held_out(training: Training) -> list[Picture]:
    """Captions of the first, the middle and the last check, of the images whose second measure changed most."""
    checks = {check["step"]: check["rows"] for check in training.checks}
    first, last = [pd.DataFrame(checks[step]).T["second"].astype(float) for step in (min(checks), max(checks))]
    changes = (last - first).abs().sort_values(ascending=False, kind="stable")
    pictures = []
    for image in changes.index[:_IMAGES]:
        texts = []
        for step in _three([*checks]):
            if image in checks[step]:
                row = checks[step][image]
                texts.append(f"step {step}, {_sentence(row, ('reward', 'second'), row['caption'])}")
        file = f"pictures/{image.partition(' ')[0]}.jpg"
        pictures.append(read_picture(file, "\n\n".join(texts), root=training.folder))
    return pictures


def _sentence(row: Mapping[str, Any], names: Sequence[str], caption: str) -> str:
    """A caption behind its figures of these names, as far as it has them."""
    figures = [f"{name} {row[name]:.3f}" for name in names if name in row and not pd.isna(row[name])]
    return f"{', '.join(figures) or 'no score'}: {caption.strip()}"
