"""MMHE: texts of four tasks rated for five criteria, and the best of three texts as pairs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reward.data.samples import is_blank
from reward.errors import DataError

CRITERIA = ("correctness", "completeness", "clarity", "fluency", "conciseness")


def check(items: Iterator[dict[str, Any]], part: str) -> Iterator[dict[str, Any]]:
    """Answers have their questions, and ratings from 1 to 5 are for some of the five criteria, three raters each.

    The paper gives Kendall's tau for each criterion without saying which; ours is tau-c over single judgments.
    """
    for place, item in enumerate(items, start=1):
        if unknown := [name for name in item.get("ratings", ()) if name not in CRITERIA]:
            raise DataError(f"text {place}: the criteria are {', '.join(CRITERIA)}, got {unknown[0]!r:.40}")
        if item["category"] in ("VQA", "VDU") and is_blank(item["question"] or ""):
            raise DataError(f"text {place}: a text of {item['category']} answers a question; add it as `question`")
        yield item
