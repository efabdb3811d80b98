"""MMHE: texts of four tasks rated for five criteria, and the best of three texts as pairs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from reward.errors import DataError
from reward.metaeval.benchmarks.items import BenchmarkSpec, Item, PreferencePair, RatedCaption
from reward.metaeval.benchmarks.records import MissingFileError, is_jsonl, read_lines

__all__ = ["SPECS"]

CRITERIA = ("correctness", "completeness", "clarity", "fluency", "conciseness")
_ORIGIN = (
    "the authors of HarmonicEval (Ohi, Kaneko, Okazaki, Inoue), who announce it on stjohn2007.github.io/MMHE_project; "
    "the layout of their files is not known to us, so put them into this form"
)
_TASKS = "category is the task (REG, VQA, VDU or IC)"


def _check_criteria(items: Iterator[Item], path: Path | None, part: str) -> Iterator[Item]:
    """Ratings from 1 to 5 for some of the five criteria, three raters each.

    The paper gives Kendall's tau for each criterion without saying which; ours is tau-c over single judgments.
    """
    for place, item in enumerate(items, start=1):
        if isinstance(item, RatedCaption) and (unknown := [name for name in item.ratings if name not in CRITERIA]):
            raise DataError(f"{path}, text {place}: the criteria are {', '.join(CRITERIA)}, got {unknown[0]!r:.40}")
        yield item


def _load_triplets(path: Path, part: str, images: Path | None) -> Iterator[PreferencePair]:
    """Three texts and which of them is best: two pairs, the best with each of the others, for each rater's choice."""
    if not is_jsonl(path):
        raise MissingFileError(f"{path} is not a .jsonl file")
    for row in read_lines(path):
        texts = row.texts("candidates", 3)
        if not all(text.strip() for text in texts):
            raise row.error("candidates", "three texts, none of them blank")
        best, image = row.values.get("best"), row.text("image")
        for choice in best if isinstance(best, list) and best else [best]:
            if type(choice) is not int or choice not in (0, 1, 2):
                raise row.error("best", "0, 1 or 2, or a list of them")
            for other in sorted({0, 1, 2} - {choice}):
                low, high = sorted((choice, other))
                yield PreferencePair(
                    captions=(texts[low], texts[high]),
                    label=int(choice > other),
                    image=(images or path.parent) / image,
                    image_id=image,
                    category=row.category(),
                )


SPECS = (
    BenchmarkSpec(
        name="mmhe",
        title="MMHE",
        form=RatedCaption,
        statistic="tau-c",
        refine=_check_criteria,
        files=f"a .jsonl file with image, candidate, ratings {{criterion: one number per rater}} and category per "
        f"line; the criteria are {', '.join(CRITERIA)}; {_TASKS}",
        origin=_ORIGIN,
    ),
    BenchmarkSpec(
        name="mmhe-pairs",
        title="MMHE (pairs)",
        form=PreferencePair,
        statistic="accuracy",
        load=_load_triplets,
        files="a .jsonl file with image, candidates (three), best (the place of the best, 0 to 2, or a list with one "
        f"place per rater) and category per line, or one with image, captions (two), label and category; {_TASKS}",
        origin=_ORIGIN,
    ),
)
