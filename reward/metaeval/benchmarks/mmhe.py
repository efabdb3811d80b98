"""MMHE: texts of four tasks rated for five criteria, and the best of three texts as pairs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from reward.errors import DataError
from reward.metaeval.benchmarks.files import MissingFileError, take, take_category, take_texts
from reward.metaeval.benchmarks.forms import BenchmarkSpec, CaptionPair, RatedCaption
from reward.metaeval.benchmarks.jsonl import is_jsonl, read_lines, read_pairs, read_rated

__all__ = ["CRITERIA", "SPECS", "load_mmhe", "load_mmhe_pairs"]

CRITERIA = ("correctness", "completeness", "clarity", "fluency", "conciseness")
_ORIGIN = (
    "the authors of HarmonicEval (Ohi, Kaneko, Okazaki, Inoue), who announce it on stjohn2007.github.io/MMHE_project; "
    "the layout of their files is not known to us, so put them into this form"
)
_TASKS = "category is the task (REG, VQA, VDU or IC)"

SPECS = (
    BenchmarkSpec(
        name="mmhe",
        title="MMHE",
        form=RatedCaption,
        loader="reward.metaeval.benchmarks.mmhe:load_mmhe",
        statistic="tau-c",
        files=f"a .jsonl file with image, candidate, ratings {{criterion: one number a rater}} and category a line; "
        f"the criteria are {', '.join(CRITERIA)}; {_TASKS}",
        origin=_ORIGIN,
    ),
    BenchmarkSpec(
        name="mmhe-pairs",
        title="MMHE (pairs)",
        form=CaptionPair,
        loader="reward.metaeval.benchmarks.mmhe:load_mmhe_pairs",
        statistic="accuracy",
        files="a .jsonl file with image, candidates (three), best (the place of the best, 0 to 2, or a list with one "
        f"place a rater) and category a line, or one with image, captions (two), label and category; {_TASKS}",
        origin=_ORIGIN,
    ),
)


def load_mmhe(path: Path, part: str, images: Path | None) -> Iterator[RatedCaption]:
    """Reads texts with ratings from 1 to 5 for some of the five criteria, three raters each.

    The paper gives Kendall's tau for each criterion and does not say which; ours is tau-c over single judgments.

    Raises:
        DataError: no .jsonl file, or a rating of something else than the criteria.
    """
    if not is_jsonl(path):
        raise MissingFileError(f"{path} is no .jsonl file")
    for place, item in enumerate(read_rated(path, images), start=1):
        if unknown := [aspect for aspect in item.ratings if aspect not in CRITERIA]:
            raise DataError(f"{path}, text {place}: the criteria are {', '.join(CRITERIA)}, got {unknown[0]!r:.40}")
        yield item


def load_mmhe_pairs(path: Path, part: str, images: Path | None) -> Iterator[CaptionPair]:
    """Reads triplets and which of the three texts is best; each becomes two pairs, the best with each of the others.

    Where several raters chose, each one's choice becomes two pairs. Nothing is known of the two that are not best.

    Raises:
        DataError: no .jsonl file, or a line that is neither a triplet nor a pair.
    """
    if not is_jsonl(path):
        raise MissingFileError(f"{path} is no .jsonl file")
    lines = read_lines(path)
    first = next(lines, None)
    if first is None or "captions" in first[1]:
        yield from read_pairs(path, images)
        return
    for where, row in chain([first], lines):
        yield from _pairs_of(row, where, path, images)


def _pairs_of(row: dict[str, Any], where: str, path: Path, images: Path | None) -> Iterator[CaptionPair]:
    texts = take_texts(row, "candidates", where)
    if len(texts) != 3:
        raise DataError(f"{where}: candidates must be three texts, got {len(texts)} that are not empty")
    best = row.get("best")
    choices = best if isinstance(best, list) and best else [best]
    image = take(row, "image", str, where)
    for choice in choices:
        if type(choice) is not int or choice not in (0, 1, 2):
            raise DataError(f"{where}: best must be 0, 1 or 2, or a list of them, got {best!r:.60}")
        for other in range(3):
            if other != choice:
                low, high = sorted((choice, other))
                yield CaptionPair(
                    captions=(texts[low], texts[high]),
                    label=int(choice > other),
                    image=(images or path.parent) / image,
                    image_id=image,
                    category=take_category(row, where),
                )
