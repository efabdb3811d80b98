"""The order of rows of labels: KTO compares a caption with its neighbour's in the batch."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Any

__all__ = ["spread"]

logger = logging.getLogger(__name__)


def spread(rows: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The rows of each image in another order: True and False alternate, and neighbours are of different images.

    The image with most rows left comes next, so that none is left over at the end. Where it does not work out, labels
    cease to alternate first; neighbours of one image are counted in a warning.
    """
    left = [{label: [row for row in own if row["label"] is label][::-1] for label in (True, False)} for own in rows]
    most = [len(own) for own in rows]
    heaps = {label: [(-count, place) for place, count in enumerate(most)] for label in (True, False)}
    for heap in heaps.values():
        heapify(heap)
    order: list[dict[str, Any]] = []
    last: int | None = None

    def take(label: bool, but: int | None) -> int | None:
        heap, aside = heaps[label], []
        while heap:
            entry = heappop(heap)
            place = entry[1]
            if -entry[0] != most[place] or not left[place][label]:
                continue  # out of date
            aside.append(entry)
            if place != but:
                break
        for entry in aside:
            heappush(heap, entry)
        return aside[-1][1] if aside and aside[-1][1] != but else None

    label, alike = True, 0
    for _ in range(sum(most)):
        choices = [(label, last), (not label, last), (label, None), (not label, None)]
        label, but, place = next(
            (wanted, but, place) for wanted, but in choices if (place := take(wanted, but)) is not None
        )
        alike += but is None and last is not None
        order.append(left[place][label].pop())
        most[place] -= 1
        for heap in heaps.values():
            heappush(heap, (-most[place], place))
        label, last = not label, place
    if alike:
        logger.warning(
            "KTO compares a caption with its neighbour's, and %d of %d neighbours are of one image, because others "
            "have fewer rows: take fewer an image (per_image), or more images",
            alike,
            len(order) - 1,
        )
    return order
