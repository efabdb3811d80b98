"""Figures of a scored data set, read as a stream: distributions, errors, best and worst rows, and drift."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reward.errors import DataError
from reward.metaeval.bootstrap import Interval
from reward.samples import find_column
from reward.scoring.filtering import hashes_of, numbers_of
from reward.scoring.readers import Source, open_source

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["WORDS", "Drift", "ScoredSet", "drift", "mean_of", "population_stability_index", "read_scored"]

SAMPLE = 200_000  # rows of which the values are held; of more, whole images are sampled evenly
WORDS = "words a caption"
KINDS = 1000  # kinds of errors that are told apart
_VARIABLE = re.compile(r"'[^']*'|\"[^\"]*\"|\S*[/\\]\S*|[\d.,]*\d")  # what differs between errors of a kind


@dataclass
class ScoredSet:
    """What a report says of a scored data set.

    Args:
        name: of the file or folder.
        rows, unscored: rows in all, and without the main score.
        by: column of the main score.
        values: {column: (M,) float64} of up to `SAMPLE` rows, NaN for null: scores, and WORDS if there are captions.
        images: a number for the image of each of these rows, (M,) uint64; a row without one has its own.
        groups: the value of the column asked for of each of these rows, as text; empty without one.
        errors: {kind: (rows, number of the first from 1, its message)}.
        best, worst: rows with the highest and lowest main score, best and worst first: caption, image, score, row.
        root: where relative paths of images start.
    """

    name: str
    by: str
    root: Path
    rows: int = 0
    unscored: int = 0
    values: dict[str, np.ndarray] = field(default_factory=dict)
    images: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint64))
    groups: list[str] = field(default_factory=list)
    errors: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    best: list[dict[str, Any]] = field(default_factory=list)
    worst: list[dict[str, Any]] = field(default_factory=list)

    @property
    def sampled(self) -> int:
        """How many rows the distributions are of."""
        return len(self.images)


def read_scored(
    data: str | os.PathLike[str],
    *,
    by: str = "reward",
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
        data: what `capreward score` wrote, or a folder of Parquet files.
        by: column of the main score.
        per: column of groups, such as the source of a row.
        candidate_column, image_column: None finds them; see `score_dataset`.
        split: of a data set with several.
        image_root: where relative image paths start; None is the folder of the data.
        examples: how many of the best and of the worst rows to keep.
        sample: rows whose values are held at most. Counts, errors, best and worst are of all rows.

    Raises:
        DataError: the data cannot be read, lack a column, or hold no score there.
    """
    source = open_source(data, split=split)
    for name, option in ((by, "--by"), (per, "--per")):
        if name is not None:
            find_column("score", source.columns, name, option=option)
    caption = find_column("candidate", source.columns, candidate_column, option="--candidate-column")
    image = find_column("image", source.columns, image_column, option="--image-column")
    errors = (by.removesuffix("reward") + "error", "error")
    error = next((name for name in errors if name in source.columns), None)
    found = ScoredSet(source.name, by, Path(source.folder if image_root is None else image_root))
    names = _score_columns(source, by)
    wanted = [*names, *(name for name in (caption, image, per, error) if name)]
    chunks: list[dict[str, np.ndarray]] = []
    random = np.random.default_rng(0)
    for table in source.tables(list(dict.fromkeys(wanted))):
        chunk = {name: numbers_of(table, name) for name in names}
        if caption is not None:
            chunk[WORDS] = _words(table.column(caption))
        keys, missing = hashes_of(table.column(image)) if image else (np.empty(table.num_rows, np.uint64), True)
        chunk["image"] = np.where(missing, random.integers(2**64, size=table.num_rows, dtype=np.uint64), keys)
        if per is not None:
            texts = ["(none)" if value is None else str(value) for value in table.column(per).to_pylist()]
            chunk["group"] = np.array(texts, dtype=object)
        _add_rows(found, table, chunk[by], caption, image, error, examples)
        chunks.append(chunk)
        if sum(len(each["image"]) for each in chunks) > 2 * sample:
            chunks = [_even_sample(chunks, sample)]
    kept = _even_sample(chunks, sample)
    if found.unscored == found.rows:
        reason = next(iter(found.errors.values()))[2] if found.errors else "the column is empty"
        raise DataError(f"no row of {source.name} has a score in {by!r}, so there is nothing to report: {reason}")
    found.images, found.groups = kept.pop("image"), kept.pop("group", np.empty(0)).tolist()
    found.values = kept
    return found


def _score_columns(source: Source, by: str) -> list[str]:
    """The main score first, and all other columns of floating-point numbers."""
    import pyarrow as pa

    schema = next(source.tables()).schema
    return [by, *(one.name for one in schema if pa.types.is_floating(one.type) and one.name != by)]


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


def _add_rows(
    found: ScoredSet,
    table: pa.Table,
    scores: np.ndarray,
    caption: str | None,
    image: str | None,
    error: str | None,
    examples: int,
) -> None:
    """Counts errors, and keeps the best and the worst of the rows so far and these."""
    if error is not None:
        for number, message in enumerate(table.column(error).to_pylist(), start=found.rows + 1):
            if message is not None:
                kind = _VARIABLE.sub("…", str(message))
                kind = kind if kind in found.errors or len(found.errors) < KINDS else "other errors"
                count, *first = found.errors.get(kind, (0, number, str(message)))
                found.errors[kind] = (count + 1, *first)  # type: ignore[assignment]
    there = np.flatnonzero(np.isfinite(scores))
    order = there[np.argsort(-scores[there], kind="stable")]
    for name, places, sign in (("best", order[:examples], -1), ("worst", order[::-1][:examples], 1)):
        rows = getattr(found, name)
        for place in places.tolist():
            row = {"caption": caption and table.column(caption)[place].as_py(), "score": float(scores[place])}
            rows.append({**row, "image": image and table.column(image)[place].as_py(), "row": found.rows + place + 1})
        rows.sort(key=lambda row: (sign * row["score"], row["row"]))
        del rows[examples:]
    found.rows += table.num_rows
    found.unscored += table.num_rows - len(there)


def mean_of(values: np.ndarray, clusters: np.ndarray) -> Interval:
    """Mean with its 95 % interval; values of one cluster, such as captions of one image, are not independent.

    The interval is normal, by the variance of the clusters' sums. NaN is left out.

    Example:
        >>> str(mean_of(np.array([0.2, 0.2, 0.6, 0.6]), np.array([1, 1, 2, 2])))
        '0.400 [0.008, 0.792]'
    """
    return _difference(values, clusters, values[:0], clusters[:0])


def _difference(first: np.ndarray, of_first: np.ndarray, second: np.ndarray, of_second: np.ndarray) -> Interval:
    """Mean of the first minus mean of the second; clusters in both pair them."""
    value, influences, clusters = 0.0, [], []
    for sign, values, keys in ((1, first, of_first), (-1, second, of_second)):
        there = np.isfinite(values)
        if there.any():
            mean = values[there].mean()
            value += sign * mean
            influences.append(sign * (values[there] - mean) / there.sum())
            clusters.append(keys[there])
    if not influences:
        return Interval(np.nan, np.nan, np.nan)
    _, places = np.unique(np.concatenate(clusters), return_inverse=True)
    sums = np.bincount(places, np.concatenate(influences))
    half = 1.96 * (len(sums) / (len(sums) - 1) * (sums**2).sum()) ** 0.5 if len(sums) > 1 else np.nan
    return Interval(float(value), float(value - half), float(value + half))


@dataclass(frozen=True)
class Drift:
    """How far a column differs between two sets.

    Args:
        difference: mean minus the earlier set's mean, paired by images that are in both, with its 95 % interval.
        psi: population stability index over tenths of the earlier set; below 0.1 is usually called stable, above 0.25
            a large shift.
        ks: Kolmogorov-Smirnov statistic: largest difference of the cumulative shares, 0 to 1.
    """

    difference: Interval
    psi: float
    ks: float


def drift(now: ScoredSet, before: ScoredSet) -> dict[str, Drift]:
    """{column: drift} of the columns that both sets have.

    Raises:
        DataError: they share no column.
    """
    from scipy.stats import ks_2samp

    shared = [name for name in now.values if name in before.values]
    if not set(shared) - {WORDS}:
        raise DataError(f"{now.name} and {before.name} share no column of scores: {', '.join(before.values)}")
    found = {}
    for name in shared:
        new, old = (one.values[name][np.isfinite(one.values[name])] for one in (now, before))
        if len(new) and len(old):
            difference = _difference(now.values[name], now.images, before.values[name], before.images)
            statistic = float(ks_2samp(new, old, method="asymp").statistic)
            found[name] = Drift(difference, population_stability_index(old, new), statistic)
    return found


def population_stability_index(expected: np.ndarray, actual: np.ndarray, *, bins: int = 10) -> float:
    """Sum of (q - p) ln(q / p) over the quantile bins of the expected values; an empty bin counts as half a value.

    Args:
        expected: values (N,) that the bins are made of, finite.
        actual: values (M,), finite.
        bins: how many, fewer where values are equal.

    Example:
        >>> round(population_stability_index(np.arange(100.0), np.arange(100.0) + 20), 2)
        0.79
    """
    edges = np.unique(np.quantile(expected, np.arange(1, bins) / bins))
    shares = []
    for values in (expected, actual):
        counts = np.bincount(np.searchsorted(edges, values, side="left"), minlength=len(edges) + 1)
        shares.append(np.maximum(counts, 0.5) / len(values))
    return float(((shares[1] - shares[0]) * np.log(shares[1] / shares[0])).sum())
