"""A scored data set, read as a stream: a sample of its scores, errors by kind, best and worst captions."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reward.errors import DataError
from reward.metaeval.scored_captions import ScoredCaptions
from reward.scoring.columns import image_identity
from reward.scoring.filtering import hashes_of, numbers_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["WORDS", "ScoredSet", "read_scored"]

SAMPLE = 200_000  # captions of which the values are held; of more, whole images are sampled evenly
WORDS = "words a caption"
KINDS = 1000  # kinds of errors that are told apart
_VARIABLE = re.compile(r"'[^']*'|\"[^\"]*\"|\S*[/\\]\S*|[\d.,]*\d")  # what differs between errors of a kind


@dataclass
class ScoredSet:
    """What a report says of a scored data set. A caption is a row, or a candidate in the list of a row.

    Args:
        data: the file and its columns.
        root: where relative paths of images start.
        rows, captions, unscored: rows in all, captions in them, and captions without the main score.
        values: {column: (M,) float64} of up to `SAMPLE` captions, NaN for null: scores, and WORDS of the captions.
        equal: {column: the one before it that has the same values}; it is not among the values.
        images: a number for the image (`ScoredCaptions.cluster`) of each of these captions, (M,) uint64; rows without
            one have their own.
        pools: a number for the captions that each was ranked with, (M,) uint64; empty if nothing was ranked.
        places: number of each of these captions in the set, from 0, (M,) int64.
        groups: the value of the column asked for of each of these captions, as text; empty without one.
        errors: {kind: (rows, number of the first from 1, its message)}.
        unread: why pictures of captions to be shown could not be read.
        best, worst: different captions with the highest and lowest main score, best and worst first: caption, image,
            score, row, and count of rows that are the same.
    """

    data: ScoredCaptions
    root: Path
    rows: int = 0
    captions: int = 0
    unscored: int = 0
    values: dict[str, np.ndarray] = field(default_factory=dict)
    equal: dict[str, str] = field(default_factory=dict)
    images: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint64))
    pools: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint64))
    places: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    groups: list[str] = field(default_factory=list)
    errors: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    best: list[dict[str, Any]] = field(default_factory=list)
    worst: list[dict[str, Any]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Of the file or folder."""
        return self.data.source.name

    @property
    def by(self) -> str:
        """Column of the main score."""
        return self.data.by

    @property
    def sampled(self) -> int:
        """How many captions the distributions are of."""
        return len(self.images)


def read_scored(
    data: str | os.PathLike[str],
    *,
    by: str | None = None,
    per: str | None = None,
    candidate_column: str | None = None,
    image_column: str | None = None,
    split: str | None = None,
    image_root: str | os.PathLike[str] | None = None,
    examples: int = 6,
    sample: int = SAMPLE,
) -> ScoredSet:
    """Reads a scored data set once, in bounded memory.

    Args:
        data: what `capreward score`, `rerank` or `caption` wrote, or a folder of Parquet files.
        by: column of the main score; None is `reward`, `rewards`, or the first that ends so.
        per: column of groups, such as the source of a row.
        candidate_column, image_column: None takes those that were scored, as the summary beside the data says, else
            finds them; see `score_dataset`.
        split: of a data set with several.
        image_root: where relative image paths start; None is where they started when they were scored, else the folder
            of the data.
        examples: how many of the best and of the worst captions to keep.
        sample: captions whose values are held at most. Counts, errors, best and worst are of all.

    Raises:
        DataError: the data cannot be read, lack a column, or hold no score there.
    """
    columns = {"candidate_column": candidate_column, "image_column": image_column}
    file = ScoredCaptions(data, by=by, per=per, split=split, **columns)
    found = ScoredSet(file, Path(image_root or file.origin.image_root or file.source.folder))
    chunks: list[dict[str, np.ndarray]] = []
    random = np.random.default_rng(zlib.crc32(file.source.fingerprint().encode()))
    for table, rows, whole in file.tables():
        chunk = {name: numbers_of(table, name) for name in file.scores}
        if file.caption is not None:
            chunk[WORDS] = _words(table.column(file.caption))
        own = random.integers(2**64, size=whole.num_rows, dtype=np.uint64)[rows - found.rows]
        keys, missing = hashes_of(table.column(file.cluster)) if file.cluster else (own, False)
        chunk["image"] = np.where(missing, own, keys)
        if file.lists:
            chunk["pool"] = rows.astype(np.uint64)
        elif file.pool is not None:
            chunk["pool"] = hashes_of(table.column(file.pool))[0]
        if per is not None:
            texts = ["(none)" if value is None else str(value) for value in table.column(per).to_pylist()]
            chunk["group"] = np.array(texts, dtype=object)
        chunk["place"] = np.arange(found.captions, found.captions + len(rows))
        _add_errors(found, whole)
        if examples:
            _add_examples(found, table, rows, chunk[file.by], examples)
        found.rows += whole.num_rows
        found.captions += len(rows)
        found.unscored += int(np.isnan(chunk[file.by]).sum())
        chunks.append(chunk)
        if sum(len(each["image"]) for each in chunks) > 2 * sample:
            chunks = [_even_sample(chunks, sample)]
    kept = _even_sample(chunks, sample)
    if found.unscored == found.captions:
        reason = next(iter(found.errors.values()))[2] if found.errors else "the column is empty"
        raise DataError(f"no row of {found.name} has a score in {found.by!r}, so there is nothing to report: {reason}")
    found.images, found.places = kept.pop("image"), kept.pop("place")
    found.pools, found.groups = kept.pop("pool", found.pools), kept.pop("group", np.empty(0)).tolist()
    for name, values in kept.items():
        same = [one for one, known in found.values.items() if np.array_equal(known, values, equal_nan=True)]
        if same and name != WORDS:
            found.equal[name] = same[0]
        else:
            found.values[name] = values
    _part_examples(found, examples)
    return found


def _words(column: pa.ChunkedArray) -> np.ndarray:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return np.full(len(column), np.nan)
    column = pc.utf8_trim_whitespace(column)
    counts = pc.if_else(pc.equal(column, ""), 0, pc.list_value_length(pc.utf8_split_whitespace(column)))
    return np.asarray(counts.cast(pa.float64()).to_numpy())


def _even_sample(chunks: Sequence[Mapping[str, np.ndarray]], most: int) -> dict[str, np.ndarray]:
    """The rows of the images with the smallest numbers: the same images in two sets, and each with all its rows."""
    joined = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}
    if len(joined["image"]) <= most:
        return joined
    places = np.sort(np.argsort(joined["image"], kind="stable")[:most])
    return {name: values[places] for name, values in joined.items()}


def _add_errors(found: ScoredSet, table: pa.Table) -> None:
    if found.data.error is None:
        return
    for number, message in enumerate(table.column(found.data.error).to_pylist(), start=found.rows + 1):
        if message is not None:
            kind = _VARIABLE.sub("…", str(message))
            kind = kind if kind in found.errors or len(found.errors) < KINDS else "other errors"
            count, *first = found.errors.get(kind, (0, number, str(message)))
            found.errors[kind] = (count + 1, *first)  # type: ignore[assignment]


def _add_examples(found: ScoredSet, table: pa.Table, rows: np.ndarray, scores: np.ndarray, most: int) -> None:
    """Keeps the best and the worst of the different captions so far and these, with how often each occurs.

    One that is not kept now is worse than `most` others, and cannot come back: the counts are of all rows.
    """
    there = np.flatnonzero(np.isfinite(scores))
    order = there[np.argsort(-scores[there], kind="stable")]
    for kept, places, sign in ((found.best, order, -1), (found.worst, order[::-1], 1)):
        known = {_identity(row): row for row in kept}
        limit = sign * kept[-1]["score"] if len(kept) == most else np.inf
        new = 0
        for place in places.tolist():
            score = float(scores[place])
            if sign * score > limit:
                break
            row = {**found.data.row(table, rows, place), "score": score, "count": 1}
            same = known.get(_identity(row))
            if same is not None:
                same["count"] += 1
                same["row"] = min(same["row"], row["row"])
            elif new < most:
                known[_identity(row)] = row
                new += 1
                if new == most:
                    limit = min(limit, sign * score)
        kept[:] = sorted(known.values(), key=lambda row: (sign * row["score"], row["row"]))[:most]


def _identity(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Equal for rows that look alike on a page."""
    if row["caption"] is None and row["image"] is None:
        return (row["row"],)
    return row["score"], str(row["caption"]), image_identity(row["image"])


def _part_examples(found: ScoredSet, most: int) -> None:
    """No caption is among the best and the worst; where all scores are equal, none is among the worst."""
    both = {_identity(row): row for row in (*found.best, *found.worst)}
    if len(both) < len(found.best) + len(found.worst):
        rows = sorted(both.values(), key=lambda row: (-row["score"], row["row"]))
        half = (len(rows) + 1) // 2
        found.best, found.worst = rows[:half], rows[half:][::-1]
    if found.best and found.worst and found.best[0]["score"] == found.worst[0]["score"]:
        found.worst = []
