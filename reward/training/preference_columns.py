"""Preferences between two captions of an image, from columns of preference data or of battles, as pairs to train on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from reward.data.chats import completion_text
from reward.errors import DataError, InvalidSampleError
from reward.metaeval.arena.battles import EQUAL
from reward.training.splits import Split

PREFERENCE = "preference"  # the category of such pairs
_CHOICE: tuple[str, ...] = ("chosen", "rejected")
_BATTLE: tuple[str, ...] = ("source1", "source2", "caption1", "caption2", "winner")


def with_preferences(split: Split) -> Split:
    """The split with columns `caption`, `incorrect` and `category`, if it holds preferences; else as it is.

    A split that has `caption` or `correct` already holds pairs, whatever other columns it has. Forms of preferences:

    - `chosen` and `rejected`: texts, or messages of which the assistant's is the caption, as `capreward pairs` writes
      them.
    - `caption1`, `caption2` of `source1`, `source2`, and `winner`: battles, see `reward.metaeval.arena`. A tie, or a
      battle without a winner, makes no pair.

    Raises:
        DataError: a cell holds no caption, or a winner is no source; the message names the row.
    """
    from datasets import Dataset

    columns = split.rows.column_names
    if "caption" in columns or "correct" in columns:
        return split
    if "chosen" in columns and "rejected" in columns:
        names, read = _CHOICE, _chosen_and_rejected
    elif all(name in columns for name in _BATTLE):
        names, read = _BATTLE, _winner_and_loser
    else:
        return split
    better: list[str] = []
    worse: list[str | None] = []
    # Only these columns, so that no image is decoded: the split has its images beside its rows.
    for number, row in enumerate(split.rows.select_columns(list(names))):
        try:
            caption, worse_caption = read(row)
        except InvalidSampleError as error:
            raise DataError(f"split {split.name!r}, row {number}: {error}") from error
        better.append(caption)
        worse.append(worse_caption)
    pairs = {"caption": better, "incorrect": worse, "category": [PREFERENCE] * len(better)}
    return replace(split, rows=Dataset.from_dict(pairs))


def _chosen_and_rejected(row: Mapping[str, Any]) -> tuple[str, str | None]:
    """The better and the worse caption of a row."""
    return completion_text(row["chosen"]), completion_text(row["rejected"])


def _winner_and_loser(row: Mapping[str, Any]) -> tuple[str, str | None]:
    """The better and the worse caption of a battle; None for the worse one makes no pair."""
    winner = row["winner"]
    if winner == row["source1"]:
        return row["caption1"], row["caption2"]
    if winner == row["source2"]:
        return row["caption2"], row["caption1"]
    if winner in (None, EQUAL):
        return row["caption1"], None
    raise InvalidSampleError(f"winner must be {row['source1']!r}, {row['source2']!r} or {EQUAL!r}, got {winner!r}")
