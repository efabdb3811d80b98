"""Scores that authors published beside the data: text files of blocks, as those of FLEUR are."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

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
    found = {key: block for file in files for key, block in _blocks(file, name)}
    if not found:
        raise DataError(f"no line '{name} : NUMBER' below a caption in {', '.join(map(str, files))}")
    scores, labels = np.full(benchmark.shape, np.nan), np.full(len(benchmark.rows), np.nan)
    for place, row in enumerate(benchmark.rows.itertuples()):
        given, label = found.get(_key(row.image_id, row.captions), (None, None))
        if given is not None:
            scores[place], labels[place] = given, np.nan if label is None else label
    if np.isnan(scores).all():
        return benchmark
    rows = benchmark.rows
    if "label" in rows and not np.isnan(labels).all():
        labels = np.where(np.isnan(labels), rows["label"], labels)
        if changed := int((labels != rows["label"]).sum()):
            what = f"{changed} of {len(rows)} labels differ in the files of {name!r}, and are taken from there"
            warnings.warn(f"{benchmark.spec.name}: {what}", stacklevel=2)
        rows = rows.assign(label=labels)
    return replace(benchmark, rows=rows, columns={**benchmark.columns, name: scores})


def _key(image: str, captions: Sequence[str]) -> tuple[str, ...]:
    return (Path(image).stem, *(" ".join(caption.split()) for caption in captions))


def _blocks(file: Path, name: str) -> Iterator[tuple[tuple[str, ...], tuple[list[float], float | None]]]:
    """What a block is of, and its scores and label; blocks that lack a score are left out."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {file}: {error}") from error
    block: dict[str, Any] = {}
    for line in [*lines, "image file : "]:
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        field, value = match.groups()
        if field == "image file":
            if block and block["captions"] and len(block["scores"]) == len(block["captions"]):
                yield _key(block["image"], block["captions"]), (block["scores"], block["label"])
            block = {"image": value, "captions": [], "scores": [], "label": None}
        elif field == "caption" and block:
            block["captions"].append(value)
        elif field in (name, "label") and block:
            try:
                number = float(value)
            except ValueError:
                raise DataError(f"{file}: {line!r} holds no number") from None
            block |= {"label": number} if field == "label" else {"scores": [*block["scores"], number]}
