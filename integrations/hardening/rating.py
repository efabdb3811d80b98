"""Ratings of chosen captions: files for people, an oracle or another metric as the rater, and rows to train on."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reward.errors import ConfigError, DataError
from reward.metrics.base import MetricSpec
from reward.registry import metric_spec
from reward.scenes import Scene, rate_text
from reward.scoring.dataset import score_dataset
from reward.scoring.readers import BadRow, open_source
from reward.scoring.writers import json_line, write_text

__all__ = ["rate_by_metric", "rate_on_scenes", "rated_rows", "read_rows", "write_ratings", "write_rows"]

LOW, HIGH = 1.0, 5.0  # ratings, as people give them


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Writes JSON Lines, whole or not at all."""
    write_text(path, "".join(map(json_line, rows)))


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Reads JSON Lines.

    Raises:
        DataError: the file is missing or empty, or a line is no JSON object.
    """
    source = open_source(path)
    rows = list(source.rows(source.columns))
    for row in rows:
        if isinstance(row, BadRow):
            raise DataError(f"{path}: {row.message}")
    return rows  # type: ignore[return-value]  # without bad ones


def rate_on_scenes(rows: Iterable[Mapping[str, Any]], spec: MetricSpec) -> list[dict[str, Any]]:
    """Rows with the oracle's ratings of their `caption` as one of their `scene`; see `reward.scenes.rate_text`."""
    rated = []
    for row in rows:
        found = rate_text(row["caption"], Scene.from_json(row["scene"]))
        by_aspect = {spec.aliases.get(short, short): value for short, value in found.items()}
        mean = sum(found.values()) / len(found)
        rated.append({**row, **{aspect: by_aspect.get(aspect, mean) for aspect in spec.aspects}})
    return rated


def rate_by_metric(to_rate: Path, spec: MetricSpec, rater: str, **options: Any) -> list[dict[str, Any]]:
    """Rows of a file with the ratings of another metric, mapped from its range to 1 to 5; null where it has no score.

    An aspect that the rater has too is rated by it, others by the rater's reward.

    Args:
        to_rate: JSON Lines; the scores are saved beside it as `judged.jsonl`, and a killed run goes on there.
        spec: of the metric that is hardened.
        rater: name of the other metric.
        options: its `source` and further arguments of `reward.scoring.dataset.score_dataset`.

    Raises:
        ConfigError: the rater's scores have no lowest or highest value.
    """
    low, high = metric_spec(rater).range
    if not math.isfinite(high - low):
        raise ConfigError(
            f"the scores of {rater} lie in [{low:g}, {high:g}], so they are no ratings: take another rater"
        )
    judged = to_rate.with_name("judged.jsonl")
    score_dataset(to_rate, rater, judged, prefix="rater_", **options)
    rated = []
    for row in read_rows(judged):
        scores = {name.removeprefix("rater_"): row.pop(name) for name in list(row) if name.startswith("rater_")}
        values = {aspect: scores.get(aspect, scores["reward"]) for aspect in spec.aspects}
        mapped = {
            aspect: None if value is None else LOW + (HIGH - LOW) * (value - low) / (high - low)
            for aspect, value in values.items()
        }
        rated.append({**row, **mapped})
    return rated


def rated_rows(
    rows: Sequence[dict[str, Any]], asked: Sequence[Mapping[str, Any]], spec: MetricSpec, where: str
) -> tuple[list[dict[str, Any]], int]:
    """The rows that are rated in every aspect, and how many are not.

    Args:
        rows: with a number from 1 to 5, or null, under the name of each aspect.
        asked: the rows that were to be rated.
        spec: of the metric.
        where: what messages call the rows.

    Raises:
        DataError: a row was not asked for, a rating is no number from 1 to 5, or no row is rated.
    """
    known = {(row["image"], row["caption"]) for row in asked}
    rated = []
    for number, row in enumerate(rows, start=1):
        if (row.get("image"), row.get("caption")) not in known:
            raise DataError(f"{where}, row {number}: its image and caption are none of those that were to be rated")
        values = {aspect: row.get(aspect) for aspect in spec.aspects}
        for aspect, value in values.items():
            fits = isinstance(value, (int, float)) and not isinstance(value, bool) and LOW <= value <= HIGH
            if value is not None and not fits:
                raise DataError(f"{where}, row {number}: {aspect} must be a number from 1 to 5, or null, got {value!r}")
        if None not in values.values():
            rated.append(row)
    if not rated:
        raise DataError(f"{where}: no row has a rating of {', '.join(spec.aspects)}; fill in numbers from 1 to 5")
    return rated, len(known) - len(rated)


def write_ratings(folder: Path, rated: Mapping[Path, Sequence[Mapping[str, Any]]], spec: MetricSpec) -> dict[str, int]:
    """Writes rated captions as a data set for `capreward train`, in [0, 1], and gives {part: number of rows}.

    The captions of about a fifth of the images, the same in each round, become the part `val`, if there are five or
    more and their ratings differ.

    Args:
        folder: made if absent.
        rated: {folder that image paths start from: rows}.
        spec: of the metric.
    """
    folder.mkdir(parents=True, exist_ok=True)
    parts: dict[str, list[dict[str, Any]]] = {"train": [], "val": []}
    for root, rows in rated.items():
        for row in rows:
            held_out = int(hashlib.sha256(row["image"].encode()).hexdigest(), 16) % 5 == 0
            parts["val" if held_out else "train"].append(
                {
                    "image": os.path.relpath(root / row["image"], folder),
                    "cand": row["caption"],
                    "refs": row.get("references") or [],
                    **{aspect: (row[aspect] - LOW) / (HIGH - LOW) for aspect in spec.aspects},
                }
            )
    differ = any(len({row[aspect] for row in parts["val"]}) > 1 for aspect in spec.aspects)
    if len(parts["val"]) < 5 or not differ or not parts["train"]:
        parts = {"train": parts["train"] + parts["val"]}
    for part, rows in parts.items():
        write_rows(folder / f"{part}.jsonl", rows)
    return {part: len(rows) for part, rows in parts.items()}
