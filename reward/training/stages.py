"""Training in stages: each is a run of its own that starts from the checkpoint of the one before."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from reward.metrics.base import MetricSpec
from reward.training.config import TrainingConfig
from reward.training.record import RECORD_FILE, check_output, is_complete, read_record, write_record

if TYPE_CHECKING:
    from reward.training.loop import TrainingResult

__all__ = ["STAGES", "train_stages"]

STAGES = "stages"
_CARD = "README.md"


def train_stages(
    spec: MetricSpec,
    data: str | os.PathLike[str],
    output: Path,
    config: TrainingConfig,
    *,
    resume: bool,
    command: str | None,
) -> TrainingResult:
    """Trains the stages of a configuration one after the other; see `reward.training.loop.train`.

    Stage by stage a checkpoint is left in `<output>/stages/<name>`, with a card and a record of its own, which can be
    loaded, compared, or deleted. A run that was interrupted goes on in the stage it was in; since a stage always starts
    from what the last one wrote, that gives what an unbroken run gives. The last stage's checkpoint is `output` itself.

    Args:
        spec: facts of the metric.
        data, output, config, resume, command: see `reward.training.loop.train`.
    """
    from accelerate import PartialState

    from reward.training.card import make_staged_card
    from reward.training.loop import TrainingResult, run_once, use_cpu
    from reward.training.rows import load_rows

    process = PartialState(cpu=use_cpu())
    record = {"metric": spec.name, "data": str(data), "config": config.to_dict()}
    if process.is_main_process:
        check_output(output, record, resume=resume)
    process.wait_for_everyone()
    results: dict[str, TrainingResult] = {}
    for name in config.stages:
        found = _finished(output / STAGES / name)
        if found is not None:
            results[name] = found
        else:
            load_rows(spec, data, config.stage(name))  # what is wrong with its data shows now, not hours later

    def ready() -> None:
        if read_record(output) is None:
            write_record(output, record)

    start: Path | None = None
    for name in config.stages:
        folder = output / STAGES / name
        if name not in results:
            begun = read_record(folder) is not None
            try:
                results[name] = run_once(
                    spec, data, folder, config.stage(name), resume=begun, command=command, start=start, ready=ready
                )
            finally:
                if process.is_main_process:
                    _remove_empty(folder, output / STAGES)
        start = folder

    last = results[name]
    if process.is_main_process:
        for path in last.folder.iterdir():
            if path.name not in (RECORD_FILE, _CARD):
                shutil.copy2(path, output / path.name)
        stages = {name: read_record(output / STAGES / name) or {} for name in config.stages}
        (output / _CARD).write_text(make_staged_card(spec, {**record, "command": command, "stages": stages}))
        figures = {"figures": last.figures, "steps": last.steps, "best_step": last.best_step}
        write_record(output, {**record, "command": command, **figures, "stages": list(stages)})
    process.wait_for_everyone()
    return TrainingResult(output, last.figures, last.steps, last.best_step, results)


def _finished(folder: Path) -> TrainingResult | None:
    from reward.training.loop import TrainingResult

    found = read_record(folder)
    if found is None or not is_complete(folder):
        return None
    return TrainingResult(folder, found["figures"], found["steps"], found["best_step"])


def _remove_empty(*folders: Path) -> None:
    """Removes the folder of a stage that did not begin, so that the corrected command can use the output folder."""
    for folder in folders:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
