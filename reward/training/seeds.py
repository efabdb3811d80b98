"""`train_seeds`: the same training with several seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from reward.errors import ConfigError
from reward.training.config import TrainingConfig
from reward.training.loop import check_run, remove_empty, train
from reward.training.record import RECORD_FILE, read_record, write_record
from reward.training.run import TrainingResult, begin, finished, first_record

__all__ = ["train_seeds"]


def train_seeds(
    metric: str, data: Any, output: Path, config: TrainingConfig, seeds: Sequence[int], **options: Any
) -> list[TrainingResult]:
    """Trains a checkpoint with each seed, in `<output>/seed-<number>`. The record in `output` has the figures of all.

    Args:
        metric, data, config, options: see `reward.training.loop.train`. The option `resume` keeps what is finished.
        output: the folder of the folders.
        seeds: at least two, all different; with `resume` also new ones.

    Raises:
        ConfigError: other seeds; and whatever `train` raises.
    """
    if len(set(seeds)) < max(2, len(seeds)):
        raise ConfigError(f"seeds must be different numbers, at least two, got {', '.join(map(str, seeds))}")
    resume = bool(options.pop("resume", False))
    _, spec, shares, start = check_run(metric, data, config, options.get("init"))
    configs = [replace(config, seed=seed) for seed in seeds]
    record = first_record(spec, shares, config, start.get("init"))
    record["config"]["seed"] = "several"
    process = begin(output, record, resume=resume)
    if process.is_main_process and not resume:
        write_record(output, record)
    results = []
    for own in configs:
        folder = output / f"seed-{own.seed}"
        try:
            begun = read_record(folder) is not None
            results.append(finished(folder) or train(metric, data, folder, own, resume=begun, **options))
        finally:
            if process.is_main_process:
                remove_empty(folder)
                if not any(output.glob("seed-*")):  # a corrected command can use the folder
                    (output / RECORD_FILE).unlink()
    if process.is_main_process:
        each = {str(seed): result.figures for seed, result in zip(seeds, results, strict=True)}
        write_record(output, {**record, "command": options.get("command"), "seeds": each})
    return results
