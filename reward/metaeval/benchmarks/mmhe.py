"""MMHE: texts of four tasks rated for five criteria, and the best of three texts as pairs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reward.errors import DataError
from reward.metaeval.benchmarks.items import PAIRS, RATINGS, BenchmarkSpec
from reward.samples import is_blank

CRITERIA = ("correctness", "completeness", "clarity", "fluency", "conciseness")


def _check(items: Iterator[dict[str, Any]], part: str) -> Iterator[dict[str, Any]]:
    """Answers have their questions, and ratings from 1 to 5 are for some of the five criteria, three raters each.

    The paper gives Kendall's tau for each criterion without saying which; ours is tau-c over single judgments.
    """
    for place, item in enumerate(items, start=1):
        if unknown := [name for name in item.get("ratings", ()) if name not in CRITERIA]:
            raise DataError(f"text {place}: the criteria are {', '.join(CRITERIA)}, got {unknown[0]!r:.40}")
        if item["category"] in ("VQA", "VDU") and is_blank(item["question"] or ""):
            raise DataError(f"text {place}: a text of {item['category']} answers a question; add it as `question`")
        yield item


_SHARED: dict[str, Any] = {
    "refine": _check,
    "tasks": True,
    "origin": "the authors of HarmonicEval (Ohi, Kaneko, Okazaki, Inoue), who announce it on "
    "stjohn2007.github.io/MMHE_project; the layout of their files is not known to us, so put them into this form",
}
_TASKS = (
    "category is the task (REG, VQA, VDU or IC); VQA and VDU need question, and REG needs box, [x, y, width, height] "
    "in pixels, unless the images show it already"
)

SPECS = (
    BenchmarkSpec(
        name="mmhe",
        title="MMHE",
        form=RATINGS,
        statistic="tau-c",
        files=f"a .jsonl file with image, candidate, ratings {{criterion: one number per rater}} and category per "
        f"line; the criteria are {', '.join(CRITERIA)}; {_TASKS}",
        **_SHARED,
    ),
    BenchmarkSpec(
        name="mmhe-pairs",
        title="MMHE (pairs)",
        form=PAIRS,
        statistic="accuracy",
        files="a .jsonl file with image, candidate, item (the same for the three texts that compete), best (how "
        f"many people chose it) and category per line, or one with image, captions (two), label, category; {_TASKS}",
        **_SHARED,
    ),
)
