"""Which metric made the scores of a file: read from the summary that `capreward score` leaves beside it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reward.errors import DataError
from reward.metaeval.benchmarks.items import Benchmark
from reward.registry import MetricSource
from reward.scoring.writers import output_facts


@dataclass(frozen=True)
class ScoreRecord:
    """What made a column of scores.

    Args:
        column: its name.
        label: the metric with its checkpoint, or several metrics joined by "+".
        checkpoint: of the metric as it was named; None for a scorer object, and of several metrics.
        facts: what the scores depend on: the metric, weights and code, options, weights of aspects or metrics.
    """

    column: str
    label: str
    checkpoint: str | None
    facts: Any


def score_records(data: str | os.PathLike[str]) -> dict[str, ScoreRecord]:
    """{"reward" or the name of a metric: its column} of a scored file; empty if no summary tells, or it was changed."""
    path = Path(data)
    try:
        summary = json.loads(path.with_name(path.name + ".summary.json").read_text(encoding="utf-8"))
        # Scores of a file that was edited since may be of other captions.
        if summary["output"] != output_facts(path):
            return {}
        return _records_of_run(summary["run"], summary["summary"]["checkpoints"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # absent, damaged, or another tool's file
        return {}


def _records_of_run(run: Mapping[str, Any], checkpoints: Mapping[str, str | None]) -> dict[str, ScoreRecord]:
    """The records of what a run depended on, and of {metric: its checkpoint as it was given}."""
    prefix, options, weights = run["prefix"], run["options"], run["weights"] or {}
    records = {}
    for name, checkpoint in checkpoints.items():
        # One metric has the column `reward`; of several each has its own, and `reward` is of all that are weighed.
        column, source, aspect_weights = f"{prefix}reward", run["source"], weights
        if len(checkpoints) > 1:
            column, source = f"{prefix}{name}_reward", run["source"][name]
            start = f"{name}_"  # of the weights of its aspects
            aspect_weights = {key.removeprefix(start): weights[key] for key in weights if key.startswith(start)}
        label = MetricSource(name, checkpoint or "embedded").label
        records[name] = ScoreRecord(column, label, checkpoint, [name, source, options, aspect_weights])
    if len(checkpoints) == 1:
        records["reward"] = records[run["metric"]]
    elif weights:
        label = "+".join(record.label for record in records.values())
        records["reward"] = ScoreRecord(f"{prefix}reward", label, None, [run["source"], options, weights])
    return records


def columns_to_compare(
    metric: MetricSource, captioners: Mapping[str, Benchmark], records: Mapping[str, Mapping[str, ScoreRecord]]
) -> tuple[list[str], str] | None:
    """The column of each captioner that holds the scores of a metric, and what made them; None if they are to be made.

    Args:
        metric: the column `reward`, another column, or a metric. The scores of a metric are taken where it has scored
            all files, with the checkpoint that is named if one is.
        captioners: {name: captions with their columns of scores}.
        records: {name: what made them}, from `score_records`.

    Raises:
        DataError: a captioner has no such column, or the scores are by different metrics or checkpoints.
    """
    columns: list[str] = []
    made_by: dict[str, ScoreRecord] = {}  # of the files of which it is known
    unknown: list[str] = []
    for name, captioner in captioners.items():
        records_of_one = records.get(name, {})
        record = records_of_one.get(metric.name)
        column = metric.name if record is None else record.column
        if metric.is_column:
            for other in records_of_one.values():
                if other.column == column:
                    record = other
            if column not in captioner.columns:
                way_out = "give --metric"
                if records_of_one:
                    way_out = f"choose one of {', '.join(records_of_one)} by --metric"
                raise DataError(f"{name} has no column {column} of scores: {way_out}")
        elif record is None or metric.options or metric.source not in ("embedded", record.checkpoint):
            return None
        if column not in captioner.columns:  # not one row has a score
            return None
        columns.append(column)
        if record is None:
            unknown.append(name)
        else:
            made_by[name] = record
    facts = [record.facts for record in made_by.values()]
    labels: dict[str, list[str]] = {}  # with the files that each is of
    for name, record in made_by.items():
        labels.setdefault(record.label, []).append(name)
    if any(other != facts[0] for other in facts):
        if len(labels) > 1:
            by = " and ".join(f"by {label} in {', '.join(names)}" for label, names in labels.items())
        elif metric.is_column:
            by = f"by {next(iter(labels))} in all, with different weights, options or code"
        else:
            return None  # scored anew, they are the same for all
        raise DataError(f"the scores are {by}, and cannot be compared: --metric NAME=CHECKPOINT scores all anew")
    if unknown:
        return columns, f"nothing beside {' and '.join(unknown)} says which metric made these scores"
    return columns, f"scores as `score` wrote them, by {next(iter(labels))}"
