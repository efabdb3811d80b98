"""Scores that authors published beside the data: text files of blocks, as those of FLEUR are."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from reward.errors import DataError
from reward.metaeval.benchmarks.items import Benchmark

_LINE = re.compile(r"(image file|caption|label|[a-z ]*score) : (.*)")


def add_scores(benchmark: Benchmark, name: str, files: Sequence[Path]) -> Benchmark:
    """The benchmark with a score column from files, for the items that they hold; the same one if they hold none.

    A block begins with a line `image file : PATH`. Below each `caption : TEXT` stand its scores, such as
    `our score : 0.7`. A block of two captions may have a line `label : 0` or `label : 1`, the place of the better one.
    It replaces the label of the data, and a warning tells how many change.

    Args:
        benchmark: rated captions or pairs.
        name: of the score, such as "our score".
        files: each is searched.

    Raises:
        DataError: unreadable, or no block has such a score.
    """
    blocks: dict[tuple[str, ...], tuple[list[float], float | None]] = {}
    for file in files:
        blocks.update(_read_blocks(file, name))
    if not blocks:
        raise DataError(f"no line '{name} : NUMBER' below a caption in {', '.join(map(str, files))}")
    scores, labels = np.full(benchmark.shape, np.nan), np.full(len(benchmark.rows), np.nan)
    for number, row in enumerate(benchmark.rows.itertuples()):
        block = blocks.get(_key(row.image_id, row.captions))
        if block is not None:
            scores[number], label = block
            labels[number] = np.nan if label is None else label
    if np.isnan(scores).all():
        return benchmark
    rows = benchmark.rows
    if "label" in rows and not np.isnan(labels).all():
        labels = np.where(np.isnan(labels), rows["label"], labels)
        changed = int((labels != rows["label"]).sum())
        if changed:
            message = f"{changed} of {len(rows)} labels differ in the files of {name!r}, and are taken from there"
            warnings.warn(f"{benchmark.spec.name}: {message}", stacklevel=2)
        rows = rows.assign(label=labels)
    return replace(benchmark, rows=rows, columns={**benchmark.columns, name: scores})


def _key(image: str, captions: Sequence[str]) -> tuple[str, ...]:
    return (Path(image).stem, *(" ".join(caption.split()) for caption in captions))


def _read_blocks(file: Path, name: str) -> Iterator[tuple[tuple[str, ...], tuple[list[float], float | None]]]:
    """What a block is of, and its scores and label; blocks that lack a score are left out."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {file}: {error}") from error
    image: str | None = None  # of the block; none before the first
    captions: list[str] = []
    scores: list[float] = []
    label: float | None = None
    for line in [*lines, "image file : "]:
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        field, value = match.groups()
        if field == "image file":
            if image is not None and captions and len(scores) == len(captions):
                yield _key(image, captions), (scores, label)
            image, captions, scores, label = value, [], [], None
        elif field == "caption" and image is not None:
            captions.append(value)
        elif field in (name, "label") and image is not None:
            try:
                number = float(value)
            except ValueError:
                raise DataError(f"{file}: {line!r} holds no number") from None
            if field == "label":
                label = number
            else:
                scores.append(number)
